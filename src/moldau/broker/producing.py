"""One produce request while it is answered: look at its batches, append them, wait until they are safe.
`handlers/produce` tells its life.

Each step over partitions is a generator with pauses between them: in one go for few, in line for many (`runtime.line`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.invariant import InvariantBroken
from moldau.base.limits import PRODUCED_INLINE_MAX
from moldau.broker.connection import Connection
from moldau.broker.dispatch import guarded
from moldau.broker.guard import Guard, name_of
from moldau.broker.interface import ProducingBroker
from moldau.broker.leader_hints import current_leader, endpoints_of
from moldau.broker.slot import Answer, Slot
from moldau.broker.verification import as_produce_error, verify
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.log.appended import Appended
from moldau.log.producers import Verification
from moldau.records.validate import (
    Looked,
    RecordError,
    Refused,
    is_transactional,
    look_at,
    refuse_framing,
    transactional_batch,
    wants_looking_at,
)
from moldau.replication.partition import Partition
from moldau.replication.turns import Turn
from moldau.runtime.line import Slices, in_line, whole
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.produce import (
    LEADER_HINTS_FROM,
    NULL_RECORDS,
    Produced,
    ProducedPartition,
    TopicRecords,
    packing_produce_response,
)

log = logging.getLogger(__name__)

WRITE_ID = right("Produce", Operation.WRITE, Resource.TRANSACTIONAL_ID)
WRITE_TOPIC = right("Produce", Operation.WRITE, Resource.TOPIC)

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
ZSTD_SINCE_VERSION = 7
ABORTABLE_SINCE_VERSION = 11
ADDS_PARTITIONS_SINCE_VERSION = 12  # KIP-890
UNKNOWN = -1
PARTITIONS_PER_PAUSE = 32

Answers = list[tuple[str | bytes, list[Produced]]]


def refused(
    broker: ProducingBroker,
    index: int,
    error: ErrorCode,
    message: str | None = None,
    log_start_offset: int = UNKNOWN,
) -> Produced:
    broker.metrics.produce_refused += 1
    return index, error, UNKNOWN, UNKNOWN, log_start_offset, (), message, None


def note_errors(broker: ProducingBroker, answers: Answers) -> None:
    figures = broker.metrics.of_api("Produce")
    for _, partitions in answers:
        for _, error, *_ in partitions:
            if error:
                figures.note_error(error)


def throttle_ms_of(
    broker: ProducingBroker, connection: Connection, size: int, *, is_answered: bool = True
) -> int:
    """How long the producer of a request of this size waits."""
    throttling = broker.throttling
    return 0 if throttling is None else throttling.produced(connection, size, is_answered=is_answered)


def packed_refusals(
    broker: ProducingBroker,
    connection: Connection,
    correlation_id: int,
    version: int,
    answers: Answers,
    throttle_ms: int,
) -> bytes:
    return whole(packing_refusals(broker, connection, correlation_id, version, answers, throttle_ms))


def packing_refusals(
    broker: ProducingBroker,
    connection: Connection,
    correlation_id: int,
    version: int,
    answers: Answers,
    throttle_ms: int,
) -> Slices[bytes]:
    """With the leaders of partitions that are led elsewhere (KIP-951)."""
    note_errors(broker, answers)
    leaders: dict[tuple[str | bytes, int], tuple[int, int]] = {}
    if version >= LEADER_HINTS_FROM:
        for topic, partitions in answers:
            for index, error, *_ in partitions:
                if error == ErrorCode.not_leader_or_follower:
                    leaders[topic, index] = current_leader(broker, topic, index)
    if not leaders:
        return (yield from packing_produce_response(correlation_id, version, answers, throttle_ms))
    told: Answers = [
        (
            topic,
            [
                one._replace(current_leader=leaders.get((topic, one.partition)))
                for one in map(ProducedPartition._make, partitions)
            ],
        )
        for topic, partitions in answers
    ]
    endpoints = endpoints_of(broker, connection, leaders.values())
    return (yield from packing_produce_response(correlation_id, version, told, throttle_ms, endpoints))


def refusal_as_a_whole(
    frame: memoryview, topics: list[TopicRecords], transactional_id: str | None
) -> Slices[Refused | None]:
    """Why nothing of a request is taken: Kafka looks at every first batch before it takes any of them."""
    try:
        for _, wanteds in topics:
            for number, (_, start, stop) in enumerate(wanteds, 1):
                if number % PARTITIONS_PER_PAUSE == 0:
                    yield
                if start != NULL_RECORDS and is_transactional(frame, start, stop):
                    if transactional_id is None:
                        return Refused(
                            ErrorCode.transactional_id_authorization_failed,
                            "a batch of a transaction without a transactional id",
                        )
                    return None
    except Refused as refusal:
        return refusal
    return None


def has_transactional(frame: memoryview, topics: list[TopicRecords]) -> Slices[bool]:
    """Whether a batch belongs to a transaction. All have been looked at before (`refusal_as_a_whole`)."""
    for _, wanteds in topics:
        for number, (_, start, stop) in enumerate(wanteds, 1):
            if number % PARTITIONS_PER_PAUSE == 0:
                yield
            if start != NULL_RECORDS and is_transactional(frame, start, stop):
                return True
    return False


class Produce:
    """One produce request while it is being answered."""

    __slots__ = (
        "_acks",
        "_broker",
        "_connection",
        "_correlation_id",
        "_denied",
        "_frame",
        "_guards",
        "_is_plain",
        "_looked",
        "_now_ms",
        "_producer",
        "_timeout_ms",
        "_transactional_id",
        "_unverified",
        "_version",
        "_waiting",
        "_zstd_allowed",
        "is_refused",
        "refusal",
        "slot",
    )

    def __init__(
        self,
        broker: ProducingBroker,
        connection: Connection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._frame = frame
        self._version = version
        self._correlation_id = correlation_id
        self._zstd_allowed = version >= ZSTD_SINCE_VERSION
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._now_ms = broker.clock.wall_ms()
        self.slot: Slot | None = None  # where its answer goes, if it is not given at once
        self._looked: dict[tuple[str | bytes, int], Looked] = {}  # of batches that were looked at aside
        self._guards: dict[TopicPartition, Verification] = {}  # for the first batches of a transaction
        self._unverified: dict[TopicPartition, ErrorCode] = {}
        self._is_plain = False  # nothing but a partition or its batch can be in the way
        self.refusal: Refused | None = None  # of the request as a whole
        self.is_refused = False
        self._denied: Answers = []  # topics that its sender may not write to
        self._waiting: list[
            tuple[str | bytes, Partition, Appended]
        ] = []  # not safe enough to be acknowledged

    def asking(self, guard: Guard, topics: list[TopicRecords]) -> Slices[list[TopicRecords]]:
        """What of them its sender may write to. The others are answered beside; no more is done for them. By an id
        that the cluster does not know nobody may, even while its log is here.
        """
        if self.refusal is None and self._transactional_id is not None:
            is_transactional = yield from has_transactional(self._frame, topics)
            if is_transactional and not guard.allows(self._connection, WRITE_ID, self._transactional_id):
                self.refusal = Refused(WRITE_ID.error, WRITE_ID.message)
        if self.refusal is not None:
            return topics
        allowed: list[TopicRecords] = []
        for topic, wanteds in topics:
            name = name_of(self._broker.image, topic)
            if name is not None and guard.allows(self._connection, WRITE_TOPIC, name):
                allowed.append((topic, wanteds))
            else:
                error = ErrorCode.unknown_topic_id if name is None else WRITE_TOPIC.error
                denied = [self._refuse(index, error, None) for index, _, _ in wanteds]
                self._denied.append((topic, denied))
            yield
        return allowed

    def answering(self, topics: list[TopicRecords]) -> Slices[Answer | None]:
        """Append everything; None where the answer waits for disks or replicas, or there is none."""
        answers = yield from self._appending(topics)
        if self.is_refused and self.refusal is None:
            # A lone batch pays for this look only now: refused by itself, its request may deserve another code.
            self.refusal = yield from refusal_as_a_whole(self._frame, topics, self._transactional_id)
            if self.refusal is not None:
                answers = yield from self._appending(topics)
        if self._acks == ACKS_NONE:
            if self.is_refused:
                note_errors(self._broker, answers)
                self._connection.close("a batch sent with acks=0 was refused")
            throttle_ms_of(self._broker, self._connection, len(self._frame), is_answered=False)
            return None
        if not self._waiting:
            return (yield from self._packing(answers))
        self.slot = self.slot or self._connection.park(is_produce=True)
        yield from self._answer_when_safe(self.slot, answers)
        return None

    def _answer_when_safe(self, slot: Slot, answers: Answers) -> Slices[None]:
        """Answer when each batch is flushed and replicated as acks and its topic ask for, or cannot be."""
        deadline_s = self._broker.clock.monotonic() + self._timeout_ms / 1000
        errors: dict[tuple[str | bytes, int], ErrorCode] = {}
        left = len(self._waiting)

        def on_done(place: tuple[str | bytes, int], error: ErrorCode) -> None:
            nonlocal left
            left -= 1
            if error:
                errors[place] = error
            if not left:
                self._fill(slot, self._with_errors(answers, errors) if errors else answers)

        for number, (topic, partition, appended) in enumerate(self._waiting, 1):
            if number % PARTITIONS_PER_PAUSE == 0:
                yield
            self._broker.metrics.flushes += appended.flush_due
            done = partial(on_done, (topic, partition.topic_partition.partition))
            acks_all = self._acks == ACKS_ALL
            partition.when_acknowledged(appended, deadline_s, done, acks_all=acks_all)

    def _fill(self, slot: Slot, answers: Answers) -> None:
        if len(self._waiting) <= PRODUCED_INLINE_MAX:
            slot.fill(whole(self._packing(answers)))
            return

        def packing() -> Slices[None]:
            slot.fill((yield from self._packing(answers)))

        self._broker.line.put(guarded(self._broker, slot, "Produce", packing()))

    def _with_errors(self, answers: Answers, errors: dict[tuple[str | bytes, int], ErrorCode]) -> Answers:
        """The answers, where what was appended cannot be acknowledged after all."""

        def after_all(topic: str | bytes, produced: Produced) -> Produced:
            index, *_ = produced
            error = errors.get((topic, index))
            return self._refuse(index, error, None) if error else produced

        return [
            (topic, [after_all(topic, produced) for produced in partitions]) for topic, partitions in answers
        ]

    def _packing(self, answers: Answers) -> Slices[bytes]:
        throttle_ms = throttle_ms_of(self._broker, self._connection, len(self._frame))
        if self.is_refused:
            return packing_refusals(
                self._broker, self._connection, self._correlation_id, self._version, answers, throttle_ms
            )
        return packing_produce_response(self._correlation_id, self._version, answers, throttle_ms)

    # ---- waiting for a turn -----------------------------------------------------------------------------------

    def must_wait_for(self, topics: list[TopicRecords]) -> Slices[list[Partition]]:
        """The request's partitions, where an earlier one is waiting or a batch is to be looked at aside; else none."""
        partitions = []
        is_waiting = False
        for topic, wanteds in topics:
            for number, (index, start, stop) in enumerate(wanteds, 1):
                if number % PARTITIONS_PER_PAUSE == 0:
                    yield
                with suppress(KafkaError):
                    partition = self._broker.partition(topic, index)
                    partitions.append(partition)
                    is_waiting |= self._connection in partition.turns
                    is_waiting |= self._wants_looking_at(partition, topic, start, stop)
        if self._transactional_id is not None:
            is_waiting |= self._begin_verification(topics)
        return partitions if is_waiting else []

    def answer_in_turn(self, topics: list[TopicRecords], partitions: list[Partition]) -> None:
        """Answer once the batches are looked at and all who came earlier have appended theirs."""
        self._frame = self._connection.lasting(self._frame)
        self.slot = self.slot or self._connection.park(is_produce=True, held_bytes=len(self._frame))
        self._connection.hold(len(self._frame))
        turn = Turn(self._connection, partitions)
        self._broker.tasks.spawn(self._answer_in_turn(topics, turn), name="produce in turn")

    async def _answer_in_turn(self, topics: list[TopicRecords], turn: Turn) -> None:
        slot = self.slot
        assert slot is not None
        try:
            await self._look_aside(topics)
            await self._verify(topics)
            await turn.come()
            self._now_ms = self._broker.clock.wall_ms()
            while await self._look_aside(topics):  # the topic may have been configured meanwhile
                pass
            answer = await in_line(self._connection.pace(), self.answering(topics))
            if answer is not None or self._acks == ACKS_NONE:
                slot.fill(answer)
        except InvariantBroken as error:
            self._broker.fail(error)
        except Exception:
            log.exception("a produce request failed; closing the connection")
            slot.abandon("a request failed")
        finally:
            turn.end()
            self._connection.release(len(self._frame))

    # ---- transactions -----------------------------------------------------------------------------------------

    def _begin_verification(self, topics: list[TopicRecords]) -> bool:
        """Whether a batch may open a transaction in its partition, so that the coordinator must be asked."""
        producers = set()
        self._unverified = {}
        for topic, wanteds in topics:
            for index, start, stop in wanteds:
                batch = transactional_batch(self._frame, start, stop)
                if batch is not None:
                    producers.add(batch[:2])
                    self._take_guard(topic, index, *batch)
        if len(producers) > 1:
            text = "Transactional records contained more than one producer ID"
            self.refusal = Refused(ErrorCode.invalid_producer_id_mapping, text, message=text)
        if not self._guards or self.refusal is not None:
            return False
        self._producer = producers.pop()
        return True

    def _take_guard(
        self, topic: str | bytes, index: int, producer_id: int, epoch: int, first_sequence: int
    ) -> None:
        with suppress(KafkaError):  # no such partition: said when it is to be appended to
            partition: Partition = self._broker.partition(topic, index)
            if partition.refusal:
                return
            begin = partition.log.producing.begin_verification
            try:
                guard = begin(producer_id, epoch, first_sequence, self._adds_partitions)
            except KafkaError as refusal:
                self._unverified[partition.topic_partition] = refusal.code
                return
            if guard is not None:
                self._guards[partition.topic_partition] = guard

    @property
    def _adds_partitions(self) -> bool:
        """The producer leaves it to the broker to add partitions to its transactions."""
        return self._version >= ADDS_PARTITIONS_SINCE_VERSION

    async def _verify(self, topics: list[TopicRecords]) -> None:
        if not self._guards or not (
            self._adds_partitions or self._broker.config["transaction.partition.verification.enable"]
        ):
            return
        assert self._transactional_id is not None
        version = EPOCH_PER_TRANSACTION if self._adds_partitions else 0
        add = Add(self._transactional_id, *self._producer, tuple(self._guards), version)
        outcomes = await verify(self._broker, add, lambda: self._begin_verification(topics))
        self._unverified |= {place: error for place, error in outcomes.items() if error}

    def _check_verified(self, place: TopicPartition) -> None:
        error = self._unverified.get(place)
        if error is not None:
            code, message = as_produce_error(
                error,
                own_epochs=self._adds_partitions,
                knows_abortable=self._version >= ABORTABLE_SINCE_VERSION,
            )
            raise KafkaError(code, message)

    # ---- looking at batches aside -----------------------------------------------------------------------------

    def _wants_looking_at(self, partition: Partition, topic: str | bytes, start: int, stop: int) -> bool:
        if partition.refusal or partition.is_internal:
            return False  # and so is the batch, whatever it holds
        rules = partition.log.rules
        key = topic, partition.topic_partition.partition
        if (looked := self._looked.get(key)) is not None:
            if looked.rules == rules:
                return False
            del self._looked[key]
        return wants_looking_at(self._frame, start, stop, rules, self._now_ms)

    async def _look_aside(self, topics: list[TopicRecords]) -> bool:
        """Have all batches looked at that want it; whether there were any."""
        has_looked = False
        for topic, wanteds in topics:
            for index, start, stop in wanteds:
                with suppress(KafkaError):
                    partition: Partition = self._broker.partition(topic, index)
                    if self._wants_looking_at(partition, topic, start, stop):
                        batch, log = self._frame[start:stop], partition.log
                        look = partial(look_at, batch, log.rules, self._now_ms, self._zstd_allowed)
                        self._looked[topic, index] = await log.aside.run(self._connection, look)
                        has_looked = True
        return has_looked

    # ---- appending --------------------------------------------------------------------------------------------

    def _appending(self, topics: list[TopicRecords]) -> Slices[Answers]:
        self._is_plain = ACKS_ALL <= self._acks <= ACKS_LEADER and not self._unverified
        if self.refusal is None:
            answers: Answers = []
            for topic, wanteds in topics:
                produced: list[Produced] = []
                for wanted in wanteds:
                    produced.append(self._append(topic, *wanted))
                    yield
                answers.append((topic, produced))
            return answers + self._denied if self._denied else answers
        error, message = self.refusal.code, self.refusal.message
        return [
            (topic, [self._refuse(index, error, message) for index, _, _ in wanteds])
            for topic, wanteds in topics
        ]

    def _append(self, topic: str | bytes, index: int, start: int, stop: int) -> Produced:
        """Append one partition's batch; its answer, once it is as safe as acks ask for."""
        try:
            partition: Partition = self._broker.partition(topic, index)
            if not (partition.is_open and self._is_plain):
                error = self._why_not(partition, start, stop)
                if error:
                    return self._refuse(index, error, None)
            appended = self._append_to(partition, topic, start, stop)
        except (KafkaError, Refused) as refusal:
            return self._refuse(index, refusal.code, refusal.message)
        except OSError as failure:  # the log's manager says it, once for many
            log.debug("cannot append to %s-%d: %s", topic, index, failure)
            return self._refuse(index, ErrorCode.kafka_storage_error, None)
        error, base_offset, last_offset, append_time_ms, log_start_offset, message, errors, _, flush_due = (
            appended
        )
        if error:
            return self._refuse(index, error, message, log_start_offset, errors)
        if flush_due or (self._acks == ACKS_ALL and partition.high_watermark <= last_offset):
            self._waiting.append((topic, partition, appended))
        return index, 0, base_offset, append_time_ms, log_start_offset, (), None, None

    def _why_not(self, partition: Partition, start: int, stop: int) -> ErrorCode:
        """Why nothing is appended to a partition, whatever is in the batch. KafkaError and Refused say more."""
        if self._unverified:
            self._check_verified(partition.topic_partition)
        if not ACKS_ALL <= self._acks <= ACKS_LEADER:
            refuse_framing(self._frame, start, stop)
            return ErrorCode.invalid_required_acks
        if partition.is_internal:
            return ErrorCode.invalid_topic_exception
        if partition.refusal:
            return partition.refusal
        if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
            return ErrorCode.not_enough_replicas
        return ErrorCode.none

    def _append_to(self, partition: Partition, topic: str | bytes, start: int, stop: int) -> Appended:
        """Append the batch, or what the look at it has made of it, with its guard."""
        place, batch = partition.topic_partition, self._frame
        looked = self._looked.get((topic, place.partition)) if self._looked else None
        if looked is not None and looked.recompressed is not None:
            batch, start, stop = memoryview(looked.recompressed), 0, len(looked.recompressed)
        guard = self._guards.get(place) if self._guards else None
        appended = partition.append(batch, start, stop, self._now_ms, self._zstd_allowed, guard, looked)
        if not appended.error and not appended.duplicate:
            traffic = partition.traffic
            traffic.batches_in += 1
            traffic.bytes_in += stop - start
            traffic.messages_in += appended.last_offset - appended.base_offset + 1
        return appended

    def _refuse(
        self,
        index: int,
        error: ErrorCode,
        message: str | None,
        log_start_offset: int = UNKNOWN,
        record_errors: Sequence[RecordError] = (),
    ) -> Produced:
        self.is_refused = True
        self._broker.metrics.produce_refused += 1
        shown = tuple((record.batch_index, record.message) for record in record_errors)
        return index, error, UNKNOWN, UNKNOWN, log_start_offset, shown, message, None
