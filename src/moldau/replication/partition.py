"""A partition as this broker holds it, and the one door to it: append, flush, high watermark, in-sync set, who waits.

Produce, transaction markers and coordinators' journals append through here and wait here (`when_committed`); nobody
else moves a high watermark. What the leader decides is in `leader`, which is pure; this is the driver around it, which
appends to the log, has it flushed, answers and wakes.

The high watermark is the offset below which every in-sync replica has the log and, where the topic's flush policy
makes the producer wait for the disk, what has been flushed here: a reader never sees a record that a crash could still
take back from an acknowledged-after-flush topic. It never moves back while its leader leads.

Readers with read_committed see up to the last stable offset, the log's first open transaction.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Hashable
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.config.topic import TopicConfig
from moldau.log.appended import Appended
from moldau.log.log import Log
from moldau.log.producers import Verification
from moldau.log.transactions import Marker
from moldau.metadata.image import PartitionState
from moldau.records.validate import Looked
from moldau.replication.leader import PartitionLeader
from moldau.replication.long_polls import Watchers
from moldau.replication.replication import Replication, Write
from moldau.replication.traffic import Traffic

NO_EPOCH = -1
UNCOMMITTED_SIZES_MAX = 1024
"""Appends whose sizes are remembered until they are committed; further ones are counted with the last."""
NO_WRITES: deque[Write] = deque(maxlen=0)
NO_SIZES: deque[tuple[int, int]] = deque(maxlen=0)
"""Shared by all partitions that nobody writes to: thousands of empty deques would take 700 bytes each."""


class EndWatcher(Protocol):
    """A follower that waits for the end of the log (`follower_session`)."""

    @property
    def fetched_s(self) -> float:
        """When it last asked for anything."""

    def on_growth(self, added_bytes: int) -> None: ...
    def on_change(self) -> None:
        """The partition is not led here any more, or in another epoch."""

    def on_news(self) -> None:
        """The high watermark or the start of the log has moved."""

    def on_out_of_sync(self) -> None:
        """It is not in the in-sync set."""


class Partition:
    __slots__ = (
        "_flushes",
        "_replication",
        "_starts_moved",
        "_uncommitted",
        "_writes",
        "end_watchers",
        "high_watermark",
        "is_internal",
        "is_open",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
        "leader",
        "leader_epoch",
        "log",
        "on_advance",
        "refusal",
        "state",
        "topic_id",
        "topic_id_bytes",
        "topic_partition",
        "traffic",
        "turns",
        "watchers",
    )

    def __init__(
        self,
        replication: Replication,
        topic_id: uuid.UUID,
        state: PartitionState,
        log: Log,
        high_watermark: int = 0,
        traffic: Traffic | None = None,
    ) -> None:
        """`high_watermark`: as it was checkpointed; what was committed after that is found out again. `traffic`: of
        its topic."""
        self._replication = replication
        self.topic_partition: TopicPartition = log.topic_partition
        self.topic_id = topic_id
        self.topic_id_bytes = topic_id.bytes
        self.traffic = traffic or Traffic()
        self.log = log
        log.on_start_moved = self._tell_followers
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.next_offset)
        self.leader: PartitionLeader | None = None
        """While this broker leads it."""
        self.watchers: Watchers = {}
        """Readers, who wait for the high watermark."""
        self.end_watchers: dict[int, EndWatcher] = {}
        """Followers by their broker ids."""
        self.turns: dict[Hashable, asyncio.Future[None]] = {}
        """Of the connections that wait to append (see `replication.turns`)."""
        self.on_advance: Callable[[], object] | None = None
        """Called when the high watermark has moved: a coordinator answers then."""
        self.refusal = ErrorCode.none
        """What everyone is answered now: none where this broker leads the partition and its disk works."""
        self.is_internal = self.topic_partition.topic in INTERNAL_TOPICS
        """It belongs to a coordinator: clients may read it, but not write to it."""
        self.is_open = False
        """This broker leads it for clients to write to, its disk works, and enough replicas are in sync for any
        acks: nothing but the batch decides."""
        self.is_throttled_as_leader = self.is_throttled_as_follower = False
        """This replica is named by `leader.` or `follower.replication.throttled.replicas`."""
        self._writes = NO_WRITES
        self._flushes = 0
        """Syncs under way that appends wait for."""
        self._uncommitted = NO_SIZES
        """The next offset and the bytes of what was appended and is not committed."""
        self._starts_moved: asyncio.Future[None] | None = None
        """While somebody waits for followers to begin their logs later."""
        self.state = state
        self.leader_epoch = NO_EPOCH
        self.change(state)

    # Who leads

    def change(self, state: PartitionState) -> None:
        """The controller's decision on who leads and who is in sync."""
        is_new_epoch = state.leader_epoch != self.leader_epoch
        self.state = state
        self.leader_epoch = state.leader_epoch
        if self.is_offline:
            return
        if state.leader != self._replication.node_id:
            if is_new_epoch or self.refusal is not ErrorCode.not_leader_or_follower:
                self._resign(ErrorCode.not_leader_or_follower)
        elif is_new_epoch or self.leader is None:
            self._resign(ErrorCode.not_leader_or_follower)
            self._lead(state)
        else:
            self._moved(self.leader.changed(state, self._replication.clock.monotonic()))
            self._look_at_in_sync()

    def _lead(self, state: PartitionState) -> None:
        # A leader's epoch begins where it takes over, whether or not it ever writes anything.
        self.log.epochs.assign(state.leader_epoch, self.log.next_offset)
        self.refusal = ErrorCode.none
        self._replication.elections += 1
        self._replication.unclean_elections += state.recovering
        self.leader = PartitionLeader(
            self._replication.node_id,
            state,
            next_offset=self.log.next_offset,
            high_watermark=self.high_watermark,
            min_insync_replicas=self.log.config.min_insync_replicas,
            now_s=self._replication.clock.monotonic(),
            lag_max_s=self._replication.replica_lag_max_s,
            is_eligible=self._replication.is_eligible,
            is_durable=self._flushes == 0,
        )
        self._moved(self.leader.high_watermark)
        self._look_at_in_sync()

    def _resign(self, error: ErrorCode) -> None:
        """It is not led here, or not in the epoch in which those who wait have written."""
        self.refusal = error
        self.leader = None
        self.is_open = False
        self._uncommitted = NO_SIZES
        writes, self._writes = self._writes, NO_WRITES
        for write in writes:
            self._replication.finish(write, error)
        self.tell_starts()
        self.wake_all()

    def wake_all(self) -> None:
        """Whoever waits on it must look again: it has another leader, or is gone."""
        if self.watchers:
            self._replication.long_polls.on_change(self.watchers)
        for watcher in self.end_watchers.values():
            watcher.on_change()

    def _look_at_in_sync(self) -> None:
        """The in-sync set, or what is asked of it, may have changed."""
        leader = self.leader
        assert leader is not None
        self.is_open = leader.has_enough_in_sync and not self.is_internal
        for replica, watcher in self.end_watchers.items():
            if replica not in leader.state.isr:
                watcher.on_out_of_sync()
        if not leader.has_enough_in_sync and self._writes:
            writes, self._writes = self._writes, NO_WRITES
            for write in writes:
                self._replication.finish(write, ErrorCode.not_enough_replicas_after_append)
        if leader.has_wish:
            self._replication.on_wish(self)

    def configure(self, config: TopicConfig) -> None:
        self.log.configure(config)
        if self.leader is not None:
            now_s = self._replication.clock.monotonic()
            self._moved(self.leader.reconfigured(config.min_insync_replicas, now_s))
            self._look_at_in_sync()

    def close(self, *, is_deleted: bool = True) -> None:
        """Its topic was deleted, or only this broker does not hold it any more."""
        self._resign(ErrorCode.unknown_topic_or_partition if is_deleted else ErrorCode.not_leader_or_follower)

    def take_offline(self) -> None:
        """Its disk failed."""
        self._resign(ErrorCode.kafka_storage_error)

    def come_online(self, log: Log) -> None:
        """There is a log for it after all."""
        self.log = log
        log.on_start_moved = self._tell_followers
        self.high_watermark = log.next_offset
        self.refusal = ErrorCode.none
        self.change(self.state)

    @property
    def is_offline(self) -> bool:
        return self.refusal is ErrorCode.kafka_storage_error

    def check_epoch(self, claimed_epoch: int) -> ErrorCode:
        """What a client's idea of the leader epoch deserves (KIP-320); it may have none."""
        if claimed_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.none
        if claimed_epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def check_readable(self, claimed_epoch: int = NO_EPOCH) -> ErrorCode:
        """Whether this broker may answer for the partition now, as its leader. As in Kafka's `Partition`, who has a
        newer or older idea of the leader's epoch than this broker hears of that first."""
        if not self.refusal and claimed_epoch in (NO_EPOCH, self.leader_epoch):
            return ErrorCode.none
        return self.check_held(claimed_epoch) or self.refusal

    def check_held(self, claimed_epoch: int = NO_EPOCH) -> ErrorCode:
        """Whether this broker may answer for its replica of the partition now, leader or not."""
        if self.refusal and self.refusal is not ErrorCode.not_leader_or_follower:
            return self.refusal
        return self.check_epoch(claimed_epoch)

    # Appending

    def append(
        self,
        buffer: memoryview,
        start: int,
        stop: int,
        now_ms: int,
        zstd_allowed: bool = True,
        guard: Verification | None = None,
        looked: Looked | None = None,
    ) -> Appended:
        """Append a client's batch, as `Log.append`. Committed when the high watermark is above its last offset."""
        appended = self.log.append(
            buffer, start, stop, self.leader_epoch, now_ms, zstd_allowed, guard, looked
        )
        if not appended.error and not appended.duplicate:
            self._grown(appended.last_offset + 1, stop - start, appended.flush_due)
        return appended

    def append_own(self, batch: bytes, now_ms: int, *, is_transactional: bool) -> Appended:
        """Append a coordinator's batch; one of a transaction was verified."""
        if is_transactional:
            appended = self.log.producing.append_own(batch, self.leader_epoch, now_ms)
        else:
            appended = self.log.producing.append_alone(batch, self.leader_epoch, now_ms)
        if not appended.error:
            self._grown(appended.last_offset + 1, len(batch), appended.flush_due)
        return appended

    def append_marker(
        self, marker: Marker, producer_id: int, producer_epoch: int, now_ms: int, transaction_version: int
    ) -> Appended:
        """End a producer's transaction in this partition."""
        before = self.log.segments.active
        size_before = before.size
        appended = self.log.producing.append_marker(
            marker, producer_id, producer_epoch, self.leader_epoch, now_ms, transaction_version
        )
        if not appended.error:
            active = self.log.segments.active
            added_bytes = active.size - (size_before if active is before else 0)
            self._grown(appended.last_offset + 1, added_bytes, appended.flush_due)
        return appended

    def _grown(self, next_offset: int, added_bytes: int, flush_due: bool) -> None:
        leader = self.leader
        if leader is None:  # the disk failed in this very append: who waits for it is told
            return
        replication = self._replication
        if flush_due:
            self._flush()
        for replica, watcher in self.end_watchers.items():
            watcher.on_growth(added_bytes)
            leader.outgrows(replica, watcher.fetched_s)
        if self._flushes == 0 and leader.is_alone:
            self.high_watermark = leader.appended(next_offset)
            if self.high_watermark == next_offset:
                if self.watchers:
                    replication.long_polls.on_growth(self.watchers, added_bytes)
                if self.on_advance is not None:
                    self.on_advance()
                return
        self._note_uncommitted(next_offset, added_bytes)
        if self._flushes == 0:
            self._moved(leader.flushed(next_offset, replication.clock.monotonic()))

    def _note_uncommitted(self, next_offset: int, added_bytes: int) -> None:
        uncommitted = self._uncommitted
        if uncommitted is NO_SIZES:
            uncommitted = self._uncommitted = deque()
        if len(uncommitted) >= UNCOMMITTED_SIZES_MAX:
            added_bytes += uncommitted.pop()[1]
        uncommitted.append((next_offset, added_bytes))

    # Flushing

    def _flush(self) -> None:
        """Bring all that was appended so far to the disk; it counts then."""
        self._flushes += 1
        leader, next_offset = self.leader, self.log.next_offset

        def on_flushed(error: OSError | None) -> None:
            self._flushes -= 1
            current = self.leader
            if error is not None or current is None:
                return
            # What was appended since then, by this leader or the next one, and is not to be flushed counts as soon as
            # nothing before it waits.
            if not self._flushes:
                self._moved(current.flushed(self.log.next_offset, self._replication.clock.monotonic()))
            elif leader is current:
                self._moved(current.flushed(next_offset, self._replication.clock.monotonic()))

        self.log.flush_then(on_flushed)

    # Committing

    def when_acknowledged(
        self, appended: Appended, deadline_s: float, done: Callable[[ErrorCode], object], *, acks_all: bool
    ) -> None:
        """Call back when what was appended may be acknowledged: after the flush that it asks for, and with acks=all
        when it is committed. A retry may find its batch stored, and neither flushed nor committed."""
        next_offset = appended.last_offset + 1

        def on_flushed(failure: OSError | None) -> None:
            if failure is not None:
                done(ErrorCode.kafka_storage_error)
            elif acks_all:
                self.when_committed(next_offset, deadline_s, done)
            else:
                done(ErrorCode.none)

        if appended.flush_due:
            self.log.flush_then(on_flushed)
        else:
            on_flushed(None)

    def when_committed(
        self, next_offset: int, deadline_s: float, done: Callable[[ErrorCode], object]
    ) -> None:
        """Call back when everything below an offset is committed in this leader's epoch, or why it is not:
        request_timed_out, not_leader_or_follower, not_enough_replicas_after_append, kafka_storage_error."""
        leader = self.leader
        if leader is None:
            done(self.refusal)
        elif leader.high_watermark >= next_offset:
            done(ErrorCode.none)
        elif not leader.has_enough_in_sync:
            done(ErrorCode.not_enough_replicas_after_append)
        else:
            writes = self._writes
            if writes is NO_WRITES:
                writes = self._writes = deque()
            while writes and writes[0].is_done:
                writes.popleft()
            write = Write(next_offset, deadline_s, done)
            writes.append(write)
            self._replication.wait(write)

    async def committed(self, next_offset: int, deadline_s: float) -> ErrorCode:
        """Wait as `when_committed` does."""
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def wake(error: ErrorCode) -> None:
            if not done.done():
                done.set_result(error)

        self.when_committed(next_offset, deadline_s, wake)
        return await done

    def has_enough_in_sync(self) -> bool:
        return self.leader is not None and self.leader.has_enough_in_sync

    def _moved(self, high_watermark: int) -> None:
        """The leader's high watermark is this now: answer who waited for it."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        added_bytes, uncommitted = 0, self._uncommitted
        while uncommitted and uncommitted[0][0] <= high_watermark:
            added_bytes += uncommitted.popleft()[1]
        writes = self._writes
        while writes and (writes[0].next_offset <= high_watermark or writes[0].is_done):
            self._replication.finish(writes.popleft(), ErrorCode.none)
        if self.watchers:
            self._replication.long_polls.on_growth(self.watchers, max(1, added_bytes))
        self._tell_followers()
        if self.on_advance is not None:
            self.on_advance()

    @property
    def knows_the_end(self) -> bool:
        """Whether the high watermark covers all that earlier leaders may have told readers (KIP-207)."""
        return self.leader is None or self.leader.knows_the_end

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

    # Followers of this leader

    def _tell_followers(self) -> None:
        for watcher in self.end_watchers.values():
            watcher.on_news()

    def is_followed_by(self, replica: int, broker_epoch: int) -> bool:
        """Whether a fetch of this life of a broker is a follower's; one of an earlier life than is known is not
        (KIP-903)."""
        follower = None if self.leader is None else self.leader.followers.get(replica)
        return follower is not None and (broker_epoch == NO_EPOCH or broker_epoch >= follower.broker_epoch)

    def follower_fetched(
        self, replica: int, broker_epoch: int, next_offset: int, log_start_offset: int
    ) -> None:
        """A follower asks for what follows an offset, and so has everything below."""
        leader = self.leader
        assert leader is not None
        now_s = self._replication.clock.monotonic()
        end_offset = self.log.next_offset
        if self._starts_moved is not None and log_start_offset != leader.followers[replica].log_start_offset:
            self.tell_starts()
        self._moved(
            leader.follower_fetched(replica, broker_epoch, next_offset, log_start_offset, end_offset, now_s)
        )
        if leader.has_wish:
            self._replication.on_wish(self)

    # Beginning later

    def delete_records_before(self, offset: int) -> None:
        """Begin the log at an offset that is committed, here and, as they hear of it, on the followers. KafkaError
        (offset_out_of_range) where it is not."""
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(ErrorCode.offset_out_of_range)
        self.log.delete_records_before(offset)

    def low_watermark(self, is_alive: Callable[[int], bool]) -> int | None:
        """Where the log begins on all living replicas; None where this broker does not lead it."""
        leader = self.leader
        return None if leader is None else leader.low_watermark(self.log.log_start_offset, is_alive)

    @property
    def starts_moved(self) -> asyncio.Future[None]:
        """Done when the low watermark may have moved, or this broker leads the partition no more."""
        if self._starts_moved is None:
            self._starts_moved = asyncio.get_running_loop().create_future()
        return self._starts_moved

    def tell_starts(self) -> None:
        """Have those who wait for followers to begin later look again."""
        moved, self._starts_moved = self._starts_moved, None
        if moved is not None and not moved.done():
            moved.set_result(None)

    # Time

    def tick(self) -> None:
        """Time has passed: who has not kept up leaves the in-sync set, if the controller agrees."""
        leader = self.leader
        if leader is not None and not leader.is_alone:
            self._moved(leader.tick(self.log.next_offset, self._replication.clock.monotonic()))
            if leader.has_wish:
                self._replication.on_wish(self)

    def in_sync_answered(
        self, leader: PartitionLeader, error: ErrorCode, state: PartitionState | None
    ) -> None:
        """What the controller says to a wish of this leader; one that does not lead any more hears nothing of it.

        A smaller set is taken with the image, in the order of the controller's writes: by now it may ask for more
        replicas in sync than this leader knows, and keep who left the set eligible.
        """
        if leader is self.leader:
            if state is not None and len(state.isr) < len(leader.state.isr):
                return
            if state is not None:
                state = self.state._replace(isr=state.isr, partition_epoch=state.partition_epoch)
                if state.partition_epoch > self.state.partition_epoch:
                    self.state = state
            self._moved(leader.answered(error, state, self._replication.clock.monotonic()))
            self._look_at_in_sync()

    # Following

    @property
    def is_followed_here(self) -> bool:
        """Whether this broker has been told, in this life, that it does not lead: it follows whoever does."""
        return self.leader is None and self.leader_epoch != NO_EPOCH

    def fetched(self, added_bytes: int) -> None:
        """The log has grown by what the leader sent; readers see it when it is committed."""
        self._note_uncommitted(self.log.next_offset, added_bytes)

    def follow(self, high_watermark: int) -> None:
        """The leader's word on what is committed, as far as this log has it."""
        self._moved(min(high_watermark, self.log.next_offset))

    def cut_off(self) -> None:
        """The log was truncated."""
        self._uncommitted.clear()
        self.high_watermark = min(max(self.high_watermark, self.log.log_start_offset), self.log.next_offset)
