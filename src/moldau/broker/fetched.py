"""What a fetch has read, on its way into the answer: which of it an incremental answer mentions, and by topic."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode
from moldau.replication.fetch_session import NO_REPLICA, WantedPartition
from moldau.replication.follower_session import FollowerSession
from moldau.runtime.line import Slices
from moldau.wire.fetch import Fetched, FetchedTopic

PARTITIONS_PER_PAUSE = 16
UNKNOWN_OFFSET = -1
LEADER: Final = 8  # where a partition's answer has its current leader
RECORDS: Final = 9  # and its records


def note_answered(follower: FollowerSession, reads: list[tuple[WantedPartition, Fetched]]) -> None:
    for wanted, answer in reads:
        _, error_code, _, _, _, _, _, diverging, _, records = answer
        is_well = not error_code and diverging is None
        follower.answered(wanted, is_well=is_well, has_records=bool(records))


def with_news(reads: list[tuple[WantedPartition, Fetched]]) -> Slices[list[tuple[WantedPartition, Fetched]]]:
    """Those that an incremental answer mentions; what all of them say is noted."""
    found = []
    for number, read in enumerate(reads, 1):
        if number % PARTITIONS_PER_PAUSE == 0:
            yield
        if has_news(*read):
            found.append(read)
    return found


def has_news(wanted: WantedPartition, answer: Fetched) -> bool:
    _, error_code, high_watermark, _, log_start_offset, _, replica, diverging, _, records = answer
    is_sent_away = diverging is not None or replica != NO_REPLICA
    return wanted.has_news(
        error_code, bool(records), high_watermark, log_start_offset, is_sent_away=is_sent_away
    )


def by_topic(reads: list[tuple[WantedPartition, Fetched]]) -> list[FetchedTopic]:
    """Answers grouped by topic, in the order in which the topics were read."""
    if len(reads) == 1:
        return [(reads[0][0].topic, [reads[0][1]])]
    topics: dict[str | bytes, list[Fetched]] = {}
    for wanted, answer in reads:
        topics.setdefault(wanted.topic, []).append(answer)
    return list(topics.items())


def refused(
    index: int, error: ErrorCode, *, aborted: tuple[()] | None = None, leader: tuple[int, int] | None = None
) -> Fetched:
    return (
        index, error, UNKNOWN_OFFSET, UNKNOWN_OFFSET, UNKNOWN_OFFSET, aborted, NO_REPLICA, None, leader, b"",
    )  # fmt: skip
