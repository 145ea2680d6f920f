"""A partition as this broker holds it: its log, who leads it, who is in sync, and how far readers may see.

The high watermark is the offset below which every in-sync replica has the log. With one replica that is what this
broker has appended, and, where the topic's flush policy makes the producer wait for the disk, what has been flushed:
a reader never sees a record that a crash could still take back from an acknowledged-after-flush topic.
It never moves back.

Readers with read_committed see up to the last stable offset, the log's first open transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Hashable
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.log.log import Log
from moldau.metadata.image import PartitionState

NO_EPOCH = -1


class Partition:
    __slots__ = (
        "high_watermark",
        "is_internal",
        "is_whole",
        "leader_epoch",
        "log",
        "node_id",
        "on_advance",
        "refusal",
        "state",
        "topic_id",
        "topic_id_bytes",
        "topic_partition",
        "turns",
        "watchers",
    )

    def __init__(self, node_id: int, topic_id: uuid.UUID, state: PartitionState, log: Log) -> None:
        self.node_id = node_id
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.topic_id_bytes = topic_id.bytes
        self.log = log
        self.high_watermark = log.next_offset
        self.watchers: dict[Any, None] = {}
        self.turns: dict[Hashable, asyncio.Future[None]] = {}
        """Of the connections that wait to append (see `replication.turns`)."""
        self.on_advance: Callable[[], object] | None = None
        """Called when the high watermark has moved: a coordinator answers then."""
        self.refusal = ErrorCode.none
        """What everyone is answered now: none where this broker leads the partition and its disk works."""
        self.is_internal = self.topic_partition.topic in INTERNAL_TOPICS
        """It belongs to a coordinator: clients may read it, but not write to it."""
        self.is_whole = False
        """This broker leads it for clients to write to, its disk works and every replica is in sync: nothing but the
        batch decides."""
        self.change(state)

    def change(self, state: PartitionState) -> None:
        """The controller's decision on who leads and who is in sync."""
        self.state = state
        self.leader_epoch = state.leader_epoch
        if not self.is_offline:
            leads = state.leader == self.node_id
            self.refusal = ErrorCode.none if leads else ErrorCode.not_leader_or_follower
            self.is_whole = leads and len(state.isr) == len(state.replicas) and not self.is_internal
            if leads:
                # A leader's epoch begins where it takes over, whether or not it ever writes anything.
                self.log.epochs.assign(state.leader_epoch, self.log.next_offset)

    def take_offline(self) -> None:
        """Its disk failed."""
        self.refusal = ErrorCode.kafka_storage_error
        self.is_whole = False

    def come_online(self, log: Log) -> None:
        """There is a log for it after all."""
        self.log = log
        self.high_watermark = log.next_offset
        self.refusal = ErrorCode.none
        self.change(self.state)

    @property
    def is_offline(self) -> bool:
        return self.refusal is ErrorCode.kafka_storage_error

    @property
    def last_stable_offset(self) -> int:
        """Up to where readers with read_committed may see: before the first transaction that is not decided."""
        high_watermark = self.high_watermark
        transactions = self.log.producing.state.open
        if not transactions:
            return high_watermark
        first = transactions.first_unstable_offset(high_watermark)
        if first is None or first >= high_watermark:
            return high_watermark
        return max(first, self.log.log_start_offset)

    def advance_high_watermark(self, next_offset: int) -> None:
        """Everything below `next_offset` is on every in-sync replica, and as durable as the topic asks."""
        if next_offset > self.high_watermark:
            self.high_watermark = next_offset
            if self.on_advance is not None:
                self.on_advance()

    def check_epoch(self, claimed_epoch: int) -> ErrorCode:
        """What a client's idea of the leader epoch deserves (KIP-320); it may have none."""
        if claimed_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.none
        if claimed_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def check_readable(self, claimed_epoch: int = NO_EPOCH) -> ErrorCode:
        """Whether this broker may answer for the partition now."""
        return self.refusal or self.check_epoch(claimed_epoch)

    def has_enough_in_sync(self) -> bool:
        """min.insync.replicas, which can ask for no more than there are replicas."""
        if len(self.state.isr) == len(self.state.replicas):
            return True
        wanted = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        return len(self.state.isr) >= wanted
