"""Verifying one segment: every batch of the log file, and its two sparse indexes against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from struct import Struct

from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY
from moldau.log.inspect.batches import BadStretch, Window, batches_and_damage
from moldau.log.inspect.files import LogFiles
from moldau.log.inspect.findings import (
    REMOVE_INDEX,
    RESTORE,
    Finding,
    Kind,
    Seen,
    Severity,
    offsets_text,
    unreadable,
)
from moldau.log.inspect.indexes import (
    IndexFile,
    OffsetIndexCheck,
    TimeIndexCheck,
    WrongEntries,
)
from moldau.log.inspect.order import OffsetOrder
from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.records.batch import read_header
from moldau.records.record import BadRecord, records_of
from moldau.records.walk import walk
from moldau.runtime.ports import Disk, File

UNFOLDED_BYTES_MAX = 256 * 1024 * 1024
"""No batch unfolds to more, else its records count as damaged."""
REBUILT = "Harmless: the next start builds it anew from the log."


@dataclass(frozen=True, slots=True)
class SegmentView:
    """How a segment is to be looked at."""

    base_offset: int
    next_base: int | None
    """Of the segment behind it; None for the last one."""
    recovered: bool
    """The next start checks it, cuts it off at the first damage, and builds its indexes anew."""
    running: bool
    """A broker has the log open."""
    clean: bool
    """It was left by a clean stop: nothing was being written."""
    recovery_point: int | None
    more_follows: bool
    """A later segment has data."""
    records: bool
    """Look into the batches too."""

    @property
    def active(self) -> bool:
        return self.running and self.next_base is None


def verify_segment(
    disk: Disk,
    files: LogFiles,
    view: SegmentView,
    order: OffsetOrder,
    take: Callable[[str, Batch], object],
    seen: Seen,
) -> Iterator[Finding]:
    """Offsets are `order`'s to judge; what else goes over more than one segment is told each batch by `take`."""
    path = files.path(view.base_offset, names.LOG)
    seen.on_segment(path)
    try:
        size = disk.size(path)
        yield from _SegmentCheck(disk, files, view, order, seen, path, size).run(take)
    except OSError as error:
        if not (view.running and isinstance(error, FileNotFoundError)):  # else retention has removed it
            yield unreadable(error.filename or path, error)
        order.skip_damage(view.next_base)


class _SegmentCheck:
    def __init__(
        self,
        disk: Disk,
        files: LogFiles,
        view: SegmentView,
        order: OffsetOrder,
        seen: Seen,
        path: str,
        size: int,
    ) -> None:
        self._disk = disk
        self._files = files
        self._view = view
        self._order = order
        self._seen = seen
        self._path = path
        self._size = size
        self._sound = True
        self._rebuilt = view.recovered
        """The next start builds the indexes anew."""

    def run(self, take: Callable[[str, Batch], object]) -> Iterator[Finding]:
        offsets = self._open(names.OFFSET_INDEX, OFFSET_ENTRY)
        times = self._open(names.TIME_INDEX, TIME_ENTRY)
        self._rebuilt |= not self._view.running and any(i is None or i.rest_bytes for i in (offsets, times))
        base_offset = self._view.base_offset
        offset_check = OffsetIndexCheck(base_offset, offsets.entries() if offsets else ())
        time_check = TimeIndexCheck(base_offset, times.entries() if times else ())
        file = self._disk.open(self._path)
        try:
            misplaced = self._misplaced(file)
            if misplaced is not None:
                yield misplaced
                self._order.skip_damage(self._view.next_base)
            else:
                self._order.begin_segment(self._path, base_offset)
            for found in batches_and_damage(file, self._size, next_offset=base_offset):
                if isinstance(found, BadStretch):
                    yield from self._stretch(found)
                    offset_check.skip_damage()
                    time_check.skip_damage()
                    continue
                self._seen.batches += 1
                if misplaced is None:
                    offset_check.take(found)
                    time_check.take(found)
                    self._order.take(self._path, found)
                    take(self._path, found)
                if self._view.records:
                    yield from self._records(file, found)
        finally:
            file.close()
        self._seen.segments += 1
        self._seen.bytes += self._size
        if misplaced is not None:
            return  # what its indexes say of another file says nothing
        offset_check.finish(self._size, running=self._view.active)
        time_check.finish(running=self._view.active)
        yield from self._offset_index(offsets, offset_check)
        yield from self._time_index(times, time_check)

    def _open(self, suffix: str, entry: Struct) -> IndexFile | None:
        if not self._files.has(self._view.base_offset, suffix):
            return None
        return IndexFile(self._disk, self._files.path(self._view.base_offset, suffix), entry)

    # The log file

    def _misplaced(self, file: File) -> Finding | None:
        """A file with the batches of another one: its first two agree with each other, not with its name."""
        view = self._view
        try:
            first_two = list(islice(headers(file, 0, self._size, Window(file, self._size)), 2))
        except DamagedSegment:
            return None
        outside = [
            batch
            for batch in first_two
            if batch.header.base_offset < view.base_offset
            or (view.next_base is not None and batch.header.base_offset >= view.next_base)
        ]
        if not outside or outside != first_two:
            return None
        if len(first_two) == 2 and first_two[1].header.base_offset < first_two[0].header.next_offset:
            return None
        found = first_two[0].header.base_offset
        other = self._files.segments_from(found)[0]
        due = (
            f"{view.base_offset} to {view.next_base - 1}"
            if view.next_base
            else f"{view.base_offset} and more"
        )
        elsewhere = (
            f"They belong to {names.file_name(other, names.LOG)}: files were swapped or copied. "
            if other != view.base_offset and other <= found
            else ""
        )
        return self._found(
            Severity.DAMAGE,
            Kind.MISPLACED,
            0,
            f"holds batches from offset {found} on, where its name and its neighbours leave {due}",
            f"{elsewhere}{RESTORE}",
        )

    def _stretch(self, stretch: BadStretch) -> Iterator[Finding]:
        """Damage, or the end of an interrupted write."""
        view = self._view
        at_end = stretch.end_position == self._size
        first = self._order.next_offset
        self._order.skip_damage(stretch.next_offset)
        if view.active and at_end and (stretch.cut_off or stretch.zeroes):
            return  # a write that is under way
        self._sound = False
        kind, what = self._describe(stretch, first)
        unflushed = not view.clean and first >= (view.recovery_point or 0)
        if view.recovered and at_end and unflushed and not view.more_follows:
            advice = "What a crash leaves: the next start cuts it off. Nothing known to be flushed is in it."
            yield self._found(Severity.REPAIR, kind, stretch.position, what, advice)
            return
        lost = self._lost(first, stretch.next_offset)
        # A batch that was flushed and can be stepped over is not what a crash leaves: it is left where it is.
        is_kept = stretch.header is not None and first < (view.recovery_point or 0)
        if view.recovered and not is_kept:
            behind = (
                f"{self._size - stretch.position} bytes{' and later segments' if view.more_follows else ''}"
            )
            advice = f"{lost} The next start would cut off {behind} here: take a copy first."
        else:
            advice = f"{lost} Readers get an error there. {RESTORE}"
        yield self._found(Severity.DAMAGE, kind, stretch.position, what, advice)

    def _describe(self, stretch: BadStretch, first: int) -> tuple[Kind, str]:
        length = stretch.end_position - stretch.position
        if stretch.zeroes:
            return Kind.ZEROES, f"{length} zero bytes up to the end of the file, where offset {first} is due"
        if stretch.header is not None:
            last = first + max(0, min(stretch.header.last_offset_delta, stretch.header.count - 1))
            return Kind.CHECKSUM, f"the checksum of the batch with {offsets_text(first, last)} does not match"
        if stretch.cut_off:
            return Kind.TORN_TAIL, f"the file ends within a batch, of which {length} bytes are there"
        return Kind.NOT_A_BATCH, f"{length} bytes are no batch ({stretch.what})"

    def _lost(self, first: int, next_offset: int | None) -> str:
        following = next_offset if next_offset is not None else self._view.next_base
        if following is None:
            return f"The log cannot be read from offset {first} on."
        if following <= first:
            return "No offset is missing."
        return f"Records are lost: {offsets_text(first, following - 1)}."

    def _records(self, file: File, batch: Batch) -> Iterator[Finding]:
        data = file.pread(batch.header.size, batch.position)
        try:
            header = read_header(data)
            body = records_of(data, header, UNFOLDED_BYTES_MAX)
            end, *_ = walk(body, 0, len(body), header.count)
            if end != len(body):
                raise BadRecord(f"{len(body) - end} bytes are left after the last record")
        except BadRecord as damage:
            yield self._found(
                Severity.DAMAGE,
                Kind.RECORDS,
                batch.position,
                f"the records at {offsets_text(batch.header.base_offset, batch.header.last_offset)} are"
                f" malformed: {damage}",
                "The checksum is right: the producer sent them so. Consumers cannot read them; skip the batch.",
            )

    def _found(self, severity: Severity, kind: Kind, position: int, what: str, advice: str) -> Finding:
        return Finding(severity, kind, self._path, position, what, advice)

    # The indexes

    def _offset_index(self, index: IndexFile | None, check: OffsetIndexCheck) -> Iterator[Finding]:
        if index is None:
            yield from self._missing(names.OFFSET_INDEX)
            return
        yield from self._index(index, check.wrong)
        if check.uncovered_bytes and check.wrong is None and not self._view.active and self._sound:
            what = f"has no entry for the last {check.uncovered_bytes} bytes of the log"
            advice = f"Looking up offsets there is slow, not wrong. {REMOVE_INDEX}"
            yield self._index_finding(index, Kind.INDEX_SHORT, None, what, advice, Severity.NOTE)

    def _time_index(self, index: IndexFile | None, check: TimeIndexCheck) -> Iterator[Finding]:
        if index is None:
            yield from self._missing(names.TIME_INDEX)
            return
        yield from self._index(index, check.wrong)
        if index.error is not None:
            return
        last, largest = check.last_timestamp, check.max_timestamp
        if index.zeroes_at == 0 and index.size == TIME_ENTRY.size:
            last = 0  # one entry for the beginning of 1970: not a zero that was preallocated
        if last != largest and check.wrong is None and self._sound and not self._view.active:
            what = f"ends with the time {last}, but the largest in the segment is {largest}"
            advice = f"Retention and look-up by time go by its last entry. {REMOVE_INDEX}"
            yield self._index_finding(index, Kind.INDEX_SHORT, None, what, advice, Severity.DAMAGE)

    def _index(self, index: IndexFile, wrong: WrongEntries | None) -> Iterator[Finding]:
        """What can be wrong with either index."""
        if index.error is not None:
            yield unreadable(index.path, index.error)
            return
        if wrong is not None:
            more = f"; {wrong.total} entries are wrong" if wrong.total > 1 else ""
            number = wrong.first.position // index.entry.size
            what = f"entry {number} {wrong.what}{more}"
            advice = f"Readers may be led to the wrong place. {REMOVE_INDEX}"
            yield self._index_finding(
                index, Kind.INDEX_ENTRY, wrong.first.position, what, advice, Severity.DAMAGE
            )
        one_entry = index.size == TIME_ENTRY.size == index.entry.size
        if index.zeroes_at is not None and not self._view.active and not one_entry:
            what = f"{index.size - index.zeroes_at} zero bytes follow the entries"
            advice = f"What Kafka leaves after an unclean stop; it would lead readers astray. {REMOVE_INDEX}"
            yield self._index_finding(
                index, Kind.INDEX_ZEROES, index.zeroes_at, what, advice, Severity.DAMAGE
            )
        if index.rest_bytes and not self._view.active:
            position = index.size - index.rest_bytes
            what = f"ends within an entry ({index.rest_bytes} bytes are left over)"
            yield self._index_finding(index, Kind.INDEX_CUT, position, what, REBUILT, Severity.REPAIR)

    def _missing(self, suffix: str) -> Iterator[Finding]:
        if self._size and not self._view.active:  # made with the first entry
            path = self._files.path(self._view.base_offset, suffix)
            yield Finding(Severity.REPAIR, Kind.INDEX_MISSING, path, None, "is missing", REBUILT)

    def _index_finding(
        self, index: IndexFile, kind: Kind, position: int | None, what: str, advice: str, severity: Severity
    ) -> Finding:
        if self._rebuilt and severity is not Severity.NOTE:
            severity, advice = Severity.REPAIR, REBUILT
        return Finding(severity, kind, index.path, position, what, advice)
