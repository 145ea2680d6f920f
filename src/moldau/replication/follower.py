"""What a follower of a partition does with its leader's answers: append, cut off, or begin anew. Pure.

Truncation goes by leader epochs (KIP-101, KIP-279, KIP-595): each fetch tells the epoch of the follower's last record;
a leader with another history answers where they part. It never goes by the high watermark, which may lag behind what
is committed. Kafka's `AbstractFetcherThread`.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.log.epochs import NO_EPOCH, LeaderEpochs


class FetchPosition(NamedTuple):
    """What a follower asks its leader for."""

    offset: int
    last_fetched_epoch: int
    """The epoch of its last record, by which the leader sees whether the histories agree."""


class Next(Enum):
    """What to do after an answer."""

    APPEND = "append"
    TRUNCATE = "truncate"
    """Cut the log off at `Step.offset`, and fetch again."""
    ASK_BOUNDS = "ask bounds"
    """The leader has nothing at this offset: ask where its log begins and ends (`after_bounds`)."""
    START_OVER = "start over"
    """Drop everything and begin at `Step.offset`."""
    WAIT = "wait"
    """It does not lead any more, or not yet: fetch again after a pause, or when the cluster has changed."""
    GO_ON = "go on"


class Step(NamedTuple):
    next: Next
    offset: int = -1


GO_ON = Step(Next.GO_ON)
WAIT = Step(Next.WAIT)


def fetch_position(epochs: LeaderEpochs, next_offset: int) -> FetchPosition:
    return FetchPosition(next_offset, epochs.latest)


def after_answer(
    error: ErrorCode,
    *,
    has_records: bool,
    diverging: tuple[int, int] | None,
    epochs: LeaderEpochs,
    next_offset: int,
    high_watermark: int,
) -> Step:
    """What an answer for one partition asks for. `diverging`: epoch and end offset where the histories part."""
    if error is ErrorCode.none:
        if diverging is not None:
            return Step(Next.TRUNCATE, truncation_offset(epochs, next_offset, high_watermark, diverging))
        return Step(Next.APPEND) if has_records else GO_ON
    if error is ErrorCode.offset_out_of_range:
        return Step(Next.ASK_BOUNDS)
    return WAIT


def truncation_offset(
    epochs: LeaderEpochs, next_offset: int, high_watermark: int, diverging: tuple[int, int]
) -> int:
    """Up to where the log agrees with a leader whose largest epoch not above ours ends at an offset.

    Where we do not have that epoch, our largest one below it is as far as it can agree: the next fetch tells more.
    """
    leader_epoch, leader_end_offset = diverging
    if leader_epoch == NO_EPOCH:  # it knows no epoch that old
        return min(high_watermark, next_offset)
    ours = epochs.end_offset_for(leader_epoch, next_offset)
    if ours.epoch == NO_EPOCH:  # all that we have is older than that epoch, or we have nothing
        return min(leader_end_offset, next_offset)
    if ours.epoch != leader_epoch:
        return min(ours.end_offset, next_offset)
    return min(ours.end_offset, leader_end_offset, next_offset)


def after_bounds(leader_start_offset: int, leader_end_offset: int, next_offset: int) -> Step:
    """What to do where the leader had nothing at our end, now that it is known what it has."""
    if leader_end_offset < next_offset:
        return Step(Next.TRUNCATE, leader_end_offset)
    if next_offset < leader_start_offset:
        return Step(Next.START_OVER, leader_start_offset)
    return GO_ON
