"""Produce (0): append record batches to partitions. L5, L7, P1-P4.

The life of a produce: the request is parsed where it was received; each batch is checked, gets its offset written in
place and is appended to the page cache by the partition's log; the answer leaves at once, or, where the topic's flush
policy asks for it, after the sync that covers the batch. Long polls on the partition are woken after the answer.

Kafka advertises version 0 for the sake of an old librdkafka and serves 3 and up; so does Moldau. With acks=0 there is no
answer; a refused batch then ends the connection, which is the only way to tell the client.
"""

from __future__ import annotations

import logging
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.connection import Answer, Connection, Slot
from moldau.replication.partition import Partition
from moldau.wire.produce import PartitionAnswer, pack_produce_response, parse_produce

log = logging.getLogger(__name__)

API_KEY = 0
VERSIONS = (3, 13)
ADVERTISED_MIN_VERSION = 0

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
TOPIC_IDS_SINCE_VERSION = 13
ZSTD_SINCE_VERSION = 7
UNKNOWN = -1


def serve(
    broker: Any, connection: Connection, frame: memoryview, position: int, version: int, correlation_id: int
) -> Answer | None:
    transactional_id, acks, _timeout_ms, topics = parse_produce(frame, position, version)
    produce = Produce(broker, frame, version, acks, transactional_id)
    answers = [
        (topic, [produce.append(topic, *wanted) for wanted in partitions]) for topic, partitions in topics
    ]
    if acks == ACKS_NONE:
        if produce.is_refused:
            connection.close("a batch sent with acks=0 was refused")
        return None
    if not produce.unflushed:
        return pack_produce_response(correlation_id, version, answers, 0)
    produce.answer_after_flush(connection.park(), correlation_id, answers)
    return None


class Produce:
    """One produce request while it is being answered."""

    __slots__ = (
        "_acks",
        "_broker",
        "_error",
        "_frame",
        "_now_ms",
        "_version",
        "is_refused",
        "unflushed",
    )

    def __init__(
        self, broker: Any, frame: memoryview, version: int, acks: int, transactional_id: str | None
    ) -> None:
        self._broker = broker
        self._frame = frame
        self._version = version
        self._acks = acks
        self._now_ms = broker.clock.wall_ms()
        self._error = ErrorCode.none
        if not ACKS_ALL <= acks <= ACKS_LEADER:
            self._error = ErrorCode.invalid_required_acks
        elif transactional_id is not None:
            self._error = (
                ErrorCode.invalid_txn_state
            )  # no transaction can be open: there is no coordinator yet
        self.is_refused = False
        self.unflushed: list[Partition] = []

    def append(self, topic: str | bytes, index: int, start: int, stop: int) -> PartitionAnswer:
        """Append one partition's batch; its answer (with acks=all and one replica, appended is committed)."""
        try:
            if self._error:
                raise KafkaError(self._error)
            partition = self._resolve(topic, index)
            return self._append(partition, index, start, stop)
        except KafkaError as error:
            return self._refuse(index, error.code, error.message)
        except OSError as error:
            log.error("cannot append to %s-%d: %s", topic, index, error)
            return self._refuse(index, ErrorCode.kafka_storage_error, None)

    def _resolve(self, topic: str | bytes, index: int) -> Partition:
        broker = self._broker
        partition: Partition = (
            broker.partition_by_id_bytes(topic, index)
            if self._version >= TOPIC_IDS_SINCE_VERSION
            else broker.partition(topic, index)
        )
        if partition.is_offline:
            raise KafkaError(ErrorCode.kafka_storage_error)
        if not partition.is_leader:
            raise KafkaError(ErrorCode.not_leader_or_follower)
        if self._acks == ACKS_ALL and not partition.has_enough_in_sync():
            raise KafkaError(ErrorCode.not_enough_replicas)
        return partition

    def _append(self, partition: Partition, index: int, start: int, stop: int) -> PartitionAnswer:
        broker, log_ = self._broker, partition.log
        appended = log_.append(
            self._frame,
            start,
            stop,
            leader_epoch=partition.state.leader_epoch,
            now_ms=self._now_ms,
            zstd_allowed=self._version >= ZSTD_SINCE_VERSION,
        )
        if appended.error:
            return self._refuse(index, appended.error, appended.message, appended.record_errors)
        metrics = broker.metrics
        metrics.produced_batches += 1
        metrics.produced_bytes += stop - start
        metrics.produced_messages += appended.last_offset - appended.base_offset + 1
        if log_.flush_is_due:
            self.unflushed.append(partition)
        else:
            partition.advance_high_watermark(log_.next_offset)
            if partition.watchers:
                broker.long_polls.on_growth(partition, stop - start)
        return PartitionAnswer(
            index, 0, appended.base_offset, appended.append_time_ms, log_.log_start_offset, (), None
        )

    def _refuse(
        self, index: int, error: ErrorCode, message: str | None, record_errors: Any = ()
    ) -> PartitionAnswer:
        self.is_refused = True
        self._broker.metrics.produce_refused += 1
        return PartitionAnswer(index, error, UNKNOWN, UNKNOWN, UNKNOWN, record_errors, message)

    # ---- waiting for the disk ---------------------------------------------------------------------------------

    def answer_after_flush(self, slot: Slot, correlation_id: int, answers: list[Any]) -> None:
        raise NotImplementedError
