"""CreateTopics, DeleteTopics and CreatePartitions, with every reason to refuse one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ..conversation import NO_SUCH_ID, Conversation, scenario
from ..peers import Peer

BY_ID_FROM = 6
BAD_CONFIGS = {
    "retention.ms": "soon",
    "segment.bytes": "1",
    "no.such.key": "1",
    "cleanup.policy": "burn",
    "compression.type": "rar",
    "max.message.bytes": "-1",
    "min.insync.replicas": "0",
    "unclean.leader.election.enable": "maybe",
    "min.cleanable.dirty.ratio": "1.5",
    "message.timestamp.type": "Never",
    "compression.gzip.level": "99",
    "segment.ms": "",
    "preallocate": "1",
    "retention.bytes": " 5 ",
    "local.retention.ms": "99999999999999",
    "remote.storage.enable": "true",
    "leader.replication.throttled.replicas": "x",
    "file.delete.delay.ms": "1.5",
    "": "x",
}


def by_name(key: str) -> Any:
    """Answers in the order of the names (Kafka's is that of a hash table), configs by their names."""

    def order(tree: Any) -> Any:
        tree[key].sort(key=lambda item: (str(item["name"]), str(item.get("topic_id"))))
        for item in tree[key]:
            if isinstance(item.get("configs"), list):
                item["configs"] = {config["name"]: config for config in item["configs"]}
        return tree

    return order


def configs(**values: str | None) -> list[dict[str, Any]]:
    return [{"name": key.replace("_", "."), "value": value} for key, value in values.items()]


def assigned(*replicas: Iterable[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + index, "broker_ids": list(ids)} for index, ids in enumerate(replicas)]


class Creation:
    def __init__(self, talk: Conversation) -> None:
        self.talk = talk

    def ask(self, case: str, *topics: dict[str, Any], validate_only: bool = False) -> None:
        usual = {"name": self.talk.name("new"), "num_partitions": 1, "replication_factor": 1}
        request = {
            "topics": [usual | topic for topic in topics],
            "timeout": 10_000,
            "validate_only": validate_only,
        }
        self.talk.ask(case, request, adjust=_with_new_ids)


def _with_new_ids(tree: Any) -> Any:
    """What was only validated gets an id too, which names nothing."""
    for topic in tree["topics"]:
        if isinstance(topic.get("topic_id"), UUID):
            topic["topic_id"] = "<a new id>"
    return by_name("topics")(tree)


@scenario("CreateTopics", "created")
def created(talk: Conversation) -> None:
    ask = Creation(talk).ask
    ask("only validated", {}, validate_only=True)
    for case, topic, partitions in (
        ("plain", {}, 1),
        ("three", {"num_partitions": 3}, 3),
        ("configured", {"configs": configs(retention_ms="60000", cleanup_policy="compact,delete")}, 1),
        ("assigned", {"num_partitions": -1, "replication_factor": -1, "assignments": assigned([1], [1])}, 2),
    ):
        name = talk.name(case.replace(" ", "-"))
        ask(case, topic | {"name": name})
        talk.learn(name, partitions)
        ask(f"{case}, again", topic | {"name": name})
    if talk.version >= 4:
        name = talk.name("defaults")
        ask("defaults", {"name": name, "num_partitions": -1, "replication_factor": -1})
        talk.learn(name, 2)
    ask("several", {"name": talk.name("s1")}, {"name": talk.name("plain")}, {"name": talk.name("s2")})
    ask("none")


@scenario("CreateTopics", "refused")
def refused(talk: Conversation) -> None:
    ask = Creation(talk).ask
    there = talk.topic("there.with.dots")
    for name in "", ".", "..", "no spaces", "a/b", "ž", "x" * 250, "x" * 249 + "/", "__consumer_offsets ":
        ask(f"name {name[:20]!r}", {"name": name}, validate_only=True)
    ask("a name that collides", {"name": there.replace(".", "_")})
    ask("a name that is there", {"name": there})
    ask("the same name twice", {}, {})
    ask("the same name twice beside another", {}, {}, {"name": talk.name("another")}, validate_only=True)
    for count in 0, -1, -2, 2**31 - 1:
        ask(f"{count} partitions", {"num_partitions": count}, validate_only=True)
    for factor in 0, -1, -2, 2, 5, 32767:
        ask(f"{factor} replicas", {"replication_factor": factor}, validate_only=True)
    ask("nothing and nobody", {"num_partitions": 0, "replication_factor": 0}, validate_only=True)
    for key, value in BAD_CONFIGS.items():
        topic = {"configs": [{"name": key, "value": value}]}
        ask(f"config {key}={value}", topic, validate_only=True)
    ask(
        "two bad configs",
        {"configs": configs(retention_ms="soon", segment_bytes="small")},
        validate_only=True,
    )
    ask(
        "a config twice",
        {"configs": configs(retention_ms="1") + configs(retention_ms="2")},
        validate_only=True,
    )
    unset = {"num_partitions": -1, "replication_factor": -1}
    for case, assignment in {
        "a broker that is not there": assigned([7]),
        "a broker twice": assigned([1, 1]),
        "nobody": assigned([]),
        "a gap": assigned([1], first=1),
        "a partition twice": assigned([1]) + assigned([1]),
        "different numbers": assigned([1], [1, 2]),
        "a negative broker": assigned([-1]),
        "a negative partition": assigned([1], first=-1),
    }.items():
        ask(f"assigned to {case}", unset | {"assignments": assignment}, validate_only=True)
    ask("assigned and counted", {"assignments": assigned([1])}, validate_only=True)
    ask("assigned and counted partitions", {"assignments": assigned([1]), "replication_factor": -1})
    ask("good beside bad", {"name": talk.name("good")}, {"name": "no spaces"}, validate_only=True)


@scenario("DeleteTopics", "deleted")
def delete_topics(talk: Conversation) -> None:
    def ask(case: str, *names: str) -> None:
        request = {
            "topic_names": list(names),
            "topics": [{"name": name} for name in names],
            "timeout": 10_000,
        }
        talk.ask(case, request, adjust=by_name("responses"))

    def ask_by_id(case: str, *topics: dict[str, Any]) -> None:
        talk.ask(case, {"topics": list(topics), "timeout": 10_000}, adjust=by_name("responses"))

    first, second, third, missing = (*map(talk.topic, ("a", "b", "c")), talk.name("missing"))
    ask("missing ones", missing, "no spaces", "")
    ask("one", first)
    wait_until_gone(talk, first)
    ask("again", first)
    ask("one and a missing one", second, missing)
    ask("one twice", third, third)
    ask("none")
    if talk.version >= BY_ID_FROM:
        fourth = talk.topic("d")
        ask_by_id("an unknown id", {"name": None, "topic_id": NO_SUCH_ID})
        ask_by_id("neither name nor id", {"name": None})
        ask_by_id("a name and its id", {"name": fourth, "topic_id": talk.id_of(fourth)})
        ask_by_id("a name and another id", {"name": fourth, "topic_id": NO_SUCH_ID})
        ask_by_id("an id twice", *[{"name": None, "topic_id": talk.id_of(fourth)}] * 2)
        ask_by_id("an id and its name", {"name": None, "topic_id": talk.id_of(fourth)}, {"name": fourth})
        fifth = talk.topic("e")
        ask_by_id("by id", {"name": None, "topic_id": talk.id_of(fifth)})
        wait_until_gone(talk, fifth)
        ask_by_id("by id, again", {"name": None, "topic_id": talk.id_of(fifth)})


def wait_until_gone(talk: Conversation, name: str) -> None:
    def gone(peer: Peer) -> bool:
        request = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
        return bool(talk.pair.ask_one(peer, "Metadata", 12, request).topics[0].error_code)

    talk.wait_for(f"the end of {name}", gone)


@scenario("CreatePartitions", "more")
def create_partitions(talk: Conversation) -> None:
    name, missing = talk.topic("topic", 2), talk.name("missing")

    def ask(
        case: str,
        count: int,
        assignments: list[list[int]] | None = None,
        *,
        topic: str = name,
        do: bool = False,
    ) -> None:
        given = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
        request = {"topics": [{"name": topic, "count": count, "assignments": given}], "timeout": 10_000}
        talk.ask(case, request | {"validate_only": not do}, adjust=by_name("results"))

    for count in 3, 2, 1, 0, -1, 2**31 - 1:
        ask(f"{count} in all", count)
    ask("a missing topic", 5, topic=missing)
    ask("an invalid name", 5, topic="no spaces")
    ask("an empty name", 5, topic="")
    for case, assignments in {
        "one": [[1]],
        "too many": [[1], [1]],
        "none": [],
        "nobody": [[]],
        "a broker that is not there": [[7]],
        "a broker twice": [[1, 1]],
        "two brokers": [[1, 2]],
        "a negative broker": [[-1]],
    }.items():
        ask(f"assigned: {case}", 3, assignments)
    ask("too few assigned", 5, [[1]])
    ask("done", 4, do=True)
    talk.learn(name, 4)
    ask("done again", 4, do=True)
    ask("done and assigned", 5, [[1]], do=True)
    talk.learn(name, 5)
    topics = [{"name": name, "count": 7}, {"name": missing, "count": 3}, {"name": name, "count": 8}]
    for case, wanted in (("twice and missing", topics), ("one and missing", topics[:2]), ("none", [])):
        request = {"topics": wanted, "timeout": 10_000, "validate_only": True}
        talk.ask(case, request, adjust=by_name("results"))
