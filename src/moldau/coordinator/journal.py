"""A partition of an internal topic as its coordinator uses it: append, replay, and know what is committed.

Appends are what the coordinator itself decided, so a refusal is never a client's fault: `append` raises a `KafkaError`
whose code is already the one that clients of a coordinator expect (NOT_COORDINATOR where the partition is led
elsewhere or its disk failed, COORDINATOR_NOT_AVAILABLE where it cannot be written now).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.shard import Producer
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, read_records
from moldau.replication.partition import Partition

log = logging.getLogger(__name__)

READ_BYTES = 64 * 1024
"""Read from the log in one piece while it is replayed."""
BATCH_BYTES_MARGIN = 512
"""Of a batch's largest size, what its header and the growth by compression may take."""
RECORD_OVERHEAD_BYTES = 32
"""The most that a record takes beside its key and value."""

KeyValue = tuple[bytes, bytes | None]

_ERRORS = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""What an error of the log is to the clients of a coordinator, as in Kafka."""


class Entry(NamedTuple):
    """A stored record, or the marker that ended a transaction (then `is_commit` is not None)."""

    offset: int
    key: bytes | None
    value: bytes | None
    producer: Producer | None
    is_commit: bool | None = None


class Journal(Protocol):
    """The port that a driver writes to; `PartitionJournal` is the real one, tests have one in memory."""

    @property
    def first_offset(self) -> int: ...

    @property
    def next_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int:
        """The high watermark: everything below is committed."""
        ...

    @property
    def batch_bytes_max(self) -> int:
        """How much of keys and values, with `RECORD_OVERHEAD_BYTES` for each, one append may have."""
        ...

    def append(self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None) -> int:
        """Append one batch; the log's next offset afterwards. KafkaError: nothing was written."""
        ...

    async def read(self, offset: int) -> tuple[list[Entry], int]:
        """Some entries from an offset on, and the offset to read on from."""
        ...

    def on_committed(self, callback: Callable[[], object] | None) -> None:
        """Call back each time `committed_offset` has moved; None ends it."""
        ...


class PartitionJournal:
    """Over a partition that this broker leads, in one leader epoch."""

    def __init__(self, partition: Partition, *, codec: Codec = Codec.NONE) -> None:
        self._partition = partition
        self._log = partition.log
        self._leader_epoch = partition.leader_epoch
        self._codec = codec
        self._committed_offset = 0

    @property
    def first_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def next_offset(self) -> int:
        return self._log.next_offset

    @property
    def committed_offset(self) -> int:
        """Of this leader's epoch: what another leader commits later, at the same offsets, may be something else."""
        if self._leads:
            self._committed_offset = self._partition.high_watermark
        return self._committed_offset

    @property
    def _leads(self) -> bool:
        return not self._partition.refusal and self._partition.leader_epoch == self._leader_epoch

    def on_committed(self, callback: Callable[[], object] | None) -> None:
        self._partition.on_advance = callback

    # Appending

    @property
    def batch_bytes_max(self) -> int:
        return self._log.config.max_message_bytes - BATCH_BYTES_MARGIN

    def append(self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None = None) -> int:
        partition = self._partition
        refusal = partition.refusal
        if not refusal and partition.leader_epoch != self._leader_epoch:
            refusal = ErrorCode.not_leader_or_follower
        if not refusal and not partition.has_enough_in_sync():
            refusal = ErrorCode.not_enough_replicas
        if refusal:
            raise _refused(refusal, None)
        batch = self._batch(records, wall_ms, producer)
        try:
            appended = partition.append_own(batch, wall_ms, is_transactional=producer is not None)
        except OSError as error:
            log.error("cannot write to %s: %s", partition.topic_partition, error)
            raise _refused(ErrorCode.not_enough_replicas, str(error)) from error
        if appended.error:
            log.error("%s refused a coordinator's batch: %s", partition.topic_partition, appended.message)
            raise _refused(appended.error, appended.message)
        return appended.last_offset + 1

    def _batch(self, records: Sequence[KeyValue], wall_ms: int, producer: Producer | None) -> bytes:
        rows = [Record(offset, wall_ms, key, value) for offset, (key, value) in enumerate(records)]
        if producer is None:
            return build_batch(rows, codec=self._codec)
        return build_batch(
            rows,
            codec=self._codec,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=True,
        )

    # Replaying

    async def read(self, offset: int) -> tuple[list[Entry], int]:
        data = await self._read_bytes(offset)
        entries: list[Entry] = []
        position = 0
        while position < len(data):
            batch = memoryview(data)[position:]
            header = read_header(batch)
            producer = None
            if header.is_transactional:
                producer = Producer(header.producer_id, header.producer_epoch)
            for record in read_records(batch[: header.size]):
                if record.offset >= offset:
                    is_commit = _is_commit(record.key) if header.is_control else None
                    entries.append(Entry(record.offset, record.key, record.value, producer, is_commit))
            position += header.size
            offset = header.next_offset
        return entries, offset

    async def _read_bytes(self, offset: int) -> bytes | bytearray:
        while True:
            try:
                found = self._log.read(
                    offset, READ_BYTES, below_offset=self._log.next_offset, whole_first_batch=True
                )
                return b"" if found.file is None else found.file.pread_nowait(found.length, found.position)
            except BlockingIOError:
                await self._log.warm(offset, READ_BYTES)


def _refused(error: ErrorCode, message: str | None) -> KafkaError:
    return KafkaError(_ERRORS.get(error, error), message)


def _is_commit(key: bytes | None) -> bool:
    """A control record's key is its version and its type, two bytes each: 0 aborts, 1 commits."""
    return key is not None and key[2:4] == b"\x00\x01"
