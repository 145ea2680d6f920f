"""Offsets that groups commit as part of transactions: who may, when they count, and what a deletion does to them."""

from __future__ import annotations

from typing import Any

from ..conversation import Conversation, scenario
from ..peers import Peer
from .group_offsets import commit, fetch, in_order, offset
from .groups import stable
from .topics import wait_until_gone
from .transactions import END, END_OWN, transactional


@scenario("TxnOffsetCommit", "answers")
def txn_offset_commit(talk: Conversation) -> None:
    topic, group, missing = talk.topic("t", 3), talk.name("g"), talk.name("missing")
    adds = talk.version >= 5
    with transactional(talk) as tx:
        tx.commit_offsets("nobody", group, topic, (0, 5))
        tx.init("begin")
        tx.commit_offsets("not added", group, topic, (0, 5))
        if not adds:
            tx.add_offsets("add", group)
        tx.commit_offsets("one", group, topic, (0, 5))
        tx.commit_offsets("several", group, topic, (0, 6), (1, 7), (9, 1))
        tx.commit_offsets("no such topic", group, missing, (0, 6))
        tx.commit_offsets("no offsets", group, topic)
        tx.commit_offsets("no group", "", topic, (0, 6))
        tx.commit_offsets("no transactional id", group, topic, (0, 6), transactional_id="")
        tx.commit_offsets("another producer", group, topic, (0, 9), producer_id=10_000_000)
        tx.commit_offsets("an older epoch", group, topic, (0, 9), producer_epoch=-1)
        tx.commit_offsets("a later epoch", group, topic, (0, 9), producer_epoch=9)
        if talk.version >= 3:
            tx.commit_offsets("a generation of nobody", group, topic, (0, 9), generation_id=3)
            tx.commit_offsets("a member that is none", group, topic, (0, 9), member_id="nobody")
        fetch(talk, "before the end", group, [(topic, [0, 1])])
        rows = [{"name": topic, "partition_indexes": [0, 1, 2]}]
        stable_only = {"group_id": group, "topics": rows, "require_stable": True}
        talk.ask(f"{talk.api}: before the end, stable", stable_only, api="OffsetFetch", version=7)
        tx.end("commit", commit=True, version=END_OWN if adds else END)
        talk.ask(f"{talk.api}: after the end, stable", stable_only, api="OffsetFetch", version=7)
        if not adds:
            tx.add_offsets("add", group)
        tx.commit_offsets("one to be aborted", group, topic, (0, 50), (2, 51))
        tx.end("abort", commit=False, version=END_OWN if adds else END)
        talk.ask(f"{talk.api}: after an abort", stable_only, api="OffsetFetch", version=7)


@scenario("TxnOffsetCommit", "members", versions=[3, 4, 5])
def txn_offset_commit_members(talk: Conversation) -> None:
    topic = talk.topic("t")
    with stable(talk, talk.name("g"), 2) as (leader, _follower), transactional(talk) as tx:
        tx.init("begin")
        tx.add_offsets("add", leader.group)

        def ask(case: str, **values: Any) -> None:
            fields = {"generation_id": leader.generation, "member_id": leader.id}
            tx.commit_offsets(case, leader.group, topic, (0, 5), **(fields | values))

        ask("a member")
        ask("another generation", generation_id=77)
        ask("nobody", member_id="nobody")
        ask("no member", member_id="", generation_id=-1)
        ask("an instance", group_instance_id="one")
        tx.end("commit", commit=True)
        fetch(talk, "after the end", leader.group, [(topic, [0])])


def look(talk: Conversation, case: str, group: str, topic: str) -> None:
    """As anyone, and as a reader that waits for open transactions."""
    for stable_only in (False, True):
        for rows in ([{"name": topic, "partition_indexes": [0, 1, 2]}], None):
            values = {"group_id": group, "topics": rows, "require_stable": stable_only}
            what = f"{talk.api}: {case}, {'all' if rows is None else 'some'}, stable={stable_only}"
            talk.ask(what, values, api="OffsetFetch", version=7, adjust=in_order)


@scenario("TxnOffsetCommit", "the later counts", versions=[3])
def the_later_counts(talk: Conversation) -> None:
    topic, group = talk.topic("t", 3), talk.name("g")
    with transactional(talk, "one") as one, transactional(talk, "two") as two:
        for tx in (one, two):
            tx.init("begin")
            tx.add_offsets("add", group)
        one.commit_offsets("one", group, topic, (0, 5), (1, 6), (2, 7))
        look(talk, "only pending", group, topic)
        commit(talk, "outside", group, [(topic, [offset(0, 15)])])
        two.commit_offsets("two", group, topic, (1, 16), (2, 17))
        one.commit_offsets("one again", group, topic, (2, 27))
        look(talk, "both open", group, topic)
        two.end("two", commit=True)
        look(talk, "two has ended", group, topic)
        one.end("one", commit=True)
        look(talk, "one has ended", group, topic)


@scenario("TxnOffsetCommit", "deleted meanwhile", versions=[3])
def deleted_meanwhile(talk: Conversation) -> None:
    for what in ("group", "offsets", "topic"):
        topic, group = talk.topic(f"t-{what}", 3), talk.name(f"g-{what}")
        with transactional(talk, what) as tx:
            tx.init("begin")
            tx.add_offsets("add", group)
            commit(talk, "outside", group, [(topic, [offset(0, 15)])])
            tx.commit_offsets("within", group, topic, (0, 5), (1, 6))
            delete(talk, what, group, topic)
            look(talk, f"{what} deleted", group, topic)
            tx.end("commit", commit=True)
            look(talk, f"{what} deleted, and the end", group, topic)
            talk.ask(f"{what}: described", {"groups": [group]}, api="DescribeGroups", version=6)


def delete(talk: Conversation, what: str, group: str, topic: str) -> None:
    if what == "group":
        talk.ask("delete it", {"groups_names": [group]}, api="DeleteGroups", version=2)
    elif what == "offsets":
        rows = [{"name": topic, "partitions": [{"partition_index": index} for index in range(3)]}]
        talk.ask("delete them", {"group_id": group, "topics": rows}, api="OffsetDelete", version=0)
    else:
        talk.pair.ask("DeleteTopics", 6, {"topics": [{"name": topic}], "timeout": 10_000})
        wait_until_gone(talk, topic)
        talk.wait_for("the coordinator hears of it", lambda peer: not _has_offsets(talk, peer, group))


def _has_offsets(talk: Conversation, peer: Peer, group: str) -> bool:
    values: dict[str, Any] = {"group_id": group, "topics": None}
    return bool(talk.pair.ask_one(peer, "OffsetFetch", 7, values).topics)
