"""What a client learns about the cluster: ApiVersions, Metadata, coordinators, brokers, partitions, log folders."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..conversation import NO_SUCH_ID, Conversation, scenario
from .produce import produce

BY_ID_FROM = 12
AUTO_CREATION_FROM = 4


@scenario("ApiVersions", "versions")
def api_versions(talk: Conversation) -> None:
    def ask(case: str, name: str, version: str) -> None:
        talk.ask(case, {"client_software_name": name, "client_software_version": version})

    ask("a client that names itself", "same-answers", "1.0")
    if talk.version >= 3:
        for name in "", " ", "-x", "x-", "a.b-c", "x y", "ž", "x" * 200:
            ask(f"software name {name[:9]!r}", name, "1.0")
            ask(f"software version {name[:9]!r}", "x", name)


@scenario("Metadata", "topics")
def metadata(talk: Conversation) -> None:
    first, second = talk.topic("first", 3), talk.topic("second")

    def ask(case: str, topics: list[dict[str, Any]] | None, **flags: Any) -> None:
        talk.ask(
            case, {"topics": topics, "allow_auto_topic_creation": False, **flags}, adjust=_without_internal
        )

    names = [{"name": name} for name in (first, second)]
    everything = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    ask("two topics", names)
    ask("two topics and operations", names, **everything)
    ask("the other way round", names[::-1])
    ask("one twice", [names[0], names[0]])
    ask("all", None if talk.version else [])
    if talk.version:
        ask("none", [], **everything)
    for name in "no spaces", "", ".", "..", "x" * 250, "a/b":
        ask(f"invalid name {name[:9]!r}", [{"name": name}], **everything)
    ask("an invalid name beside a good one", [{"name": "no spaces"}, names[0]])
    if talk.version >= AUTO_CREATION_FROM:
        ask("a missing one", [{"name": talk.name("missing")}], **everything)
        ask("a missing one beside a good one", [{"name": talk.name("missing")}, names[0]])
    if talk.version >= 10:
        by_id = {"name": None, "topic_id": talk.id_of(first)}
        ask("by id", [by_id])
        ask("by id and name", [{"name": second, "topic_id": talk.id_of(first)}])
        ask("by an unknown id", [{"name": None, "topic_id": NO_SUCH_ID}], **everything)
        ask("by an unknown id and a name", [{"name": first, "topic_id": NO_SUCH_ID}])
        ask("by id and by name", [by_id, names[1]])
        ask("by id, twice", [by_id, by_id])
        ask("neither id nor name", [{"name": None}])


def _without_internal(tree: Any) -> Any:
    """Kafka makes the topics of its coordinators when it is first asked for one."""
    topics = [topic for topic in tree["topics"] if not topic.get("is_internal", _is_internal(topic))]
    topics.sort(key=lambda topic: (str(topic["name"]), str(topic.get("topic_id"))))
    for topic in topics:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree | {"topics": topics}


def _is_internal(topic: Any) -> bool:
    return topic["name"] in ("__consumer_offsets", "__transaction_state", "__share_group_state")


@scenario("Metadata", "auto-creation", versions=[0, 4, 13])
def auto_creation(talk: Conversation) -> None:
    name = talk.name("created")
    request = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    talk.ask("the first time", request)
    talk.learn(name, 2)
    talk.ask("afterwards", request, adjust=_without_internal)
    collides = talk.topic("with.a.dot")
    request = {"topics": [{"name": collides.replace(".", "_")}], "allow_auto_topic_creation": True}
    talk.ask("a name that collides", request)


@scenario("FindCoordinator", "groups")
def find_coordinator(talk: Conversation) -> None:
    def ask(case: str, *keys: str, key_type: int = 0) -> None:
        talk.ask(case, {"key": keys[0] if keys else "", "coordinator_keys": list(keys), "key_type": key_type})

    ask("a group", "group")
    ask("an empty key", "")
    if talk.version >= 1:
        ask("a kind that is none", "group", key_type=9)
        ask("a negative kind", "group", key_type=-1)
    if talk.version >= 4:
        ask("several", "one", "two", "", "two")
        ask("none")


@scenario("DescribeCluster", "brokers")
def describe_cluster(talk: Conversation) -> None:
    talk.ask("brokers", {"endpoint_type": 1})
    talk.ask("with operations", {"endpoint_type": 1, "include_cluster_authorized_operations": True})
    talk.ask("with fenced ones", {"endpoint_type": 1, "include_fenced_brokers": True})
    if talk.version >= 1:
        for kind in 0, 2, 3, -1:
            talk.ask(f"endpoints of type {kind}", {"endpoint_type": kind})


@scenario("DescribeTopicPartitions", "pages")
def describe_topic_partitions(talk: Conversation) -> None:
    a, b, c, missing = talk.topic("a", 3), talk.topic("b"), talk.topic("c", 2), talk.name("bb")

    def ask(case: str, names: list[str], limit: int = 2000, cursor: tuple[str, int] | None = None) -> None:
        page = cursor and {"topic_name": cursor[0], "partition_index": cursor[1]}
        topics = [{"name": name} for name in names]
        talk.ask(case, {"topics": topics, "response_partition_limit": limit, "cursor": page})

    ask("all of them", [c, a, b])
    ask("a missing one", [a, missing, c])
    ask("an invalid name", ["no spaces", a])
    ask("an empty name", ["", a])
    ask("one twice", [a, a])
    for limit in 1, 2, 3, 4, 5, 6, 0, -1:
        ask(f"limit {limit}", [a, b, c], limit)
    for name, index in (
        (a, 0),
        (a, 1),
        (a, 3),
        (a, 9),
        (b, 0),
        (b, 1),
        (c, 1),
        (missing, 0),
        ("zzz", 0),
        ("", 0),
    ):
        label = name.rpartition("-")[2]
        ask(f"from {label} {index}", [a, b, c], 2, (name, index))
        ask(f"from {label} {index}, with a missing one", [a, b, missing, c], 2, (name, index))
    ask("a negative cursor", [a, b], 2, (a, -1))


@scenario("DescribeLogDirs", "partitions")
def describe_log_dirs(talk: Conversation) -> None:
    name, empty = talk.topic("topic", 2), talk.topic("empty")
    produce(talk, "filling", (name, [(0, batch(b"a")), (1, batch(b"b" * 100))]), version=9)

    def ask(case: str, topics: list[dict[str, Any]] | None, *, only: bool = False) -> None:
        talk.ask(case, {"topics": topics}, adjust=_ours if only else _in_order)

    def _ours(tree: Any) -> Any:
        for folder in tree["results"]:
            folder["topics"] = [topic for topic in folder["topics"] if topic["name"] in (name, empty)]
        return _in_order(tree)

    ask("both", [{"topic": name, "partitions": [0, 1]}, {"topic": empty, "partitions": [0]}])
    ask("one", [{"topic": name, "partitions": [1]}])
    ask("missing ones", [{"topic": name, "partitions": [9]}, {"topic": talk.name("no"), "partitions": [0]}])
    ask("twice", [{"topic": name, "partitions": [0, 0]}, {"topic": name, "partitions": [0]}])
    ask("no partitions", [{"topic": name, "partitions": []}])
    ask("none", [])
    ask("all", None, only=True)


@scenario("AlterReplicaLogDirs", "errors")
def alter_replica_log_dirs(talk: Conversation) -> None:
    name = talk.topic("topic", 2)
    told = talk.ask("folders", {"topics": None}, api="DescribeLogDirs", version=4, adjust=lambda tree: None)
    path = told.map(lambda outcome: outcome.results[0].log_dir)

    def ask(case: str, *folders: tuple[Any, list[tuple[str, list[int]]]]) -> None:
        asked = [
            {"path": folder, "topics": [{"name": topic, "partitions": indexes} for topic, indexes in topics]}
            for folder, topics in folders
        ]
        talk.ask(case, {"dirs": asked}, adjust=_sorted_results)

    ask("where it lies", (path, [(name, [0, 1])]))
    ask("an unknown folder", ("/no/such/folder", [(name, [0])]))
    ask("no path", ("", [(name, [0])]))
    ask("an unknown folder and topic", ("/no/such/folder", [(talk.name("no"), [0])]))
    ask("an unknown topic", (path, [(talk.name("no"), [0])]))
    ask("an unknown partition", (path, [(name, [9])]))
    ask("a negative partition", (path, [(name, [-1])]))
    ask("a name that is too long", (path, [("x" * 249, [0])]))
    ask("a name that is too long, in an unknown folder", ("/no/such/folder", [("x" * 249, [0])]))
    ask("no name", (path, [("", [0])]))
    ask("twice, the last counts", ("/no/such/folder", [(name, [0])]), (path, [(name, [0])]))
    ask("twice, the other way", (path, [(name, [0])]), ("/no/such/folder", [(name, [0])]))
    ask("some of each", (path, [(name, [0, 9]), (talk.name("no"), [0])]), ("/x", [(name, [1])]))
    ask("no partitions", (path, [(name, [])]))
    ask("no topics", (path, []))
    ask("nothing")


def _sorted_results(tree: Any) -> Any:
    """Kafka's order is that of a hash table."""
    tree["results"].sort(key=lambda topic: str(topic["topic_name"]))
    for topic in tree["results"]:
        topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree


def _in_order(tree: Any) -> Any:
    for folder in tree["results"]:
        folder["topics"].sort(key=lambda topic: str(topic["name"]))
        for topic in folder["topics"]:
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree
