"""The offsets of groups: committing, fetching and deleting them, as members and as anyone."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..conversation import NO_SUCH_ID, Conversation, scenario
from .groups import Member, settle, stable
from .produce import produce

COMMIT_BY_ID_FROM = 10
FETCH_BY_ID_FROM = 10
SEVERAL_FROM = 8
COMMIT, FETCH = 9, 7
"""The versions in which other scenarios commit and fetch."""


def offset(index: int, value: int, metadata: str | None = "", epoch: int = -1) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": value,
        "committed_metadata": metadata,
        "committed_leader_epoch": epoch,
    }


def commit_of(
    talk: Conversation, group: str, topics: list[tuple[str, list[dict[str, Any]]]], **values: Any
) -> dict[str, Any]:
    """A request of the conversation's version; other APIs commit in one version."""
    is_own = talk.api == "OffsetCommit"
    version = talk.version if is_own else COMMIT
    rows = [
        {**talk.named(name, ids_from=COMMIT_BY_ID_FROM, version=version), "partitions": partitions}
        for name, partitions in topics
    ]
    fields = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": rows}
    return fields | values


def commit(talk: Conversation, case: str, group: str, topics: Any, **values: Any) -> None:
    version = talk.version if talk.api == "OffsetCommit" else COMMIT
    talk.ask(
        f"{talk.api}: {case}", commit_of(talk, group, topics, **values), api="OffsetCommit", version=version
    )


def fetch(talk: Conversation, case: str, group: str, topics: list[tuple[str, list[int]]] | None) -> None:
    """In one version, whatever is tested."""
    rows = None
    if topics is not None:
        rows = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
    values = {"group_id": group, "topics": rows}
    talk.ask(f"{talk.api}: {case}", values, api="OffsetFetch", version=FETCH, adjust=in_order)


def in_order(tree: Any) -> Any:
    """Topics and partitions come in the order of a hash table."""
    for group in tree.get("groups", [tree]):
        group["topics"].sort(key=lambda topic: str(topic.get("name", topic.get("topic_id"))))
        for topic in group["topics"]:
            topic["partitions"].sort(key=lambda partition: partition["partition_index"])
    return tree


@scenario("OffsetCommit", "anyone")
def commit_anyone(talk: Conversation) -> None:
    group, topic, other = talk.name("g"), talk.topic("t", 3), talk.topic("u")

    def ask(case: str, topics: Any, **values: Any) -> None:
        commit(talk, case, group, topics, **values)

    ask("nothing", [])
    ask("a generation without a group", [(topic, [offset(0, 1)])], generation_id_or_member_epoch=1)
    ask("a member without a group", [(topic, [offset(0, 1)])], member_id="nobody")
    ask("one", [(topic, [offset(0, 5, "hello")])])
    fetch(talk, "one", group, [(topic, [0, 1, 2])])
    ask("several", [(topic, [offset(0, 6, None, 0), offset(1, 7, "", 4)]), (other, [offset(0, 8)])])
    ask("a topic without partitions", [(topic, [])])
    ask("back", [(topic, [offset(0, 2, "ünïcode ✓")])])
    ask("one twice", [(topic, [offset(1, 20), offset(1, 21)])])
    ask("a topic twice", [(topic, [offset(0, 30)]), (topic, [offset(1, 31)])])
    ask("negative offsets", [(topic, [offset(2, -1), offset(1, -2)])])
    ask("beyond the end", [(topic, [offset(2, 1 << 60)])])
    ask("no such partition", [(topic, [offset(0, 3), offset(3, 1), offset(-1, 1)])])
    ask("no such topic", [(talk.name("missing"), [offset(0, 3)]), (other, [offset(0, 9)])])
    ask("only what is not there", [(talk.name("missing"), [offset(0, 3)])])
    ask("metadata of 4096", [(topic, [offset(0, 40, "x" * 4096)])])
    ask("metadata of 4097", [(topic, [offset(0, 41, "x" * 4097), offset(1, 42)])])
    ask("metadata of 4096 wide letters", [(topic, [offset(2, 43, "ü" * 4096)])])
    ask("metadata of 2049 wider letters", [(topic, [offset(2, 44, "\N{GRINNING FACE}" * 2049)])])
    fetch(talk, "after all of it", group, [(topic, [0, 1, 2]), (other, [0])])
    fetch(talk, "all", group, None)
    ask("a group of its own that has no name", [(topic, [offset(0, 1)])], group_id="")
    ask("a member of a group without members", [(topic, [offset(0, 1)])], member_id="nobody")
    ask("a generation of a group without members", [(topic, [offset(0, 1)])], generation_id_or_member_epoch=0)
    if talk.version <= 4:
        ask("kept for an hour", [(topic, [offset(0, 50)])], retention_time=3_600_000)
    talk.ask(f"{talk.api}: described", {"groups": [group]}, api="DescribeGroups", version=6)


@scenario("OffsetCommit", "members")
def commit_members(talk: Conversation) -> None:
    topic = talk.topic("t", 2)
    with stable(talk, talk.name("g"), 2) as (leader, follower):

        def ask(case: str, member: Member = leader, **values: Any) -> None:
            fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
            commit(talk, case, member.group, [(topic, [offset(0, 5), offset(1, 6)])], **(fields | values))

        ask("the leader")
        ask("the follower", follower)
        ask("another generation", generation_id_or_member_epoch=1)
        ask("no generation", generation_id_or_member_epoch=-1)
        ask("nobody", member_id="nobody")
        ask("no member", member_id="", generation_id_or_member_epoch=-1)
        ask("no member id", member_id="")
        if talk.version >= 7:
            ask("an instance that is not there", group_instance_id="one")
            ask("only an instance", group_instance_id="one", member_id="", generation_id_or_member_epoch=-1)
        leader.begin_join()
        settle()
        ask("the follower, while the leader joins", follower)
        follower.begin_join()
        leader.end_join("both")
        follower.end_join("both")
        ask("before the assignment")
        fetch(talk, "after all of it", leader.group, [(topic, [0, 1])])


@scenario("OffsetFetch", "answers")
def offset_fetch(talk: Conversation) -> None:
    group, topic, other = talk.name("g"), talk.topic("t", 3), talk.topic("u")
    missing = talk.name("missing")
    commit(talk, "ready", group, [(topic, [offset(0, 5, "five", 0), offset(2, 7)]), (other, [offset(0, 8)])])

    def rows(topics: list[tuple[str, list[int]]] | None) -> list[dict[str, Any]] | None:
        if topics is None:
            return None
        return [
            {**talk.named(name, ids_from=FETCH_BY_ID_FROM), "partition_indexes": indexes}
            for name, indexes in topics
        ]

    def ask(case: str, *groups: tuple[str, list[tuple[str, list[int]]] | None], **flags: Any) -> None:
        wanted = [{"group_id": name, "topics": rows(topics)} for name, topics in groups]
        values = {"groups": wanted} if talk.version >= SEVERAL_FROM else wanted[0]
        talk.ask(case, {**values, **flags}, adjust=in_order)

    ask("one", (group, [(topic, [0])]))
    ask("some", (group, [(topic, [0, 1, 2]), (other, [0])]))
    ask("the same twice", (group, [(topic, [0, 0]), (topic, [2])]))
    ask("no such partition", (group, [(topic, [3, -1])]))
    ask("no such topic", (group, [(missing, [0]), (other, [0])]))
    ask("no topics", (group, []))
    ask("no partitions", (group, [(topic, [])]))
    ask("a group that is not there", (missing, [(topic, [0, 1])]))
    ask("no group", ("", [(topic, [0])]))
    if talk.version >= 2:
        ask("all", (group, None))
        ask("all of a group that is not there", (missing, None))
    if talk.version >= 7:
        ask("stable", (group, [(topic, [0, 1])]), require_stable=True)
        ask("all, stable", (group, None), require_stable=True)
    if talk.version >= SEVERAL_FROM:
        ask("several groups", (group, [(topic, [0])]), (missing, [(topic, [0])]), (group, None))
        ask("no groups")
    if talk.version >= 9:
        values = {"group_id": group, "topics": rows([(topic, [0])]), "member_id": "nobody", "member_epoch": 3}
        talk.ask("as a member", {"groups": [values]}, adjust=in_order)
    if talk.version >= FETCH_BY_ID_FROM:
        row = {"topic_id": NO_SUCH_ID, "partition_indexes": [0, 1]}
        talk.ask("an unknown id", {"groups": [{"group_id": group, "topics": [row]}]}, adjust=in_order)


@scenario("OffsetDelete", "answers")
def offset_delete(talk: Conversation) -> None:
    group, topic, read = talk.name("g"), talk.topic("t", 3), "topic"

    def ask(case: str, topics: list[tuple[str, list[int]]], name: str = group) -> None:
        rows = [
            {"name": topic, "partitions": [{"partition_index": index} for index in indexes]}
            for topic, indexes in topics
        ]
        talk.ask(case, {"group_id": name, "topics": rows}, adjust=in_order)

    ask("a group that is not there", [(topic, [0])])
    ask("no group", [(topic, [0])], "")
    commit(talk, "ready", group, [(topic, [offset(0, 5), offset(1, 6), offset(2, 7)])])
    ask("nothing", [])
    ask("no partitions", [(topic, [])])
    ask("one", [(topic, [0])])
    ask("one that is gone, and one that is not", [(topic, [0, 1])])
    ask("what is not there", [(topic, [3]), (talk.name("missing"), [0])])
    fetch(talk, "after all of it", group, [(topic, [0, 1, 2])])
    talk.ask("described", {"groups": [group]}, api="DescribeGroups", version=6)
    created = {"name": read, "num_partitions": 1, "replication_factor": 1}
    talk.pair.ask("CreateTopics", 7, {"topics": [created], "timeout": 10_000})
    talk.learn(read)
    with stable(talk, talk.name("members")) as (member,):
        fields = {"generation_id_or_member_epoch": member.generation, "member_id": member.id}
        commit(talk, "both", member.group, [(topic, [offset(0, 5)]), (read, [offset(0, 6)])], **fields)
        ask("one that is read, one that is not", [(read, [0]), (topic, [0])], member.group)
        fetch(talk, "what is left", member.group, None)
    other = Member(talk, talk.name("connect"))
    other.enter("another type", protocol_type="connect")
    ask("members of another type", [(topic, [0])], other.group)


@scenario("Produce", "internal topic")
def produce_internal(talk: Conversation) -> None:
    talk.learn("__consumer_offsets")
    produce(talk, "one batch", ("__consumer_offsets", [(0, batch(b"a"))]))
    produce(
        talk,
        "beside a good one",
        ("__consumer_offsets", [(0, batch(b"a"))]),
        (talk.topic("t"), [(0, batch(b"b"))]),
    )
