"""A member of a consumer group: what it asked for, what it has, and on which way it is to its target."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from heapq import merge
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from moldau.coordinator.group.consumer.messages import LEAVING
from moldau.coordinator.group.consumer.records import (
    Assigned,
    ClassicMetadata,
    CurrentRecorded,
    MemberRecorded,
)

NOTHING: Mapping[UUID, Mapping[int, int]] = MappingProxyType({})


NAMES_SORTED_AT_ONCE = 5_000
"""Sorting holds the interpreter's lock to its end, in a thread too: so many names take 2 ms."""


def in_order(names: frozenset[str]) -> tuple[str, ...]:
    """Sorted, with moments between in which other threads run."""
    rows = list(names)
    if len(rows) <= NAMES_SORTED_AT_ONCE:
        return tuple(sorted(rows))
    starts = range(0, len(rows), NAMES_SORTED_AT_ONCE)
    return tuple(merge(*(sorted(rows[start : start + NAMES_SORTED_AT_ONCE]) for start in starts)))


class MemberState(IntEnum):
    """With Kafka's numbers in the log."""

    STABLE = 0
    UNREVOKED = 1
    """It has partitions that it is to give up, and has not said that it did."""
    UNRELEASED = 2
    """It is to get partitions that others still have."""
    UNKNOWN = 127


class ConsumerMember(NamedTuple):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None
    """Where it speaks the classic protocol."""
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assigned = NOTHING
    revoking: Assigned = NOTHING

    def subscribed_as(self, record: MemberRecorded) -> ConsumerMember:
        return self._replace(
            instance_id=record.instance_id,
            rack_id=record.rack_id,
            client_id=record.client_id,
            client_host=record.client_host,
            topics=frozenset(record.topics),
            regex=record.regex,
            rebalance_timeout_ms=record.rebalance_timeout_ms,
            assignor=record.assignor,
            classic=record.classic,
        )

    def as_subscribed(self, group_id: str) -> MemberRecorded:
        return MemberRecorded(
            group_id,
            self.member_id,
            self.instance_id,
            self.rack_id,
            self.client_id,
            self.client_host,
            in_order(self.topics),
            self.regex,
            self.rebalance_timeout_ms,
            self.assignor,
            self.classic,
        )

    def assigned_as(self, record: CurrentRecorded) -> ConsumerMember:
        known = record.state in list(MemberState)
        return self._replace(
            epoch=record.epoch,
            previous_epoch=record.previous_epoch,
            state=MemberState(record.state) if known else MemberState.UNKNOWN,
            assigned=record.assigned,
            revoking=record.revoking,
        )

    def as_assigned(self, group_id: str) -> CurrentRecorded:
        return CurrentRecorded(
            group_id,
            self.member_id,
            self.epoch,
            self.previous_epoch,
            int(self.state),
            self.assigned,
            self.revoking,
        )

    def unassigned(self) -> ConsumerMember:
        """What it had is forgotten, and no member is without a subscription."""
        return self._replace(
            epoch=LEAVING,
            previous_epoch=LEAVING,
            state=MemberState.STABLE,
            assigned=NOTHING,
            revoking=NOTHING,
        )

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    @property
    def held(self) -> Assigned:
        """What it has, and what it is about to give up."""
        held = {topic_id: dict(partitions) for topic_id, partitions in self.assigned.items()}
        for topic_id, partitions in self.revoking.items():
            held.setdefault(topic_id, {}).update(partitions)
        return held

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """When it got a partition that it has, or is about to give up."""
        for held in (self.assigned, self.revoking):
            epoch = held.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
