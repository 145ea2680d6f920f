"""One fetch request while it is answered: read, wait, answer. `handlers/fetch` tells its life.

Each step over partitions is a generator with pauses between them (`reading`, `answering`): in one go for few, in line
for many (`runtime.line`), awaited where pages come from the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import (
    COLD_READ_RETRIES_MAX,
    FETCHED_INLINE_MAX,
    INLINE_FETCH_BYTES_MAX,
)
from moldau.broker.connection import Connection
from moldau.broker.dispatch import guarded
from moldau.broker.fetched import (
    LEADER,
    PARTITIONS_PER_PAUSE,
    RECORDS,
    by_topic,
    note_answered,
    refused,
    with_news,
)
from moldau.broker.guard import Guard, name_of
from moldau.broker.interface import FetchingBroker
from moldau.broker.leader_hints import current_leader, endpoints_of
from moldau.broker.slot import Answer, Slot
from moldau.broker.throttling import counted
from moldau.log.reader import Slice
from moldau.replication.fetch_session import (
    NO_REPLICA,
    NO_SESSION,
    FetchContext,
    TopicRef,
    WantedPartition,
    rotate,
)
from moldau.replication.follower_session import HIGH_WATERMARK_DELAY_S, FollowerSession
from moldau.replication.long_polls import LongPoll
from moldau.replication.partition import NO_EPOCH, Partition
from moldau.replication.replica_selector import nearest_replica
from moldau.replication.traffic import Traffic
from moldau.runtime.line import Slices, in_line, whole
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.fetch import (
    LEADER_HINTS_FROM,
    Fetched,
    Records,
    pack_fetch_response,
    packing_fetch_response,
)
from moldau.wire.primitives import NodeEndpoint

READ_TOPIC = right("Fetch", Operation.READ, Resource.TOPIC)
FOLLOW = right("Fetch", Operation.CLUSTER_ACTION, Resource.CLUSTER)

READ_COMMITTED = 1
FOLLOWERS_SERVE_SINCE_VERSION = 11
STRANGER = -(1 << 32)
"""Here, one who says that it is a follower, and may not be one: all that it asks for is denied."""
DEBUGGER = -2
"""The replica id of one who compares replicas (replica-verification): any of them shows it all of its log."""
TELLS_THE_LEADER = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)  # KIP-951

Aborted = Sequence[tuple[int, int]] | None
"""The aborted transactions of a partition's records; None for a reader that takes them too."""


class Replica(NamedTuple):
    """Who fetches: a follower and the life of its broker (KIP-903); with a negative id a consumer, or a debugger."""

    id: int
    broker_epoch: int


class Fetch:
    """One fetch request while it is being answered."""

    __slots__ = (
        "_broker",
        "_cold",
        "_connection",
        "_context",
        "_correlation_id",
        "_deadline_s",
        "_follower",
        "_has_diverged",
        "_has_error",
        "_has_preferred",
        "_is_a_stranger",
        "_is_committed_only",
        "_is_debugger",
        "_is_noted",
        "_looked_at",
        "_max_bytes",
        "_min_bytes",
        "_partitions",
        "_rack",
        "_reads",
        "_replica",
        "_sent",
        "_throttled_bytes",
        "_total_bytes",
        "_unreadable",
        "_version",
        "_wanted",
    )

    def __init__(
        self,
        broker: FetchingBroker,
        connection: Connection,
        request: Any,
        version: int,
        correlation_id: int,
        context: FetchContext,
        replica: Replica,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._version = version
        self._correlation_id = correlation_id
        self._context = context
        wait_s = request.max_wait.total_seconds()
        self._deadline_s = broker.clock.monotonic() + wait_s if wait_s > 0 else 0.0
        """Until when it may wait; 0 where it does not."""
        self._max_bytes: int = min(request.max_bytes, broker.fetch_bytes_max)
        if broker.throttling is not None:
            self._max_bytes = broker.throttling.fetch_bytes_max(connection, self._max_bytes, replica.id)
        self._min_bytes: int = min(request.min_bytes, self._max_bytes)
        self._is_committed_only = request.isolation_level == READ_COMMITTED
        self._replica = replica if replica.id >= 0 else None
        self._is_debugger = replica.id == DEBUGGER
        self._is_a_stranger = replica.id == STRANGER
        self._follower: FollowerSession | None = None
        if self._replica is not None:
            if context.session is not None:
                self._follower = context.session.follower
            else:
                throttle = broker.replication.leader_throttle
                now_s = broker.clock.monotonic()
                self._follower = FollowerSession(replica.id, broker.long_polls, throttle, now_s)
        self._rack: str = ""
        """The consumer's, where it decides who serves it."""
        if broker.selects_by_rack and self._replica is None and version >= FOLLOWERS_SERVE_SINCE_VERSION:
            self._rack = request.rack_id
        self._is_noted = False  # whether the leaders know what this fetch tells of its follower
        self._looked_at: list[WantedPartition] = []  # for a follower, the last time
        self._reads: list[tuple[WantedPartition, Fetched]] = []
        self._partitions: list[Partition] = []  # that could be read
        self._sent: list[tuple[Traffic, int, int]] = []  # to a consumer: bytes and messages, by topic
        self._wanted: list[WantedPartition] = []  # of each of them
        self._total_bytes = self._throttled_bytes = 0
        self._has_error = self._has_diverged = self._has_preferred = False
        self._cold: tuple[Partition, int, int] | None = None
        self._unreadable: list[Partition] = []  # whose cold pages the disk did not give

    @property
    def error(self) -> ErrorCode:
        """Why its session does not go on."""
        return self._context.error

    @property
    def is_large(self) -> bool:
        """Whether it reads so many partitions that others are to be served between. A follower's session has a bound
        of its own."""
        is_bounded = self._follower is not None and self._context.is_incremental
        return len(self._context.partitions) > FETCHED_INLINE_MAX and not is_bounded

    def put_in_line(self, slot: Slot) -> None:
        is_urgent = self._connection.is_of_a_broker
        self._broker.line.put(guarded(self._broker, slot, "Fetch", self.serving(slot)), is_urgent=is_urgent)

    def serving(self, slot: Slot) -> Slices[None]:
        """Read and answer in slices, or wait."""
        try:
            yield from self.reading()
        except BlockingIOError:
            self._broker.tasks.spawn(self.answer_cold(slot), name="cold fetch")
            return
        if self.is_enough():
            slot.fill((yield from self.answering()))
        else:
            self.park(slot)

    # ---- reading ----------------------------------------------------------------------------------------------

    def read(self, *, skip_cold: bool = False) -> None:
        """Read every partition anew. BlockingIOError where a page is not cached (unless that partition is skipped)."""
        whole(self.reading(skip_cold=skip_cold))

    def reading(self, *, skip_cold: bool = False) -> Slices[None]:
        """`read`, with pauses between partitions."""
        self._reads = reads = []
        self._partitions = partitions = []
        self._wanted = []
        self._sent = []
        self._total_bytes = self._throttled_bytes = 0
        self._has_error = self._has_diverged = self._has_preferred = False
        inline_left = INLINE_FETCH_BYTES_MAX
        guard = (
            self._broker.guard if self._replica is None else None
        )  # followers are asked once (`handlers.fetch`)
        denied: dict[TopicRef, ErrorCode] = {}
        for number, wanted in enumerate(self._to_read(), 1):
            if number % PARTITIONS_PER_PAUSE == 0:
                yield
            if guard is not None and (denial := self._denial(guard, wanted.topic, denied)):
                reads.append((wanted, refused(wanted.index, denial, aborted=())))
                continue
            try:
                partition: Partition = self._broker.partition(wanted.topic, wanted.index)
            except KafkaError as error:
                # As in Kafka, partitions that are not in the cluster do not end a wait; those led elsewhere do.
                self._has_error |= error.code is ErrorCode.not_leader_or_follower
                reads.append((wanted, self._refuse(wanted, error.code, aborted=())))
                continue
            try:
                answer = self._read_one(partition, wanted, inline_left)
            except KafkaError as error:
                self._has_error = True
                reads.append((wanted, self._refuse(wanted, error.code)))
                continue
            except BlockingIOError:
                if partition in self._unreadable:
                    self._has_error = True
                    reads.append((wanted, refused(wanted.index, ErrorCode.kafka_storage_error)))
                    continue
                if not skip_cold:
                    raise
                answer = self._answer(partition, wanted.index, b"", self._no_aborted)
            except OSError as error:
                self._broker.note_read_error(partition, error)
                self._has_error = True
                reads.append((wanted, refused(wanted.index, ErrorCode.kafka_storage_error)))
                continue
            records = answer[RECORDS]
            if type(records) is memoryview:
                inline_left -= len(records)
            partitions.append(partition)
            self._wanted.append(wanted)
            if self._follower is not None:
                self._follower.watch(partition, wanted)
            reads.append((wanted, answer))
        self._is_noted = True

    def _denial(self, guard: Guard, topic: TopicRef, known: dict[TopicRef, ErrorCode]) -> ErrorCode:
        """Why a topic is not read. By an id that the cluster does not know nothing is, even while its log is here."""
        denial = known.get(topic)
        if denial is None:
            name = name_of(self._broker.image, topic)
            if self._is_a_stranger:
                denial = READ_TOPIC.error
            elif name is None:
                denial = ErrorCode.unknown_topic_id
            else:
                may_read = guard.allows(self._connection, READ_TOPIC, name)
                denial = ErrorCode.none if may_read else READ_TOPIC.error
            known[topic] = denial
        return denial

    def _to_read(self) -> Sequence[WantedPartition]:
        if self._follower is None or not self._context.is_incremental:
            return self._context.partitions
        self._looked_at = self._follower.to_look_at(self._looked_at)
        return self._looked_at

    def _read_one(self, partition: Partition, wanted: WantedPartition, inline_left: int) -> Fetched:
        error = self._check(partition, max(wanted.current_leader_epoch, NO_EPOCH))
        if error:
            raise KafkaError(error)
        if self._rack and (replica := self._nearest(partition, wanted.fetch_offset)) is not None:
            self._has_preferred = True
            return self._answer(partition, wanted.index, b"", self._no_aborted, replica=replica)
        if wanted.last_fetched_epoch >= 0 and (diverging := _diverging(partition, wanted)) is not None:
            self._has_diverged = True
            return self._answer(partition, wanted.index, b"", self._no_aborted, diverging)
        limit = self._limit_of(partition)
        if wanted.fetch_offset > limit and self._replica is None and not partition.knows_the_end:
            raise KafkaError(ErrorCode.offset_not_available)  # an earlier leader has told of more
        max_bytes = min(wanted.max_bytes, self._max_bytes - self._total_bytes)
        is_throttled = partition.is_throttled_as_leader and self._follower is not None
        if is_throttled and self._is_held_back(partition, wanted):
            self._note(partition, wanted)
            return self._answer(partition, wanted.index, b"", self._no_aborted)
        try:
            part = partition.log.read(
                wanted.fetch_offset,
                max(0, max_bytes),
                below_offset=limit,
                whole_first_batch=self._total_bytes == 0,
            )
            records = self._take(part, inline_left) if part.length else b""
            aborted: Aborted = None
            if self._is_committed_only:
                aborted = partition.log.producing.aborted_in(wanted.fetch_offset, part)
        except BlockingIOError:
            self._cold = (partition, wanted.fetch_offset, max_bytes)
            raise
        self._total_bytes += part.length
        if is_throttled:
            self._throttled_bytes += part.length
        if self._replica is not None:
            self._note(partition, wanted)
        elif part.length:
            self._sent.append((partition.traffic, part.length, part.next_offset - wanted.fetch_offset))
        return self._answer(partition, wanted.index, records, aborted)

    def _note(self, partition: Partition, wanted: WantedPartition) -> None:
        """The leader hears how far its follower is, once."""
        if self._replica is not None and not self._is_noted:
            partition.follower_fetched(
                self._replica.id, self._replica.broker_epoch, wanted.fetch_offset, wanted.log_start_offset
            )

    def _is_held_back(self, partition: Partition, wanted: WantedPartition) -> bool:
        """Whether a throttled partition has something for its follower that it gets later."""
        assert self._replica is not None and self._follower is not None
        log, leader = partition.log, partition.leader
        if (
            leader is None
            or self._replica.id in leader.state.isr
            or not log.log_start_offset <= wanted.fetch_offset < log.next_offset
            or not self._broker.replication.leader_throttle.is_exceeded(self._throttled_bytes)
        ):
            return False
        self._follower.watch(partition, wanted)
        self._follower.hold_back(wanted)
        return True

    def _check(self, partition: Partition, claimed_epoch: int) -> ErrorCode:
        """Whether this broker may serve this reader now."""
        if self._replica is None:
            may_follow = self._version >= FOLLOWERS_SERVE_SINCE_VERSION or self._is_debugger
            if may_follow and partition.is_followed_here:
                return partition.check_held(claimed_epoch)
            return partition.check_readable(claimed_epoch)
        error = partition.check_readable(claimed_epoch)
        is_refused = not error and not partition.is_followed_by(*self._replica)
        return ErrorCode.not_leader_or_follower if is_refused else error

    def _nearest(self, partition: Partition, fetch_offset: int) -> int | None:
        """The follower in the consumer's rack that can serve it better than this leader."""
        broker, leader = self._broker, partition.leader
        if leader is None or leader.is_alone:
            return None
        brokers, listener = broker.image.brokers, self._connection.listener_name

        def rack_of(node_id: int) -> str | None:
            info = brokers.get(node_id)
            return None if info is None or listener not in info.listeners else info.rack

        return nearest_replica(leader, broker.node_id, self._rack, fetch_offset, rack_of)

    def _limit_of(self, partition: Partition) -> int:
        """Up to where this reader may see."""
        if self._replica is not None or self._is_debugger:
            return partition.log.next_offset
        return partition.last_stable_offset if self._is_committed_only else partition.high_watermark

    def _take(self, part: Slice, inline_left: int) -> memoryview | Slice:
        assert part.file is not None
        if part.length <= inline_left:
            return memoryview(part.file.pread_nowait(part.length, part.position))
        if not part.file.is_cached(part.position, part.length):
            raise BlockingIOError
        return part

    @property
    def _no_aborted(self) -> Aborted:
        return () if self._is_committed_only else None

    def _answer(
        self,
        partition: Partition,
        index: int,
        records: Records,
        aborted: Aborted,
        diverging: tuple[int, int] | None = None,
        replica: int = NO_REPLICA,
    ) -> Fetched:
        high_watermark, stable = partition.high_watermark, partition.last_stable_offset
        start = partition.log.log_start_offset
        return index, 0, high_watermark, stable, start, aborted, replica, diverging, None, records

    def _refuse(
        self, wanted: WantedPartition, error: ErrorCode, *, aborted: tuple[()] | None = None
    ) -> Fetched:
        leader = None
        if error in TELLS_THE_LEADER and self._version >= LEADER_HINTS_FROM:
            leader = current_leader(self._broker, wanted.topic, wanted.index)
        return refused(wanted.index, error, aborted=aborted, leader=leader)

    def is_enough(self) -> bool:
        """Whether there is nothing to wait for."""
        return (
            not self._deadline_s
            or self._total_bytes >= self._min_bytes
            or self._has_error
            or self._has_diverged
            or self._has_preferred
            or not (self._partitions if self._follower is None else self._follower.count)
            or (self._follower is not None and bool(self._follower.news))
        )

    # ---- waiting ----------------------------------------------------------------------------------------------

    def park(self, slot: Slot) -> None:
        self._broker.metrics.fetches_parked += 1
        self._park(slot, self._deadline_s)

    def _park(self, slot: Slot, deadline_s: float) -> None:
        broker = self._broker
        missing_bytes = self._min_bytes - self._total_bytes
        if self._is_committed_only and any(p.last_stable_offset < p.high_watermark for p in self._partitions):
            missing_bytes = 1  # a marker of a few bytes may make all that lies before it readable
        follower = self._follower
        places = [p.watchers for p in self._partitions] if follower is None else ()
        if follower is not None and self._has_untold_high_watermark():
            deadline_s = min(deadline_s, broker.clock.monotonic() + HIGH_WATERMARK_DELAY_S)
        complete = counted(self._connection.meter, broker.clock, partial(self._complete, slot))
        poll = LongPoll(complete, deadline_s, missing_bytes, places)
        slot.on_cancel = partial(broker.long_polls.cancel, poll)
        if follower is not None:
            follower.poll = poll
            slot.hurry = partial(broker.long_polls.hurry, poll)
        broker.long_polls.park(poll)

    def _complete(self, slot: Slot, poll: LongPoll) -> None:
        if self.is_large:
            completing = self._completing(slot, poll)
            self._broker.line.put(guarded(self._broker, slot, "Fetch", completing))
            return
        try:
            if poll.has_news or (self._replica is not None and self._has_untold_high_watermark()):
                self.read()
        except BlockingIOError:
            self._broker.tasks.spawn(self.answer_cold(slot), name="cold fetch")
            return
        if self._must_wait_on(poll):
            self._park(slot, poll.deadline_s)
        else:
            slot.fill(self.answer())

    def _completing(self, slot: Slot, poll: LongPoll) -> Slices[None]:
        """`_complete` in slices."""
        try:
            if poll.has_news:
                yield from self.reading()
        except BlockingIOError:
            self._broker.tasks.spawn(self.answer_cold(slot), name="cold fetch")
            return
        if self._must_wait_on(poll):
            self._park(slot, poll.deadline_s)
        else:
            slot.fill((yield from self.answering()))

    def _has_untold_high_watermark(self) -> bool:
        """Whether a follower does not know yet how far its log is committed."""
        return any(
            partition.high_watermark > wanted.sent_high_watermark
            for partition, wanted in zip(self._partitions, self._wanted, strict=True)
        )

    def _must_wait_on(self, poll: LongPoll) -> bool:
        """Whether all that has come belongs to transactions that are still open."""
        return (
            self._is_committed_only
            and poll.has_news
            and not self._total_bytes
            and not self.is_enough()
            and self._broker.clock.monotonic() < poll.deadline_s
        )

    async def answer_cold(self, slot: Slot) -> None:
        self._broker.metrics.cold_reads += 1
        pace = self._connection.pace()
        for _ in range(COLD_READ_RETRIES_MAX):
            assert self._cold is not None
            partition, offset, max_bytes = self._cold
            try:
                await self._warm(partition, offset, max_bytes)
                await in_line(pace, self.reading())
                break
            except BlockingIOError:
                continue
            except KafkaError:  # the offset went away meanwhile: the read says so
                await in_line(pace, self.reading(skip_cold=True))
                break
        else:
            await in_line(pace, self.reading(skip_cold=True))
        if slot.is_wanted:
            slot.fill(await in_line(pace, self.answering()))

    async def _warm(self, partition: Partition, offset: int, max_bytes: int) -> None:
        try:
            await partition.log.warm(offset, max_bytes)
        except OSError as error:
            self._broker.note_read_error(partition, error)
            self._unreadable.append(partition)

    # ---- answering --------------------------------------------------------------------------------------------

    def refuse(self) -> Answer:
        self._broker.metrics.of_api("Fetch").note_error(self.error)
        return pack_fetch_response(self._correlation_id, self._version, 0, self.error, NO_SESSION, [])

    def _keep_follower(self, follower: FollowerSession) -> None:
        """A follower's session is kept with what was read for it; without one, nothing is."""
        if self._context.session is not None:
            self._broker.fetch_sessions.give_to(self._context.session, follower)
            for wanted, _ in self._reads:
                follower.name(wanted)
        else:
            follower.close()

    def answer(self) -> Answer:
        return whole(self.answering())

    def answering(self) -> Slices[Answer]:
        """`answer`, with pauses between partitions."""
        broker, context = self._broker, self._context
        if broker.throttling is not None and self._replica is None:
            throttle_ms = broker.throttling.fetched(self._connection, self._total_bytes)
            if throttle_ms:
                return self._nothing_yet(throttle_ms)
        if context.is_incremental:
            assert context.session is not None
            session_id = context.session.id
            reads = yield from with_news(self._reads)
            if self._total_bytes and self._follower is None:
                rotate(context.session, [wanted for wanted, answer in reads if answer[RECORDS]])
        else:
            session_id = broker.fetch_sessions.keep(context, self._version, broker.clock.monotonic())
            reads = self._reads
            if session_id:
                yield from with_news(reads)
            if self._follower is not None:
                self._keep_follower(self._follower)
        if self._follower is not None:
            note_answered(self._follower, self._reads)
            if self._throttled_bytes:
                broker.replication.leader_throttle.record(self._throttled_bytes)
        self._note_traffic()
        endpoints: Sequence[NodeEndpoint] = ()
        if self._has_error and self._replica is None:  # brokers know where the others are
            endpoints = endpoints_of(broker, self._connection, (answer[LEADER] for _, answer in reads))
        pieces = yield from packing_fetch_response(
            self._correlation_id, self._version, 0, 0, session_id, by_topic(reads), endpoints
        )
        first = pieces[0]
        return first if len(pieces) == 1 and isinstance(first, bytes) else pieces

    def _nothing_yet(self, throttle_ms: int) -> Answer:
        """To a consumer that is over a quota: it asks again. Its session stays as it is, and a new one is not begun."""
        session = self._context.session if self._context.is_incremental else None
        session_id = NO_SESSION if session is None else session.id
        return pack_fetch_response(self._correlation_id, self._version, throttle_ms, 0, session_id, [])

    def _note_traffic(self) -> None:
        """What goes out now: what was read before, and waited for more, was not sent."""
        metrics = self._broker.metrics
        metrics.fetched_bytes += self._total_bytes
        for traffic, size, messages in self._sent:
            traffic.bytes_out += size
            if messages > 0:  # else it is not known
                traffic.messages_out += messages
        if len(self._partitions) < len(self._reads):  # some are refused
            figures = metrics.of_api("Fetch")
            for _, (_, error, *_) in self._reads:
                if error:
                    figures.note_error(error)


def _diverging(partition: Partition, wanted: WantedPartition) -> tuple[int, int] | None:
    """Where the reader's log leaves ours, if it does (KIP-595): it names the epoch of its last record."""
    epoch, next_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == NO_EPOCH or wanted.fetch_offset < partition.log.log_start_offset:
        raise KafkaError(ErrorCode.offset_out_of_range)
    if epoch < wanted.last_fetched_epoch or next_offset < wanted.fetch_offset:
        return epoch, next_offset
    return None
