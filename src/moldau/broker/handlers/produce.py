"""Produce (0): append record batches to partitions. L5, L7, P1-P4.

The life of a produce: the request is parsed where it was received; each batch is checked, gets its offset written in
place and is appended to the page cache by the partition's log; the answer leaves at once, or, where the topic's flush
policy asks for it, after the sync that covers the batch. Long polls on the partition are woken after the answer.

Kafka advertises version 0 for the sake of an old librdkafka and serves 3 and up; so does Moldau. With acks=0 there is
no answer; a refused batch then ends the connection, which is the only way to tell the client.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.connection import Answer, Connection
from moldau.records.validate import RecordError, Refused, is_transactional, refuse_framing
from moldau.replication.partition import Partition
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
UNKNOWN = -1

Answers = list[tuple[str | bytes, list[Produced]]]


def serve(
    broker: Any, connection: Connection, frame: memoryview, position: int, version: int, correlation_id: int
) -> Answer | None:
    lone = parse_lone_batch(frame, position, version)
    if lone is not None:
        answer = _append_lone(broker, frame, version, correlation_id, *lone)
        if answer is not None:
            return answer
    transactional_id, acks, _timeout_ms, topics = parse_produce(frame, position, version)
    produce = Produce(broker, frame, version, acks)
    if lone is None:
        produce.refusal = _refusal_as_a_whole(frame, topics, transactional_id)
        topics = _last_of_each(topics)
    answers = produce.answers(topics)
    if produce.is_refused and produce.refusal is None:
        # A lone batch pays for this look only now: it was refused by itself, but its request may deserve another code.
        produce.refusal = _refusal_as_a_whole(frame, topics, transactional_id)
        if produce.refusal is not None:
            answers = produce.answers(topics)
    if acks == ACKS_NONE:
        produce.flush(lambda: None)
        if produce.is_refused:
            connection.close("a batch sent with acks=0 was refused")
        return None
    if not produce.unflushed:
        return pack_produce_response(correlation_id, version, answers)
    slot = connection.park()
    produce.flush(lambda: slot.fill(pack_produce_response(correlation_id, version, produce.flushed(answers))))
    return None


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
    if (acks != ACKS_ALL and acks != ACKS_LEADER) or not partition.is_whole or partition_log.has_flush_policy:
        return None
    try:
        error, base_offset, last_offset, append_time_ms, log_start_offset, *_ = partition_log.append(
            frame, start, stop, partition.leader_epoch, broker.clock.wall_ms(), version >= ZSTD_SINCE_VERSION
        )
    except OSError:
        return None
    if error:
        return None
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
        "_frame",
        "_now_ms",
        "_unsafe",
        "_zstd_allowed",
        "is_refused",
        "refusal",
        "unflushed",
    )

    def __init__(self, broker: Any, frame: memoryview, version: int, acks: int) -> None:
        self._broker = broker
        self._frame = frame
        self._zstd_allowed = version >= ZSTD_SINCE_VERSION
        self._acks = acks
        self._now_ms = broker.clock.wall_ms()
        self.refusal: Refused | None = None  # of the request as a whole
        self.is_refused = False
        self.unflushed: list[tuple[Partition, int, int]] = []  # with the next offset and the bytes added
        self._unsafe: set[tuple[bytes | str, int]] = set()  # whose sync failed

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
            if not ACKS_ALL <= self._acks <= ACKS_LEADER:
                refuse_framing(self._frame, start, stop)
                return self._refuse(index, ErrorCode.invalid_required_acks, None)
            if partition.refusal:
                return self._refuse(index, partition.refusal, None)
            if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
                return self._refuse(index, ErrorCode.not_enough_replicas, None)
            appended = partition.log.append(
                self._frame,
                start,
                stop,
                partition.leader_epoch,
                self._now_ms,
                self._zstd_allowed,
            )
        except (KafkaError, Refused) as error:
            return self._refuse(index, error.code, error.message)
        except OSError as error:
            log.error("cannot append to %s-%d: %s", topic, index, error)
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
            self.unflushed.append((partition, last_offset + 1, stop - start))
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
        left = len(self.unflushed)

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

        for partition, next_offset, added_bytes in self.unflushed:
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
