"""The producers of one log at work: which of their batches is new, a retry or refused; the transactions that they open,
and the markers that end them.

A part of `log.Log`, which appends and reads. Markers, and what coordinators write as part of a transaction, are the
broker's own batches: of their producer only the epochs are checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.flush import Flusher
from moldau.log.index import Read, read_nowait, read_waiting
from moldau.log.producers import BatchSeen, OutOfSequence, Producers, Verification
from moldau.log.reader import Slice
from moldau.log.recall import earlier_batches
from moldau.log.scan import DamagedSegment
from moldau.log.segment import Segment
from moldau.log.transactions import Aborted, Marker, build_marker, read_marker
from moldau.log.transactions_index import AbortedIndexes
from moldau.records.batch import (
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    sequence_after,
    set_timestamps,
)
from moldau.records.validate import HeaderFields, Looked, Refused

if TYPE_CHECKING:
    from moldau.log.appended import Appended
    from moldau.log.log import Log

logger = logging.getLogger(__name__)


class Producing:
    """`state` is what the log knows of its producers, `aborted` the index of their aborted transactions."""

    __slots__ = ("_flusher", "_log", "_unsynced", "aborted", "state")

    def __init__(self, log: Log, flusher: Flusher, state: Producers, aborted: AbortedIndexes) -> None:
        self._log = log
        self._flusher = flusher
        self.state = state
        self.aborted = aborted
        self._unsynced: set[int] = set()
        """Segments whose index of aborted transactions is to be synced with the next flush."""

    # ---- clients' batches -----------------------------------------------------------------------------------

    def check(self, header: HeaderFields, guard: Verification | None) -> BatchSeen | None:
        """The stored batch for a retry of it, None for a batch to be appended; raises Refused."""
        _, _, _, _, _, attributes, last_delta, _, _, producer, epoch, sequence, _ = header
        transactional = attributes & TRANSACTIONAL != 0
        try:
            return self.state.check(producer, epoch, sequence, last_delta, transactional, guard)
        except OutOfSequence as refusal:
            seen = self._recall(BatchHeader._make(header))
            if seen is None:
                raise Refused(refusal.code, str(refusal)) from None
            return seen

    def _recall(self, header: BatchHeader) -> BatchSeen | None:
        """A retry of a batch that was stored before a restart, and is not in the snapshot."""
        entry = self.state.get(header.producer_id)
        if entry is None or not entry.from_snapshot or entry.epoch != header.producer_epoch:
            return None
        segments = self._log.segments
        try:
            entry.batches[:0] = earlier_batches(segments, entry, read_nowait)
        except BlockingIOError:
            self._log.in_background(earlier_batches, segments.copy(), entry, read_waiting)
            raise Refused(
                ErrorCode.kafka_storage_error, "the producer's batches are being read in: try again"
            ) from None
        except DamagedSegment as damage:
            logger.error("%s", damage)
        entry.from_snapshot = False
        first = header.base_sequence
        return entry.find(first, sequence_after(first, header.last_offset_delta))

    # ---- opening --------------------------------------------------------------------------------------------

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, begins_with_zero: bool
    ) -> Verification | None:
        """A guard for the first batch of a transaction here, to be had before its coordinator is asked.

        None where the transaction is open here already. KafkaError (invalid_producer_epoch) where its epoch is over.
        """
        try:
            return self.state.begin_verification(producer_id, epoch, first_sequence, begins_with_zero)
        except OutOfSequence as refusal:
            raise KafkaError(refusal.code) from None

    def check_verified(self, producer_id: int, epoch: int, guard: Verification) -> None:
        """Whether the transaction has not been ended since its guard was given; KafkaError where it has."""
        try:
            self.state.check_epoch(producer_id, epoch)
        except OutOfSequence as refusal:
            raise KafkaError(refusal.code) from None
        if not self.state.is_verified(producer_id, epoch, guard):
            raise KafkaError(ErrorCode.invalid_txn_state)

    # ---- the broker's own batches ---------------------------------------------------------------------------

    def append_own(self, batch: bytes, leader_epoch: int, now_ms: int) -> Appended:
        """Append a coordinator's records as part of a transaction, which was verified."""
        header = read_header(batch)
        try:
            self.state.check_epoch(header.producer_id, header.producer_epoch)
        except OutOfSequence as refusal:
            return self._log.refused(Refused(refusal.code, str(refusal)))
        return self._append(batch, leader_epoch, now_ms)

    def append_alone(self, batch: bytes, leader_epoch: int, now_ms: int) -> Appended:
        """Append a coordinator's records that belong to no transaction, as `Log.append`. They need no look."""
        buffer = memoryview(bytearray(batch))
        looked = Looked(self._log.rules, read_header(buffer).max_timestamp)
        return self._log.append(buffer, 0, len(buffer), leader_epoch, now_ms, looked=looked)

    def append_marker(
        self,
        marker: Marker,
        producer_id: int,
        producer_epoch: int,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """End a producer's transaction in this log. Writing it again is harmless."""
        try:
            self.state.check_marker(
                producer_id, producer_epoch, marker.coordinator_epoch, transaction_version
            )
        except OutOfSequence as refusal:
            return self._log.refused(Refused(refusal.code, str(refusal)))
        guard = self.state.guard_of_next(producer_id, producer_epoch) if transaction_version >= 2 else None
        batch = build_marker(marker, producer_id, producer_epoch, now_ms)
        appended = self._append(batch, leader_epoch, now_ms)
        if guard is not None:
            self.state.keep_guard(producer_id, guard)
        return appended

    def _append(self, batch: bytes, leader_epoch: int, now_ms: int) -> Appended:
        buffer = memoryview(bytearray(batch))
        if self._log.config.log_append_time:
            attributes = read_header(buffer).attributes | LOG_APPEND_TIME
            set_timestamps(buffer, 0, len(buffer), attributes, now_ms)
        return self._log.put(buffer, 0, len(buffer), read_header(buffer), leader_epoch, now_ms)

    def end(self, batch: memoryview, offset: int) -> None:
        """A control batch was appended at an offset."""
        marker = read_marker(batch)
        if marker is None:
            return
        header = read_header(batch)
        ended = self.state.end_transaction(
            header.producer_id, header.producer_epoch, marker.coordinator_epoch, offset, header.max_timestamp
        )
        if ended is not None and not marker.is_commit:
            entry = Aborted(header.producer_id, ended.first_offset, offset, ended.last_stable_offset)
            try:
                self.aborted.append(self._log.segments.active.base_offset, entry)
            except OSError as error:  # it is kept, and written before the recovery point passes it
                self._log.note_error(error)
            self._queue_sync(self._log.segments.active.base_offset)

    # ---- the index of aborted transactions ------------------------------------------------------------------

    def aborted_in(self, offset: int, found: Slice) -> list[tuple[int, int]]:
        """Producer and first offset of the aborted transactions that records of a slice may belong to.

        May raise BlockingIOError, as `Log.read`.
        """
        if not self.aborted or found.file is None:
            return []
        segments = self._log.segments
        segment = segments.at(offset)
        # Compaction may have left nothing from the offset on in its segment, nor in some that follow.
        while segment.log is not found.file and (following := segments.after(segment)) is not None:
            segment = following
        stop_offset = self._offset_at(segment, found.position + found.length, read_nowait)
        return self.aborted.collect(segment.base_offset, offset, stop_offset, read_nowait)

    def _offset_at(self, segment: Segment, position: int, read: Read) -> int:
        """An offset not below that of the batch at a position: as Kafka's, as near as the sparse index knows."""
        index = segment.offsets
        entry = index.count_below(position, read, field=1)
        if entry < index.count:
            return segment.base_offset + index.entry_at(entry, read)[0]
        if segment is self._log.segments.active:
            return self._log.next_offset
        return self._log.segments.end_offset_of_closed(segment)

    def bringing_in(self, offset: int) -> Callable[[], object] | None:
        """Work for a thread after which `aborted_in` does not wait for the disk."""
        if not self.aborted:
            return None
        log, copy = self._log, self.aborted.copy()
        base_offset, stop_offset = log.segments.at(offset).base_offset, log.next_offset
        return lambda: copy.collect(base_offset, offset, stop_offset, read_waiting)

    def replace_segments(self, old: tuple[int, ...], new: tuple[int, ...]) -> list[str]:
        """Put compacted segments in the place of old ones, each with its index; the names of what is gone."""
        gone = [name for base_offset in old for name in self.aborted.mark_deleted(base_offset)]
        gone += self._log.segments.replace(old, new)
        self.aborted.adopt(new)
        return gone

    def go_on_with(self, copy: Producing) -> None:
        """The log goes on in its copy's folder. What is known of producers is more than the copy can know: batches
        that are gone count still."""
        self.aborted, self._unsynced = copy.aborted, copy._unsynced

    def _queue_sync(self, base_offset: int) -> None:
        """Have a segment's index synced before the recovery point moves on."""
        if base_offset not in self._unsynced:
            self._unsynced.add(base_offset)
            self._flusher.queue(lambda: self._sync(base_offset))
            self._flusher.queue_folder_sync()

    def _sync(self, base_offset: int) -> None:
        """In a thread; an entry that comes meanwhile is synced once more."""
        self._unsynced.discard(base_offset)
        self.aborted.sync(base_offset)

    def write_unwritten(self) -> None:
        """Entries that there was no room for are tried again."""
        try:
            self.aborted.drain()
        except OSError as error:
            self._log.note_error(error)
