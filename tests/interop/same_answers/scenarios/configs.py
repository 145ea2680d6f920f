"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.config.table import BROKER_KEYS

from ..conversation import Conversation, scenario
from ..peers import PATIENCE_S, SHORT_PATIENCE_S, Peer
from .topics import BAD_CONFIGS

TOPIC, BROKER, LOGGER = 2, 4, 8
COMPARED_BROKER_KEYS = {name for name in BROKER_KEYS if not name.startswith("moldau.")}
"""What Moldau knows by meaning; it answers nothing for the keys of what it does not have."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
OF_TOPIC = 1
"""The source of a value that is set for the topic."""


def by_resource(key: str) -> Any:
    def order(tree: Any) -> Any:
        tree[key].sort(key=lambda item: (item["resource_type"], item["resource_name"]))
        for item in tree[key]:
            if "configs" in item:
                item["configs"] = {
                    config["name"]: config
                    for config in item["configs"]
                    if item["resource_type"] != BROKER or config["name"] in COMPARED_BROKER_KEYS
                }
        return tree

    return order


def resource(kind: int, name: str, **values: Any) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, **values}


@scenario("DescribeConfigs", "configs")
def describe_configs(talk: Conversation) -> None:
    topic = talk.topic("topic", retention_ms="60000", cleanup_policy="compact,delete", flush_messages="5")

    def ask(case: str, *resources: dict[str, Any], **flags: Any) -> None:
        talk.ask(case, {"resources": list(resources), **flags}, adjust=by_resource("results"))

    ask("a topic", resource(TOPIC, topic, configuration_keys=None))
    ask("a topic with synonyms", resource(TOPIC, topic, configuration_keys=None), include_synonyms=True)
    some = ["retention.ms", "no.such.key", "flush.messages", "retention.ms"]
    ask("some of a topic", resource(TOPIC, topic, configuration_keys=some))
    ask("none of a topic", resource(TOPIC, topic, configuration_keys=[]))
    ask("the broker", resource(BROKER, "1", configuration_keys=None))
    ask("the broker with synonyms", resource(BROKER, "1", configuration_keys=None), include_synonyms=True)
    some = [
        "node.id",
        "num.partitions",
        "log.retention.ms",
        "log.retention.hours",
        "ssl.key.password",
        "no.such.key",
    ]
    ask("some of the broker", resource(BROKER, "1", configuration_keys=some), include_synonyms=True)
    ask("the default of all brokers", resource(BROKER, "", configuration_keys=None), include_synonyms=True)
    for kind, name in (
        (TOPIC, talk.name("no")),
        (TOPIC, "no spaces"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "x"),
    ):
        ask(f"type {kind}, {name.rpartition('-')[2]!r}", resource(kind, name, configuration_keys=None))
    for kind in 0, 1, 3, 5, 64, -1:
        ask(f"type {kind}", resource(kind, "x", configuration_keys=None))
    ask(
        "several",
        resource(TOPIC, topic, configuration_keys=some),
        resource(BROKER, "9", configuration_keys=None),
    )
    ask("one twice", *[resource(TOPIC, topic, configuration_keys=["retention.ms"])] * 2)
    ask("none")


def wait_for_value(talk: Conversation, topic: str, key: str, value: str) -> None:
    _wait_for(talk, topic, key, f"{key}={value}", lambda config: config.value == value)


def wait_until_set(talk: Conversation, topic: str, key: str) -> None:
    """Where the value is the same as before."""
    _wait_for(talk, topic, key, f"an own {key}", lambda config: config.config_source == OF_TOPIC)


def _wait_for(talk: Conversation, topic: str, key: str, what: str, is_so: Callable[[Any], bool]) -> None:
    def is_there(peer: Peer) -> bool:
        asked = {"resources": [resource(TOPIC, topic, configuration_keys=[key])]}
        (result,) = talk.pair.ask_one(peer, "DescribeConfigs", 4, asked).results
        return bool(result.configs) and is_so(result.configs[0])

    talk.wait_for(f"{what} of {topic}", is_there)


def described(talk: Conversation, topic: str) -> None:
    asked = {"resources": [resource(TOPIC, topic, configuration_keys=None)], "include_synonyms": True}
    talk.ask("as it is now", asked, api="DescribeConfigs", version=4, adjust=by_resource("results"))


@scenario("AlterConfigs", "topics")
def alter_configs(talk: Conversation) -> None:
    topic = talk.topic("topic", flush_messages="5")

    def ask(case: str, kind: int, name: str, *pairs: tuple[str, str | None], do: bool = False) -> None:
        entries = [{"name": key, "value": value} for key, value in pairs]
        request = {"resources": [resource(kind, name, configs=entries)], "validate_only": not do}
        talk.ask(case, request, adjust=by_resource("responses"))

    ask("valid", TOPIC, topic, ("retention.ms", "5000"))
    ask("done", TOPIC, topic, ("retention.ms", "5000"), ("cleanup.policy", "compact"), do=True)
    wait_for_value(talk, topic, "retention.ms", "5000")
    described(talk, topic)
    ask("all taken back", TOPIC, topic, do=True)
    wait_for_value(talk, topic, "retention.ms", "604800000")
    described(talk, topic)
    for key, value in BAD_CONFIGS.items():
        ask(f"{key}={value}", TOPIC, topic, (key, value))
    ask("a null", TOPIC, topic, ("retention.ms", None))
    ask("a key twice", TOPIC, topic, ("retention.ms", "1"), ("retention.ms", "2"))
    ask("a missing topic", TOPIC, talk.name("no"), ("retention.ms", "1"))
    ask("an invalid topic", TOPIC, "no spaces", ("retention.ms", "1"))
    ask("an empty name", TOPIC, "", ("retention.ms", "1"))
    for kind in 0, 3, 64, -1:
        ask(f"type {kind}", kind, "x", ("retention.ms", "1"))
    ask("another broker", BROKER, "7", ("message.max.bytes", "2"))
    ask("no broker", BROKER, "x", ("message.max.bytes", "2"))
    ask("the broker", BROKER, "1", ("message.max.bytes", "2"))
    ask("all brokers", BROKER, "", ("message.max.bytes", "2"))
    least = ("min.insync.replicas", "2")
    ask("all brokers with their min ISR", BROKER, "", least, ("message.max.bytes", "2"))
    ask("a min ISR of the broker's", BROKER, "1", least)
    ask("a bad min ISR of the broker's", BROKER, "1", ("min.insync.replicas", "0"))
    ask("a bad value of the broker's", BROKER, "1", ("message.max.bytes", "x"))
    ask("a fixed one of the broker's", BROKER, "1", ("log.dirs", "x"))
    good = resource(TOPIC, topic, configs=[{"name": "retention.ms", "value": "1"}])
    bad = resource(TOPIC, talk.name("no"), configs=[])
    for case, resources, patience_s in (
        ("one and a missing one", [good, bad], PATIENCE_S),
        ("one twice", [good, good], SHORT_PATIENCE_S),
        ("none", [], PATIENCE_S),
    ):
        request = {"resources": resources, "validate_only": True}
        talk.ask(case, request, adjust=by_resource("responses"), patience_s=patience_s)


@scenario("IncrementalAlterConfigs", "topics")
def incremental_alter_configs(talk: Conversation) -> None:
    topic = talk.topic("topic", flush_messages="5", cleanup_policy="compact")
    Change = tuple[str, int, str | None]

    def ask(case: str, *changes: Change, kind: int = TOPIC, name: str = topic, do: bool = False) -> None:
        entries = [
            {"name": key, "config_operation": operation, "value": value} for key, operation, value in changes
        ]
        request = {"resources": [resource(kind, name, configs=entries)], "validate_only": not do}
        talk.ask(case, request, adjust=by_resource("responses"))

    ask("set", ("retention.ms", SET, "5000"))
    ask("done", ("retention.ms", SET, "5000"), ("cleanup.policy", APPEND, "delete"), do=True)
    wait_for_value(talk, topic, "retention.ms", "5000")
    described(talk, topic)
    ask("undone", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "compact"), do=True)
    wait_for_value(talk, topic, "retention.ms", "604800000")
    described(talk, topic)
    ask("append what is there", ("cleanup.policy", APPEND, "delete"), do=True)
    ask("append two", ("cleanup.policy", APPEND, "compact,delete"), do=True)
    wait_for_value(talk, topic, "cleanup.policy", "delete,compact")
    described(talk, topic)
    ask("subtract what is not there", ("leader.replication.throttled.replicas", SUBTRACT, "0:1"), do=True)
    wait_until_set(talk, topic, "leader.replication.throttled.replicas")
    described(talk, topic)
    ask("subtract all", ("cleanup.policy", SUBTRACT, "compact,delete"))
    for key, value in BAD_CONFIGS.items():
        ask(f"{key}={value}", (key, SET, value))
    for operation in APPEND, SUBTRACT, 9, -1:
        ask(f"operation {operation} on what is no list", ("retention.ms", operation, "5"))
    ask("set to null", ("retention.ms", SET, None))
    ask("append null", ("cleanup.policy", APPEND, None))
    ask("delete what is not set", ("segment.bytes", DELETE, None))
    ask("delete what is no key", ("no.such.key", DELETE, None))
    ask("a key twice", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None))
    ask("nothing")
    ask("a missing topic", ("retention.ms", SET, "5"), name=talk.name("no"))
    ask("an invalid topic", ("retention.ms", SET, "5"), name="no spaces")
    ask("an empty name", ("retention.ms", SET, "5"), name="")
    for kind in 0, 3, 64, -1:
        ask(f"type {kind}", ("retention.ms", SET, "1"), kind=kind, name="x")
    for name in "1", "", "7", "x":
        for change in (
            ("message.max.bytes", SET, "2"),
            ("message.max.bytes", SET, "x"),
            ("log.dirs", SET, "x"),
            ("message.max.bytes", DELETE, None),
            ("min.insync.replicas", SET, "2"),
            ("min.insync.replicas", SET, "0"),
            ("min.insync.replicas", DELETE, None),
            ("min.insync.replicas", APPEND, "2"),
            ("min.insync.replicas", SUBTRACT, "2"),
        ):
            ask(f"broker {name!r}: {change}", change, kind=BROKER, name=name)
        for change in (
            ("ssl.keystore.location", SET, "/x"),
            ("ssl.key.password", SET, "x"),
            ("ssl.truststore.certificates", SET, "x"),
            ("ssl.principal.mapping.rules", SET, "DEFAULT"),
            ("ssl.allow.dn.changes", SET, "true"),
            ("security.inter.broker.protocol", SET, "SSL"),
            ("inter.broker.listener.name", SET, "PLAINTEXT"),
            ("ssl.client.auth", SET, "sometimes"),
        ):
            ask(f"broker {name!r}: {change}", change, kind=BROKER, name=name)
    ask(
        "a listener of all brokers",
        ("listener.name.x.ssl.keystore.location", SET, "/x"),
        kind=BROKER,
        name="",
    )
    for number in "2", "1":  # and back
        ask(f"a min ISR of {number}", ("min.insync.replicas", SET, number), kind=BROKER, name="", do=True)
        wait_for_value(talk, topic, "min.insync.replicas", number)
        described(talk, topic)
    good = resource(TOPIC, topic, configs=[{"name": "retention.ms", "config_operation": 0, "value": "1"}])
    bad = resource(TOPIC, talk.name("no"), configs=[])
    for case, resources in (
        ("one and a missing one", [good, bad]),
        ("one twice", [good, good]),
        ("none", []),
    ):
        request = {"resources": resources, "validate_only": True}
        talk.ask(case, request, adjust=by_resource("responses"))


@scenario("IncrementalAlterConfigs", "values of the broker's keys")
def values_of_broker_keys(talk: Conversation) -> None:
    for key in (
        "background.threads",
        "follower.fetch.last.tiered.offset.enable",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.min.cleanable.ratio",
        "log.retention.ms",
        "log.roll.jitter.ms",
        "log.roll.ms",
        "max.connections",
        "max.connections.per.ip",
        "message.max.bytes",
        "metric.reporters",
        "remote.fetch.max.wait.ms",
    ):
        for value in "many", "", "0", "-5", "1e20", "99999999999999999999", "true":
            if key == "metric.reporters" and value:
                continue  # the name of a class, which Kafka loads
            entry = {"name": key, "config_operation": SET, "value": value}
            request = {"resources": [resource(BROKER, "", configs=[entry])], "validate_only": True}
            talk.ask(f"{key}={value!r}", request)


@scenario("ListConfigResources", "types")
def list_config_resources(talk: Conversation) -> None:
    talk.topic("topic")

    def ask(case: str, *kinds: int) -> None:
        talk.ask(case, {"resource_types": list(kinds)}, adjust=_in_order)

    ask("all")
    if talk.version >= 1:
        for kind in 0, 2, 4, 8, 16, 32, 1, 3, 99, -1:
            ask(f"type {kind}", kind)
        ask("several", 2, 4)
        ask("one twice", 4, 4)


def _in_order(tree: Any) -> Any:
    """Kafka's own topics come when its coordinators are asked for."""
    resources = [item for item in tree["config_resources"] if not item["resource_name"].startswith("__")]
    resources.sort(key=lambda item: (item.get("resource_type", 0), item["resource_name"]))
    return tree | {"config_resources": resources}
