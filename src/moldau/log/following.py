"""Appending what a leader has sent: batches with their offsets and epochs, as they are, in few writes.

A part of `log.Log`. Each batch is checked (checksum, offsets that go on) before it is written; the state of producers,
transactions and epochs is built from the batches, as at recovery, and nothing is asked of the leader. Runs of batches
that go to one segment are written with one call. Kafka's `UnifiedLog.appendAsFollower`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.flush import Flusher
from moldau.log.rolling import Rolling
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.records.batch import (
    CONTROL,
    HEADER,
    HEADER_BYTES,
    LENGTH_AND_BEFORE_BYTES,
    LENGTH_MIN,
    MAGIC,
    TRANSACTIONAL,
    crc_of,
)
from moldau.records.validate import HeaderFields

if TYPE_CHECKING:
    from moldau.log.log import Log

_new_tuple = tuple.__new__
"""Half the cost of calling a NamedTuple's class."""


class BeginsEarlier(Exception):
    """The first batch, of some size, reaches back before the end of a log that is empty: it is to begin at
    `base_offset`."""

    def __init__(self, base_offset: int, size: int) -> None:
        super().__init__(f"a batch that begins at {base_offset}")
        self.base_offset = base_offset
        self.size = size


class Fetched(NamedTuple):
    """What became of a leader's batches."""

    taken_bytes: int
    """Up to where the buffer is done with: all of it but a part of a batch, or as many batches as were asked for."""
    flush_due: bool
    """`flush.messages` is reached: the leader must not be told before they are on the disk."""


class _Batch(NamedTuple):
    start: int
    stop: int
    last_offset: int
    max_timestamp: int
    header: HeaderFields


class Following:
    def __init__(self, log: Log, flusher: Flusher, rolling: Rolling) -> None:
        self._log = log
        self._flusher = flusher
        self._rolling = rolling

    def append(self, buffer: memoryview, now_ms: int, batches_max: int) -> Fetched:
        """Append whole batches, so many at most. KafkaError (corrupt_message): nothing was appended from the bad
        batch on, OSError: from some batch on."""
        log = self._log
        if log.failure is not None:
            raise log.failure.with_traceback(None)
        run: list[_Batch] = []
        run_bytes = 0
        flush_due = False
        bad: KafkaError | None = None
        next_offset, position = log.next_offset, 0
        for _ in range(batches_max):
            if position + HEADER_BYTES > len(buffer):
                break
            header = HEADER.unpack_from(buffer, position)
            base_offset, length, _, _, _, _, last_delta, _, max_timestamp, _, _, _, _ = header
            end = position + length + LENGTH_AND_BEFORE_BYTES
            batch = _new_tuple(_Batch, (position, end, base_offset + last_delta, max_timestamp, header))
            if batch.stop > len(buffer):
                break
            bad = self._look_at(buffer, batch, next_offset)
            if bad is not None:
                break
            if self._must_roll(batch, run_bytes):
                flush_due |= self._write(buffer, run, now_ms)
                run, run_bytes = [], 0
                self._rolling.segment_for(batch.stop - batch.start, batch.last_offset, max_timestamp, now_ms)
            run.append(batch)
            run_bytes += batch.stop - batch.start
            next_offset, position = batch.last_offset + 1, batch.stop
        flush_due |= self._write(buffer, run, now_ms)
        if bad is not None:
            raise bad
        return Fetched(position, flush_due)

    def _look_at(self, buffer: memoryview, batch: _Batch, next_offset: int) -> KafkaError | None:
        """Why a batch cannot be what the leader has at this place."""
        base_offset, length, _, magic, crc, _, last_delta, _, _, _, _, _, _ = batch.header
        if magic != MAGIC or length < LENGTH_MIN or last_delta < 0:
            return self._corrupt(batch, "is malformed")
        if crc_of(buffer, batch.start, batch.stop) != crc:
            return self._corrupt(batch, "has a wrong checksum")
        if base_offset < next_offset:
            log = self._log
            is_empty = log.next_offset == next_offset and log.size_bytes() == 0
            if is_empty and batch.last_offset >= next_offset:
                raise BeginsEarlier(base_offset, batch.stop - batch.start)
            return self._corrupt(batch, f"comes where {next_offset} is next")
        return None

    def _corrupt(self, batch: _Batch, what: str) -> KafkaError:
        base_offset, *_ = batch.header
        place = self._log.topic_partition
        return KafkaError(ErrorCode.corrupt_message, f"the leader's batch {base_offset} of {place} {what}")

    def _must_roll(self, batch: _Batch, run_bytes: int) -> bool:
        """Whether the segment may have to be another for it. (Asked again, with the run written.)"""
        segment = self._log.segments.active
        return (
            segment.size + run_bytes + batch.stop - batch.start > self._log.config.segment_bytes
            or batch.max_timestamp > segment.roll_at
            or segment.full
            or batch.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        )

    def _write(self, buffer: memoryview, run: list[_Batch], now_ms: int) -> bool:
        """Write batches that lie one behind the other with one call, then count them in."""
        if not run:
            return False
        log = self._log
        segment = log.segments.active
        try:
            if segment.size == 0:
                self._flusher.queue_folder_sync()
            segment.write(buffer[run[0].start : run[-1].stop])
        except OSError as error:
            log.note_error(error, run[-1].stop - run[0].start)
            raise
        due = False
        for batch in run:
            due |= self._count_in(buffer, batch, segment)
        return due

    def _count_in(self, buffer: memoryview, batch: _Batch, segment: Segment) -> bool:
        start, stop, last_offset, max_timestamp, header = batch
        base_offset, _, leader_epoch, _, _, attributes, _, _, _, producer, epoch, sequence, count = header
        log = self._log
        segment.append(None, stop - start, last_offset, max_timestamp, log.config.index_interval_bytes)
        log.next_offset = last_offset + 1
        if leader_epoch != log.epochs.latest:
            log.assign_epoch(leader_epoch, base_offset)
        if producer >= 0:
            if attributes & CONTROL:
                log.producing.end(buffer[start:stop], base_offset)
            else:
                transactional = attributes & TRANSACTIONAL != 0
                log.producing.state.add(
                    producer, epoch, sequence, base_offset, last_offset, max_timestamp, transactional
                )
        return self._flusher.has_policy and self._flusher.note_appended(count)
