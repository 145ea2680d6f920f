"""Produce (0): append record batches to partitions. L5, L7, P1-P4.

The life of a produce: the request is parsed where it was received; each batch is checked, gets its offset written in
place and is appended to the page cache by the partition's log; the answer leaves at once, or, where the topic's flush
policy asks for it, after the sync that covers the batch. Long polls on the partition are woken after the answer.
A batch that is to get its topic's own compression gets it in a thread, and for the first batch of a transaction its
coordinator is asked (`broker.verification`); the request, and those that its connection sends to the same partition
after it, wait for their turn (`replication.turns`).

Kafka advertises version 0 for the sake of an old librdkafka and serves 3 and up; so does Moldau. With acks=0 there is
no answer; a refused batch then ends the connection, which is the only way to tell the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.invariant import InvariantBroken
from moldau.broker.connection import Answer, Connection, Slot
from moldau.broker.verification import as_produce_error, verify
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.log.producers import Verification
from moldau.records.batch import ATTRIBUTES_POSITION as FLAGS
from moldau.records.batch import HEADER_BYTES, TRANSACTIONAL
from moldau.records.validate import (
    RecordError,
    Refused,
    is_transactional,
    refuse_framing,
    transactional_batch,
)
from moldau.replication.partition import Partition
from moldau.replication.turns import Turn
from moldau.wire.produce import (
    NULL_RECORDS,
    PartitionRecords,
    Produced,
    TopicRecords,
    pack_lone_produced,
    pack_produce_response,
    parse_lone_batch,
    parse_produce,
)

log = logging.getLogger(__name__)

API_KEY = 0
VERSIONS = (3, 13)
ADVERTISED_MIN_VERSION = 0

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
ZSTD_SINCE_VERSION = 7
ABORTABLE_SINCE_VERSION = 11
ADDS_PARTITIONS_SINCE_VERSION = 12  # KIP-890
UNKNOWN = -1
DECIDED_BY_THE_LOG = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.kafka_storage_error,
    }
)
"""Refusals of a batch that was found to be good, and may have its time of append in it already."""

Answers = list[tuple[str | bytes, list[Produced]]]


def serve(
    broker: Any, connection: Connection, frame: memoryview, position: int, version: int, correlation_id: int
) -> Answer | None:
    lone = parse_lone_batch(frame, position, version)
    if lone is not None and lone[4] - lone[3] >= HEADER_BYTES and frame[lone[3] + FLAGS] & TRANSACTIONAL:
        lone = None  # without a transactional id: refused as a whole
    if lone is not None:
        answer = _append_lone(broker, frame, version, correlation_id, *lone)
        if answer is not None:
            return answer
    transactional_id, acks, _timeout_ms, topics = parse_produce(frame, position, version)
    produce = Produce(broker, connection, frame, version, correlation_id, acks, transactional_id)
    if lone is None:
        produce.refusal = _refusal_as_a_whole(frame, topics, transactional_id)
        topics = _last_of_each(topics)
    if produce.refusal is None and (partitions := produce.must_wait_for(topics)):
        produce.answer_in_turn(topics, partitions)
        return None
    return produce.answer(topics)


def _append_lone(
    broker: Any,
    frame: memoryview,
    version: int,
    correlation_id: int,
    acks: int,
    topic: str | bytes,
    index: int,
    start: int,
    stop: int,
) -> bytes | None:
    """One batch for a partition where nothing stands in its way: nearly all requests, straight through.

    None where it was not appended: the general way finds out again why, and says so.
    """
    partitions = broker.partitions_of.get(topic)
    if partitions is None or not 0 <= index < len(partitions):
        return None
    partition: Partition = partitions[index]
    partition_log = partition.log
    if (acks != ACKS_ALL and acks != ACKS_LEADER) or not partition.is_whole:
        return None
    if not partition_log.is_straight or partition.turns:
        return None
    try:
        error, base_offset, last_offset, append_time_ms, log_start_offset, message, *_ = partition_log.append(
            frame, start, stop, partition.leader_epoch, broker.clock.wall_ms(), version >= ZSTD_SINCE_VERSION
        )
    except OSError:  # not to be tried again: the batch may have its offset, and its time of append, already
        refused = _refused(broker, index, ErrorCode.kafka_storage_error)
        return pack_produce_response(correlation_id, version, [(topic, [refused])])
    if error:
        if error not in DECIDED_BY_THE_LOG:
            return None
        refused = _refused(broker, index, error, message, log_start_offset)
        return pack_produce_response(correlation_id, version, [(topic, [refused])])
    metrics = broker.metrics
    metrics.produced_batches += 1
    metrics.produced_bytes += stop - start
    metrics.produced_messages += last_offset - base_offset + 1
    partition.advance_high_watermark(last_offset + 1)
    if partition.watchers:
        broker.long_polls.on_growth(partition, stop - start)
    return pack_lone_produced(
        correlation_id, version, topic, index, base_offset, append_time_ms, log_start_offset
    )


def _refused(
    broker: Any, index: int, error: ErrorCode, message: str | None = None, log_start_offset: int = UNKNOWN
) -> Produced:
    broker.metrics.produce_refused += 1
    return index, error, UNKNOWN, UNKNOWN, log_start_offset, (), message, None


def _last_of_each(topics: list[TopicRecords]) -> list[TopicRecords]:
    """As Kafka: of a partition that is named twice the last batch counts, a topic without partitions is left out."""
    merged: dict[str | bytes, dict[int, PartitionRecords]] = {}
    for topic, wanteds in topics:
        for wanted in wanteds:
            merged.setdefault(topic, {})[wanted[0]] = wanted
    return [(topic, list(wanteds.values())) for topic, wanteds in merged.items()]


def _refusal_as_a_whole(
    frame: memoryview, topics: list[TopicRecords], transactional_id: str | None
) -> Refused | None:
    """Why nothing of a request is taken: Kafka looks at every first batch before it takes any of them."""
    try:
        for _, wanteds in topics:
            for _, start, stop in wanteds:
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


class Produce:
    """One produce request while it is being answered."""

    __slots__ = (
        "_acks",
        "_broker",
        "_connection",
        "_correlation_id",
        "_frame",
        "_guards",
        "_now_ms",
        "_producer",
        "_recompressed",
        "_slot",
        "_transactional_id",
        "_unflushed",
        "_unsafe",
        "_unverified",
        "_version",
        "_zstd_allowed",
        "is_refused",
        "refusal",
    )

    def __init__(
        self,
        broker: Any,
        connection: Connection,
        frame: memoryview,
        version: int,
        correlation_id: int,
        acks: int,
        transactional_id: str | None,
    ) -> None:
        self._broker = broker
        self._connection = connection
        self._frame = frame
        self._version = version
        self._correlation_id = correlation_id
        self._zstd_allowed = version >= ZSTD_SINCE_VERSION
        self._acks = acks
        self._transactional_id = transactional_id
        self._now_ms = broker.clock.wall_ms()
        self._slot: Slot | None = None
        self._recompressed: dict[tuple[str | bytes, int], memoryview] = {}
        self._guards: dict[TopicPartition, Verification] = {}  # for the first batches of a transaction
        self._unverified: dict[TopicPartition, ErrorCode] = {}
        self.refusal: Refused | None = None  # of the request as a whole
        self.is_refused = False
        self._unflushed: list[tuple[Partition, int, int]] = []  # with the next offset and the bytes added
        self._unsafe: set[tuple[bytes | str, int]] = set()  # whose sync failed

    def answer(self, topics: list[TopicRecords]) -> Answer | None:
        """Append everything now; None where the answer waits for the disk, or there is none."""
        answers = self.answers(topics)
        if self.is_refused and self.refusal is None:
            # A lone batch pays for this look only now: refused by itself, its request may deserve another code.
            self.refusal = _refusal_as_a_whole(self._frame, topics, self._transactional_id)
            if self.refusal is not None:
                answers = self.answers(topics)
        if self._acks == ACKS_NONE:
            self.flush(lambda: None)
            if self.is_refused:
                self._connection.close("a batch sent with acks=0 was refused")
            return None
        if not self._unflushed:
            return self._packed(answers)
        slot = self._slot = self._slot or self._connection.park(is_produce=True)
        self.flush(lambda: slot.fill(self._packed(self.flushed(answers))))
        return None

    def _packed(self, answers: Answers) -> bytes:
        return pack_produce_response(self._correlation_id, self._version, answers)

    # ---- waiting for a turn -----------------------------------------------------------------------------------

    def must_wait_for(self, topics: list[TopicRecords]) -> list[Partition]:
        """The request's partitions, where an earlier one is waiting or a batch has to be recompressed; else none."""
        partitions = []
        is_waiting = False
        for topic, wanteds in topics:
            for index, start, stop in wanteds:
                with suppress(KafkaError):
                    partition = self._broker.partition(topic, index)
                    partitions.append(partition)
                    is_waiting |= self._connection in partition.turns
                    is_waiting |= partition.log.wants_recompression(self._frame, start, stop)
        if self._transactional_id is not None:
            is_waiting |= self._begin_verification(topics)
        return partitions if is_waiting else []

    def answer_in_turn(self, topics: list[TopicRecords], partitions: list[Partition]) -> None:
        """Answer once the batches are recompressed and all who came earlier have appended theirs."""
        self._frame = memoryview(bytearray(self._frame))  # the connection receives into the buffer meanwhile
        self._slot = self._connection.park(is_produce=True)
        self._connection.hold(len(self._frame))
        turn = Turn(self._connection, partitions)
        self._broker.tasks.spawn(self._answer_in_turn(topics, turn), name="produce in turn")

    async def _answer_in_turn(self, topics: list[TopicRecords], turn: Turn) -> None:
        slot = self._slot
        assert slot is not None
        try:
            await self._recompress(topics)
            await self._verify(topics)
            await turn.come()
            self._now_ms = self._broker.clock.wall_ms()
            answer = self.answer(topics)
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

    # ---- recompression ----------------------------------------------------------------------------------------

    async def _recompress(self, topics: list[TopicRecords]) -> None:
        for topic, wanteds in topics:
            for index, start, stop in wanteds:
                with suppress(KafkaError):
                    partition_log = self._broker.partition(topic, index).log
                    if partition_log.wants_recompression(self._frame, start, stop):
                        batch = self._frame[start:stop]
                        done = await partition_log.recompressed(batch, self._now_ms, self._zstd_allowed)
                        self._recompressed[topic, index] = memoryview(done)

    # ---- appending --------------------------------------------------------------------------------------------

    def answers(self, topics: list[TopicRecords]) -> Answers:
        if self.refusal is None:
            return [
                (topic, [self._append(topic, *wanted) for wanted in wanteds]) for topic, wanteds in topics
            ]
        error, message = self.refusal.code, self.refusal.message
        return [
            (topic, [self._refuse(wanted[0], error, message) for wanted in wanteds])
            for topic, wanteds in topics
        ]

    def _append(self, topic: str | bytes, index: int, start: int, stop: int) -> Produced:
        """Append one partition's batch; its answer (with acks=all and one replica, appended is committed)."""
        broker = self._broker
        try:
            partition: Partition = broker.partition(topic, index)
            if self._unverified:
                self._check_verified(partition.topic_partition)
            if not ACKS_ALL <= self._acks <= ACKS_LEADER:
                refuse_framing(self._frame, start, stop)
                return self._refuse(index, ErrorCode.invalid_required_acks, None)
            if partition.is_internal:
                return self._refuse(index, ErrorCode.invalid_topic_exception, None)
            if partition.refusal:
                return self._refuse(index, partition.refusal, None)
            if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
                return self._refuse(index, ErrorCode.not_enough_replicas, None)
            buffer = self._recompressed.get((topic, index))
            if buffer is None:
                buffer = self._frame
            else:
                start, stop = 0, len(buffer)
            appended = partition.log.append(
                buffer,
                start,
                stop,
                partition.leader_epoch,
                self._now_ms,
                self._zstd_allowed,
                self._guards.get(partition.topic_partition) if self._guards else None,
            )
        except (KafkaError, Refused) as error:
            return self._refuse(index, error.code, error.message)
        except OSError as error:  # the log's manager says it, once for many
            log.debug("cannot append to %s-%d: %s", topic, index, error)
            return self._refuse(index, ErrorCode.kafka_storage_error, None)
        if appended.error:
            return self._refuse(
                index, appended.error, appended.message, appended.log_start_offset, appended.record_errors
            )
        base_offset, last_offset = appended.base_offset, appended.last_offset
        metrics = broker.metrics
        metrics.produced_batches += 1
        metrics.produced_bytes += stop - start
        metrics.produced_messages += last_offset - base_offset + 1
        if appended.flush_due:
            self._unflushed.append((partition, last_offset + 1, stop - start))
        else:
            partition.advance_high_watermark(last_offset + 1)
            if partition.watchers:
                broker.long_polls.on_growth(partition, stop - start)
        return index, 0, base_offset, appended.append_time_ms, appended.log_start_offset, (), None, None

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

    # ---- waiting for the disk ---------------------------------------------------------------------------------

    def flush(self, when_done: Callable[[], object]) -> None:
        """Sync every log that asks for it, then call back; the records become visible as they become durable."""
        left = len(self._unflushed)

        def on_synced(
            partition: Partition, next_offset: int, added_bytes: int, error: OSError | None
        ) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                self._unsafe.add(partition.topic_partition)
                self._unsafe.add((partition.topic_id_bytes, partition.topic_partition.partition))
            else:
                partition.advance_high_watermark(next_offset)
                if partition.watchers:
                    self._broker.long_polls.on_growth(partition, added_bytes)
            if not left:
                when_done()

        for partition, next_offset, added_bytes in self._unflushed:
            self._broker.metrics.flushes += 1
            partition.log.flush_then(partial(on_synced, partition, next_offset, added_bytes))

    def flushed(self, answers: Answers) -> Answers:
        """The answers, now that the syncs are done: what may not be on the disk is not acknowledged."""
        if not self._unsafe:
            return answers
        return [
            (
                topic,
                [
                    self._refuse(produced[0], ErrorCode.kafka_storage_error, None)
                    if (topic, produced[0]) in self._unsafe
                    else produced
                    for produced in partitions
                ],
            )
            for topic, partitions in answers
        ]
