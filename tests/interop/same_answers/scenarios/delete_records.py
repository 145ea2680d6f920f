"""DeleteRecords: where a partition may begin, and who may say so. And what readers are told afterwards."""

from __future__ import annotations

from typing import Any

from ..conversation import Conversation, scenario
from .offsets import filled

HIGH_WATERMARK = -1


def in_order(tree: Any) -> Any:
    tree["topics"].sort(key=lambda topic: str(topic["name"]))
    for topic in tree["topics"]:
        topic["partitions"].sort(key=str)
    return tree


@scenario("DeleteRecords", "trimming")
def trimming(talk: Conversation) -> None:
    name = filled(talk)
    missing = talk.name("missing")

    def ask(case: str, *wanted: tuple[str, list[tuple[int, int]]]) -> None:
        topics = [
            {"name": topic, "partitions": [{"partition_index": p, "offset": offset} for p, offset in places]}
            for topic, places in wanted
        ]
        talk.ask(case, {"topics": topics, "timeout": 5000}, adjust=in_order)

    def look(case: str, *timestamps: int) -> None:
        for timestamp in timestamps:
            place = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
            values = {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [{"name": name, "partitions": [place]}],
            }
            talk.ask(f"{case}, timestamp {timestamp}", values, api="ListOffsets", version=7)

    ask("nothing")
    ask("no partitions", (name, []))
    ask("a missing topic", (missing, [(0, 0)]))
    ask("a missing partition", (name, [(9, 0)]))
    ask("an empty partition", (name, [(1, 0)]))
    ask("an empty partition to its high watermark", (name, [(1, HIGH_WATERMARK)]))
    ask("beyond the high watermark", (name, [(0, 7)]))
    ask("a negative offset", (name, [(0, -2)]))
    ask("nothing of it", (name, [(0, 0)]))
    ask("within a batch", (name, [(0, 1)]))
    look("within a batch", -1, -2, -3, 0)
    ask("back", (name, [(0, 0)]))
    ask("two partitions and a missing one", (name, [(0, 3), (1, 1), (2, 0)]), (missing, [(0, 0)]))
    look("in the compressed batch", -1, -2, -3, 0)
    ask("to the high watermark", (name, [(0, HIGH_WATERMARK)]))
    look("all", -1, -2, 0)  # for -3 Kafka names a record that is gone; here there is none


@scenario("DeleteRecords", "policies")
def policies(talk: Conversation) -> None:
    for policy in ("compact", "compact,delete", "delete", ""):
        name = talk.topic(policy.replace(",", "-") or "none", cleanup_policy=policy)
        wanted = [{"name": name, "partitions": [{"partition_index": 0, "offset": -1}]}]
        talk.ask(policy or "none", {"topics": wanted, "timeout": 5000})
