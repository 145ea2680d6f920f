"""ListOffsets and OffsetForLeaderEpoch: finding a place in the log."""

from __future__ import annotations

from typing import Any

from moldau.records.compression import Codec

from ..batches import START_MS, batch, records
from ..conversation import Conversation, scenario

READ_COMMITTED = 1
SPECIAL_TIMESTAMPS = range(-1, -9, -1)


def filled(talk: Conversation) -> str:
    """Three batches in partition 0: two records, three compressed ones, one that is older than those."""
    name = talk.topic("topic", 2)
    for data in (
        batch(b"a", b"b"),
        batch(b"c", b"d", b"e", timestamp=START_MS + 60_000, codec=Codec.GZIP),
        records((b"k", START_MS + 30_000)),
    ):
        wanted = [{"name": name, "partition_data": [{"index": 0, "records": data}]}]
        talk.ask("filling", {"acks": -1, "timeout": 5000, "topic_data": wanted}, api="Produce", version=9)
    return name


@scenario("ListOffsets", "offsets")
def offsets(talk: Conversation) -> None:
    name = filled(talk)

    def ask(
        case: str, timestamp: int, *, topic: str = name, partition: int = 0, epoch: int = -1, **more: Any
    ) -> None:
        wanted = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": epoch}
        usual = {"replica_id": -1, "timeout": 1000, "topics": [{"name": topic, "partitions": [wanted]}]}
        talk.ask(case, usual | more)

    for timestamp in SPECIAL_TIMESTAMPS:
        ask(f"timestamp {timestamp}", timestamp)
        ask(f"timestamp {timestamp} of an empty partition", timestamp, partition=1)
        ask(f"timestamp {timestamp}, read committed", timestamp, isolation_level=READ_COMMITTED)
        ask(f"timestamp {timestamp} of a missing partition", timestamp, partition=9)
    for after_s in -10, 0, 1, 2, 30, 31, 59, 60, 61, 62, 63, 7200:
        ask(f"{after_s} s after the start", START_MS + 1000 * after_s)
    ask("between two records", START_MS + 500)
    ask("time 0", 0)
    ask("time 0 of an empty partition", 0, partition=1)
    ask("the end of time", 2**63 - 1)
    ask("by time, read committed", START_MS + 1000, isolation_level=READ_COMMITTED)
    for epoch in -2, 0, 1, 77:
        ask(f"latest under epoch {epoch}", -1, epoch=epoch)
        ask(f"by time under epoch {epoch}", START_MS, epoch=epoch)
    ask("a missing topic", -1, topic=talk.name("missing"))
    ask("an invalid topic", -1, topic="no spaces")
    ask("as a replica", -1, replica_id=1)
    ask("as a debugger", -1, replica_id=-2)
    ask("by time as a debugger", START_MS, replica_id=-2)


@scenario("ListOffsets", "several")
def several(talk: Conversation) -> None:
    name, missing = filled(talk), talk.name("missing")

    def ask(case: str, *topics: tuple[str, list[tuple[int, int]]]) -> None:
        wanted = [
            {
                "name": topic,
                "partitions": [{"partition_index": index, "timestamp": time} for index, time in partitions],
            }
            for topic, partitions in topics
        ]
        talk.ask(case, {"replica_id": -1, "timeout": 1000, "topics": wanted}, adjust=_in_order)

    ask("none")
    ask("no partitions", (name, []))
    ask("both", (name, [(0, -1), (1, -2)]))
    ask("some missing", (name, [(0, -1), (7, -2)]), (missing, [(0, -1)]))
    ask("a partition twice", (name, [(0, -1), (0, -2), (1, -1)]))
    ask("a partition three times", (name, [(0, -1), (0, -2), (0, -1)]))
    ask("a topic twice", (name, [(0, -1)]), (name, [(1, -1)]))
    ask("a partition of a topic twice", (name, [(0, -1)]), (name, [(0, -2)]))
    ask("a missing partition twice", (missing, [(0, -1), (0, -2)]))


def _in_order(tree: Any) -> Any:
    tree["topics"].sort(key=lambda topic: str(topic["name"]))
    for topic in tree["topics"]:
        topic["partitions"].sort(key=str)
    return tree


@scenario("OffsetForLeaderEpoch", "epochs")
def epochs(talk: Conversation) -> None:
    name = filled(talk)

    def ask(case: str, *topics: tuple[str, list[tuple[int, int, int]]], replica: int = -1) -> None:
        wanted = [
            {
                "topic": topic,
                "partitions": [
                    {"partition": index, "leader_epoch": epoch, "current_leader_epoch": current}
                    for index, epoch, current in partitions
                ],
            }
            for topic, partitions in topics
        ]
        talk.ask(case, {"replica_id": replica, "topics": wanted})

    for epoch in -1, -2, 0, 1, 99:
        ask(f"epoch {epoch}", (name, [(0, epoch, -1)]))
        ask(f"epoch {epoch} of an empty partition", (name, [(1, epoch, -1)]))
        ask(f"under epoch {epoch}", (name, [(0, 0, epoch)]))
    ask("both", (name, [(0, 0, -1), (1, 0, -1)]))
    ask("missing ones", (name, [(9, 0, -1), (-1, 0, -1)]), (talk.name("missing"), [(0, 0, -1)]))
    ask("twice", (name, [(0, 0, -1), (0, 1, -1)]))
    ask("an invalid topic", ("no spaces", [(0, 0, -1)]))
    ask("none")
    ask("no partitions", (name, []))
    for replica in 1, 7, -2:
        ask(f"as replica {replica}", (name, [(0, 0, -1)]), replica=replica)
