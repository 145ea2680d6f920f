"""AlterClientQuotas and DescribeClientQuotas, and what a quota does to requests that change the cluster."""

from __future__ import annotations

from typing import Any

from ..conversation import Conversation, scenario
from ..peers import Peer

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NAN, INFINITE = float("nan"), float("inf")


def entity(**parts: str | None) -> list[dict[str, Any]]:
    return [{"entity_type": type_.replace("_", "-"), "entity_name": name} for type_, name in parts.items()]


def entry(parts: list[dict[str, Any]], **values: float | None) -> dict[str, Any]:
    ops = [
        {"key": key, "value": 0.0 if value is None else value, "remove": value is None}
        for key, value in values.items()
    ]
    return {"entity": parts, "ops": ops}


def component(type_: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": type_, "match_type": match_type, "match": match}


def in_order(tree: Any) -> Any:
    """Kafka's entities, and their quotas, come in the order of a hash map."""
    for one in tree["entries"] or []:
        one["entity"].sort(key=lambda part: (part["entity_type"], part["entity_name"] or ""))
        if "values" in one:
            one["values"].sort(key=lambda value: value["key"])
    if tree["entries"]:
        tree["entries"].sort(key=lambda one: repr(one["entity"]))
    return tree


def alter(talk: Conversation, case: str, *entries: dict[str, Any], validate_only: bool = False) -> None:
    asked = {"entries": list(entries), "validate_only": validate_only}
    talk.ask(case, asked, api="AlterClientQuotas", version=_version(talk), adjust=in_order)


def describe(talk: Conversation, case: str, *components: dict[str, Any], strict: bool = False) -> None:
    asked = {"components": list(components), "strict": strict}
    talk.ask(case, asked, api="DescribeClientQuotas", version=_version(talk), adjust=in_order)


def _version(talk: Conversation) -> int:
    return talk.version if "ClientQuotas" in talk.api else 1


def known(talk: Conversation, user: str | None, count: int) -> None:
    """Wait until both brokers know so many quotas of a user."""
    match = component("user", DEFAULT) if user is None else component("user", EXACT, user)

    def is_so(peer: Peer) -> bool:
        answer = talk.pair.ask_one(peer, "DescribeClientQuotas", 1, {"components": [match], "strict": True})
        return sum(len(one.values) for one in answer.entries) == count

    talk.wait_for(f"{count} quotas of {user}", is_so)


@scenario("AlterClientQuotas", "quotas")
def alter_client_quotas(talk: Conversation) -> None:
    alice = talk.name("alice")
    user = entity(user=alice)
    alter(talk, "some", entry(user, producer_byte_rate=1000.0, request_percentage=0.5))
    known(talk, alice, 2)
    alter(talk, "another, and none", entry(user, producer_byte_rate=2000.0, consumer_byte_rate=None))
    alter(talk, "the same again", entry(user, producer_byte_rate=2000.0))
    describe(talk, "they are there", component("user", EXACT, alice))
    alter(talk, "only validated", entry(user, consumer_byte_rate=5.0), validate_only=True)
    alter(talk, "only validated, and refused", entry(user, unknown=5.0), validate_only=True)
    alter(
        talk,
        "several",
        entry(entity(user=alice, client_id="app"), controller_mutation_rate=1.25),
        entry(entity(user=alice, client_id=None), consumer_byte_rate=1.0),
        entry(entity(group="x"), consumer_byte_rate=1.0),
    )
    for case, parts in (
        ("no entity", []),
        ("an empty user", entity(user="")),
        ("an empty client id", entity(client_id="")),
        ("an empty address", entity(ip="")),
        ("an unknown type", entity(group="x")),
        ("an empty type", [{"entity_type": "", "entity_name": "x"}]),
        ("a type twice", [*entity(user=alice), *entity(user=talk.name("bob"))]),
        ("an address and a user", entity(ip="127.0.0.1", user=alice)),
        ("an address and a client id", entity(ip=None, client_id=None)),
    ):
        alter(talk, case, entry(parts, producer_byte_rate=1.0))
    for key in ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate",
                "connection_creation_rate", "unknown", ""):  # fmt: skip
        for value in (0.0, -1.0, 1.5, 1e-7, 2.0**31, 2.0**63, 1e300, INFINITE):
            alter(talk, f"{key} of {value}", entry(user, **{key: value}), validate_only=True)
            alter(
                talk,
                f"{key} of {value}, an address",
                entry(entity(ip=None), **{key: value}),
                validate_only=True,
            )
    alter(talk, "none of nobody", entry(entity(user=talk.name("nobody")), producer_byte_rate=None))
    alter(talk, "an unknown one taken away", entry(user, unknown=None))
    alter(talk, "no changes", entry(user))
    alter(talk, "an entity twice", entry(user, producer_byte_rate=1.0), entry(user, producer_byte_rate=3.0))
    twice = entry(user, producer_byte_rate=1.0)
    twice["ops"] *= 2
    alter(talk, "a key twice", twice)
    alter(talk, "nothing")
    gone = dict.fromkeys(("producer_byte_rate", "request_percentage"))
    alter(talk, "taken away", entry(user, **gone))
    alter(
        talk,
        "the others, too",
        entry(entity(user=alice, client_id="app"), controller_mutation_rate=None),
        entry(entity(user=alice, client_id=None), consumer_byte_rate=None),
    )
    known(talk, alice, 0)
    describe(talk, "they are gone", component("user", EXACT, alice))


@scenario("DescribeClientQuotas", "quotas")
def describe_client_quotas(talk: Conversation) -> None:
    one, two = talk.name("one"), talk.name("two")
    entities = [
        entity(user=one),
        entity(user=one, client_id="app"),
        entity(user=one, client_id=None),
        entity(user=two, client_id="other"),
        entity(user=None, client_id=one),
        entity(client_id=one),
    ]
    alter(talk, "set", *(entry(parts, request_percentage=100.0) for parts in entities))
    alter(talk, "an address", entry(entity(ip="127.1.2.3"), connection_creation_rate=1000.0))
    known(talk, one, 1)
    for strict in (False, True):
        for case, components in (
            ("a user", [component("user", EXACT, one)]),
            ("a user and a client id", [component("user", EXACT, one), component("client-id", EXACT, "app")]),
            ("a user and the default", [component("user", EXACT, one), component("client-id", DEFAULT)]),
            ("a user and any", [component("user", EXACT, one), component("client-id", SPECIFIED)]),
            ("the default and any", [component("user", DEFAULT), component("client-id", SPECIFIED)]),
            ("a client id", [component("client-id", EXACT, one)]),
            ("an address", [component("ip", EXACT, "127.1.2.3")]),
            ("any address", [component("ip", SPECIFIED)]),
            ("any", []),
            ("nobody", [component("user", EXACT, "nobody")]),
            ("an empty name", [component("user", EXACT, "")]),
            ("an empty type", [component("", EXACT, "x")]),
            ("an unknown type", [component("group", EXACT, "x")]),
            ("a type twice", [component("user", EXACT, one), component("user", SPECIFIED)]),
            ("no name", [component("user", EXACT)]),
            ("a name for the default", [component("user", DEFAULT, "x")]),
            ("a name for any", [component("user", SPECIFIED, "x")]),
            ("an unknown match", [component("user", 3)]),
            ("a negative match", [component("user", -1, "x")]),
            ("an address and a user", [component("ip", SPECIFIED), component("user", SPECIFIED)]),
        ):
            describe(talk, f"{case}{', strict' if strict else ''}", *components, strict=strict)
    alter(talk, "taken away", *(entry(parts, request_percentage=None) for parts in entities))
    alter(talk, "the address, too", entry(entity(ip="127.1.2.3"), connection_creation_rate=None))


def new_topic(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def limited(talk: Conversation) -> None:
    """Who has 11 partitions at a time has used 13 of them. What was used before is paid back first."""
    alter(talk, "plenty", entry(entity(user="ANONYMOUS"), controller_mutation_rate=1e6))
    known(talk, "ANONYMOUS", 1)
    talk.topic("first")
    alter(talk, "limit", entry(entity(user="ANONYMOUS"), controller_mutation_rate=1.0))
    known(talk, "ANONYMOUS", 1)
    asked = {"topics": [new_topic(talk.name("large"), 13)], "timeout": 10_000}
    talk.ask("beyond what there is", asked, api="CreateTopics", version=7, adjust=without_ids)


def unlimited(talk: Conversation) -> None:
    alter(talk, "no limit", entry(entity(user="ANONYMOUS"), controller_mutation_rate=None))
    known(talk, "ANONYMOUS", 0)


def without_ids(tree: Any) -> Any:
    for topic in tree.get("topics") or tree.get("responses") or []:
        topic.pop("topic_id", None)
    return tree


@scenario("CreateTopics", "over a quota")
def create_topics_over_a_quota(talk: Conversation) -> None:
    limited(talk)
    try:
        asked = {"topics": [new_topic(talk.name("more"), 2)], "timeout": 10_000, "validate_only": True}
        talk.ask("over the quota", asked, adjust=without_ids)
    finally:
        unlimited(talk)


@scenario("CreatePartitions", "over a quota")
def create_partitions_over_a_quota(talk: Conversation) -> None:
    topic = talk.topic("small")
    limited(talk)
    try:
        wanted = {"name": topic, "count": 3, "assignments": None}
        talk.ask("over the quota", {"topics": [wanted], "timeout": 10_000, "validate_only": True})
    finally:
        unlimited(talk)


@scenario("DeleteTopics", "over a quota")
def delete_topics_over_a_quota(talk: Conversation) -> None:
    topic = talk.topic("gone")
    limited(talk)
    try:
        asked: dict[str, Any] = {"timeout": 10_000}
        if talk.version >= 6:
            asked["topics"] = [{"name": topic}]
        else:
            asked["topic_names"] = [topic]
        talk.ask("over the quota", asked, adjust=without_ids)
    finally:
        unlimited(talk)
