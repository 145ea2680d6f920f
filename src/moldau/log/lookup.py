"""Looking for a time inside a batch, within bounds: the part of a look-up that walks records.

On the loop it walks what is small, and asks the marks of batches that were walked before (`marks`); the rest is
`TooMuch`, and for a thread. What a thread walked becomes marks, for the loop to remember.
"""

from __future__ import annotations

from moldau.base.limits import (
    LOOKUP_STEPS_INLINE_MAX,
    LOOKUP_STEPS_PER_READ,
    RECORDS_INLINE_MAX,
    UNFOLDED_INLINE_BYTES_MAX,
)
from moldau.log.index import Read
from moldau.log.marks import Found, Marks, RememberedMarks, Stretch, first_in
from moldau.log.scan import Batch, check_sum
from moldau.log.segment import Segment
from moldau.records.batch import HEADER_BYTES
from moldau.records.bounds import INLINE, Bounds, TooMuch
from moldau.runtime.ports import Buffer


class Lookup:
    """One search by time, as far as it looks into batches."""

    __slots__ = ("_bounds", "_identity", "_remembered", "_steps_left", "learned")

    def __init__(self, remembered: RememberedMarks, identity: object, bounds: Bounds) -> None:
        self._remembered = remembered
        self._identity = identity
        self._bounds = bounds
        self._steps_left = LOOKUP_STEPS_INLINE_MAX
        self.learned: list[tuple[int, Marks]] = []
        """Marks to be remembered, with the base offsets of their segments."""

    def spend(self, steps: int) -> None:
        """TooMuch where the search has gone on for too long."""
        self._steps_left -= steps
        if self._steps_left < 0 and self._bounds is INLINE:
            raise TooMuch

    def first(
        self, segment: Segment, batch: Batch, timestamp: int, log_start_offset: int, read: Read
    ) -> Found | None:
        """The first record that is not older than a time, and not below the log's start."""
        header = batch.header
        start_offset = max(log_start_offset, header.base_offset)
        self.spend(LOOKUP_STEPS_PER_READ)
        marks = self._remembered.get(self._identity, segment.base_offset, header, start_offset)
        if marks is None:
            self.spend(header.count)
            body = self._unfolded(segment, batch, read)
            if INLINE.allow(header) and len(body) <= UNFOLDED_INLINE_BYTES_MAX:
                whole = Stretch(0, len(body), header.count)
                return first_in(body, whole, header, timestamp, start_offset)
            marks = Marks(header, start_offset, body)
            self.learned.append((segment.base_offset, marks))
            found = marks.find(timestamp)
        else:
            found, body = marks.find(timestamp), None
        if not isinstance(found, Stretch):
            return found
        if body is None:
            body, found = self._stretch(segment, batch, found, read)
        return first_in(body, found, header, timestamp, start_offset)

    def _unfolded(self, segment: Segment, batch: Batch, read: Read) -> Buffer:
        if not self._bounds.allow(batch.header):
            raise TooMuch
        data = read(segment.log, batch.header.size, batch.position)
        check_sum(segment.log, batch, data)
        return self._bounds.records_of(data, batch.header)

    def _stretch(
        self, segment: Segment, batch: Batch, stretch: Stretch, read: Read
    ) -> tuple[Buffer, Stretch]:
        """The bytes in which a stretch lies, and where in them it does."""
        header = batch.header
        if header.codec_id:
            return self._unfolded(segment, batch, read), stretch
        stop = stretch.stop if stretch.stop >= 0 else header.size - HEADER_BYTES
        length = stop - stretch.start
        is_small = length <= UNFOLDED_INLINE_BYTES_MAX and stretch.records <= RECORDS_INLINE_MAX
        if self._bounds is INLINE and not is_small:
            raise TooMuch
        data = read(segment.log, length, batch.position + HEADER_BYTES + stretch.start)
        return data, Stretch(0, length, stretch.records)
