"""Verifying one log: its segments one after the other, and what its small files say against them."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from functools import cached_property

from moldau.base.internal_topics import INTERNAL_TOPICS
from moldau.log import names
from moldau.log.checkpoints import BadCheckpoint, read_epochs, read_partition_metadata
from moldau.log.inspect.files import (
    LEFTOVER_SUFFIXES,
    SEGMENT_SUFFIXES,
    LogFiles,
    Standing,
)
from moldau.log.inspect.findings import Finding, Kind, Seen, Severity, unreadable
from moldau.log.inspect.order import REMOVE_EPOCHS, EpochOrder, OffsetOrder
from moldau.log.inspect.producers import SnapshotCheck
from moldau.log.inspect.segment import SegmentView, verify_segment
from moldau.log.inspect.transactions import TransactionCheck
from moldau.log.scan import Batch
from moldau.runtime.ports import Disk

LEFTOVERS = {
    names.DELETED: "It waited for its removal; the next start removes it.",
    names.CLEANED: "A compaction was interrupted; the next start removes what it wrote.",
    names.SWAP: "A compaction was interrupted: the next start puts it in its place.",
    names.TEMPORARY: "A write was interrupted; the next start removes it.",
}
KNOWN_FILES = frozenset({names.LEADER_EPOCHS, names.PARTITION_METADATA})


def verify_partition(
    disk: Disk,
    folder: str,
    standing: Standing,
    seen: Seen,
    *,
    records: bool = False,
    only_segment: int | None = None,
) -> Iterator[Finding]:
    """Everything in the folder of one log; or one segment alone, by its base offset, with its indexes."""
    check = _LogCheck(disk, LogFiles(disk, folder), standing, seen, records)
    if only_segment is not None:
        yield from check.one_segment(only_segment)
        yield from check.transaction_indexes([only_segment])
        return
    seen.partitions += 1
    yield from check.stray_files()
    yield from check.segments()
    yield from check.transaction_indexes(check.bases)
    yield from check.producer_snapshots()
    yield from check.epoch_checkpoint()
    yield from check.metadata()
    yield from check.end()


class _LogCheck:
    def __init__(self, disk: Disk, files: LogFiles, standing: Standing, seen: Seen, records: bool) -> None:
        self._disk = disk
        self._files = files
        self._standing = standing
        self._seen = seen
        self._records = records
        self._has_batches = False
        self._damaged = False
        self._epochs = EpochOrder()
        self._epoch_findings: list[Finding] = []
        self._epoch_entries = self._read_epochs()
        self._epoch_starts = frozenset(start for _, start in self._epoch_entries)
        self.order = OffsetOrder(files.bases[0] if files.bases else 0)
        self._snapshots = SnapshotCheck(disk, files, running=standing.running)
        recovered_from = self._recovered_from if files.bases else None
        self._transactions = TransactionCheck(
            disk, files, running=standing.running, recovered_from=recovered_from
        )

    @property
    def bases(self) -> list[int]:
        return self._files.bases

    # Segments

    def segments(self) -> Iterator[Finding]:
        return self._segments(self._files.bases, self._known_end())

    def one_segment(self, base_offset: int) -> Iterator[Finding]:
        """A segment alone, within the bounds that its neighbours' names set."""
        self.order.next_offset = base_offset
        next_base = self._files.next_base(base_offset)
        return self._segments([base_offset], self._known_end() if next_base is None else next_base)

    def _segments(self, bases: list[int], known_end: int | None) -> Iterator[Finding]:
        of_entries = []
        for base_offset in bases:
            view = self._view(base_offset)
            for finding in verify_segment(self._disk, self._files, view, self.order, self._take, self._seen):
                self._damaged |= finding.severity is not Severity.NOTE and finding.path.endswith(names.LOG)
                if finding.kind in (Kind.INDEX_ENTRY, Kind.INDEX_SHORT):
                    of_entries.append(finding)
                else:
                    yield finding
        self.order.finish(known_end)
        for finding in self._offset_findings():
            self._damaged = True
            yield finding
        # An index cannot be judged by batches with wrong offsets.
        misleading = {os.path.splitext(finding.path)[0] for finding in self.order.findings}
        yield from (finding for finding in of_entries if os.path.splitext(finding.path)[0] not in misleading)

    def _offset_findings(self) -> Iterator[Finding]:
        yield from self.order.findings
        partition = names.log_of(os.path.basename(self._files.folder))
        if partition is None or partition.topic not in INTERNAL_TOPICS:
            yield from self.order.gap_findings(self._standing.cleaned_to)

    def _take(self, path: str, batch: Batch) -> None:
        self._has_batches = True
        self._epochs.take(path, batch, batch.header.base_offset in self._epoch_starts)
        self._snapshots.take(batch.header)
        self._transactions.take(path, batch)

    def _view(self, base_offset: int) -> SegmentView:
        recovered_from = self._recovered_from
        return SegmentView(
            base_offset=base_offset,
            next_base=self._files.next_base(base_offset),
            recovered=recovered_from is not None and base_offset >= recovered_from,
            running=self._standing.running,
            clean=self._standing.clean,
            recovery_point=self._standing.recovery_point,
            more_follows=base_offset < self._last_with_data,
            records=self._records,
        )

    @cached_property
    def _last_with_data(self) -> int:
        return max((base for base in self._files.bases if self._size(base)), default=0)

    @cached_property
    def _recovered_from(self) -> int | None:
        """The first segment that the next start will check; None where it will trust all of them."""
        standing, bases = self._standing, self._files.bases
        point = standing.recovery_point
        if standing.running:
            return None
        if standing.clean and point is not None and point >= bases[-1]:
            end_is_known = (self._size(bases[-1]) > 0) == (point > bases[-1])
            if end_is_known:
                return None
        return max([bases[0], *(base for base in bases if base <= (point or 0))])

    def _size(self, base_offset: int) -> int:
        try:
            return self._disk.size(self._files.path(base_offset, names.LOG))
        except OSError:
            return 0

    def _known_end(self) -> int | None:
        """Where the log ends, if something besides its batches tells it."""
        if self._standing.clean and not self._standing.running and self._standing.recovery_point is not None:
            return self._standing.recovery_point
        bases = self._files.bases
        return bases[-1] if len(bases) > 1 and not self._size(bases[-1]) else None

    # Small files

    def transaction_indexes(self, bases: list[int]) -> Iterator[Finding]:
        yield from self._transactions.findings(bases, batches_are_sound=not self._damaged)

    def producer_snapshots(self) -> Iterator[Finding]:
        yield from self._snapshots.findings(batches_are_sound=not self._damaged)

    def stray_files(self) -> Iterator[Finding]:
        if not self._standing.running:  # else it is at work with them
            yield from self._leftovers()
        for name in self._files.names:
            path = f"{self._files.folder}/{name}"
            if name.endswith(LEFTOVER_SUFFIXES):
                continue
            suffix = next((s for s in (*SEGMENT_SUFFIXES, names.SNAPSHOT) if name.endswith(s)), "")
            offset = names.offset_of(name, suffix) if suffix else None
            if offset is not None and name == names.file_name(offset, suffix):
                if suffix in SEGMENT_SUFFIXES and offset not in self._files.bases:
                    yield from self._orphan(path, offset)
            elif name not in KNOWN_FILES:
                yield Finding(
                    Severity.NOTE, Kind.FOREIGN, path, None, "is no file of a log", "It is left alone."
                )

    def _leftovers(self) -> Iterator[Finding]:
        """One finding for each kind: a log that was just shortened or compacted may have hundreds of them."""
        for suffix, advice in LEFTOVERS.items():
            found = [name for name in self._files.names if name.endswith(suffix)]
            if found:
                more = f", with {len(found) - 1} more" if len(found) > 1 else ""
                path = f"{self._files.folder}/{found[0]}"
                yield Finding(Severity.REPAIR, Kind.LEFTOVER, path, None, f"is a leftover{more}", advice)

    def _orphan(self, path: str, offset: int) -> Iterator[Finding]:
        bases, standing = self._files.bases, self._standing
        if standing.running:
            return
        if (bases and offset < bases[0]) or (bases and offset > bases[-1] and not standing.clean):
            advice = "An interrupted removal leaves it; it may be removed."
            yield Finding(Severity.NOTE, Kind.LEFTOVER, path, None, "belongs to no segment", advice)
            return
        what = f"belongs to a segment whose file {names.file_name(offset, names.LOG)} is missing"
        advice = "Its records are lost here: restore the file from a replica or a copy."
        yield Finding(Severity.DAMAGE, Kind.LEFTOVER, path, None, what, advice)

    def _read_epochs(self) -> list[tuple[int, int]]:
        """The entries, where they can be used; what is wrong with them goes to the findings."""
        path = f"{self._files.folder}/{names.LEADER_EPOCHS}"
        try:
            entries = read_epochs(self._disk.read(path))
        except FileNotFoundError:
            return []
        except OSError as error:
            self._epoch_findings.append(unreadable(path, error))
            return []
        except BadCheckpoint as damage:
            advice = "Harmless: the next start makes it anew from the batches."
            self._epoch_findings.append(
                Finding(Severity.REPAIR, Kind.EPOCHS, path, None, f"is malformed: {damage}", advice)
            )
            return []
        for before, entry in zip([(-1, -1), *entries], entries, strict=False):
            if entry[0] <= before[0] or entry[1] <= before[1]:
                what = (
                    f"leader epoch {entry[0]} from offset {entry[1]} on comes after {before[0]}, {before[1]}"
                )
                self._epoch_findings.append(
                    Finding(Severity.DAMAGE, Kind.EPOCHS, path, None, what, REMOVE_EPOCHS)
                )
                return []
        return entries

    def epoch_checkpoint(self) -> Iterator[Finding]:
        path = f"{self._files.folder}/{names.LEADER_EPOCHS}"
        yield from self._epoch_findings
        standing, entries = self._standing, self._epoch_entries
        if not entries and not self._epoch_findings and self._has_batches and not standing.running:
            advice = "Harmless: the next start makes it anew from the batches."
            yield Finding(Severity.REPAIR, Kind.EPOCHS, path, None, "is missing or empty", advice)
        known_to = None if standing.clean and not standing.running else standing.recovery_point or 0
        misleading = {(finding.path, finding.position) for finding in self.order.findings}
        yield from self._epochs.findings(path, entries, known_to, misleading)
        if not entries or standing.running or self._damaged:
            return
        if entries[-1][1] > self.order.next_offset:
            what = f"leader epoch {entries[-1][0]} begins at {entries[-1][1]}, past the end {self.order.next_offset}"
            severity = Severity.DAMAGE if standing.clean else Severity.REPAIR
            advice = REMOVE_EPOCHS if standing.clean else "The next start puts it right."
            yield Finding(severity, Kind.EPOCHS, path, None, what, advice)
        first = max(standing.log_start or 0, self._files.bases[0] if self._files.bases else 0)
        if standing.clean and self._has_batches and entries[0][1] > first:
            what = f"begins with offset {entries[0][1]}, the log with {first}"
            yield Finding(Severity.DAMAGE, Kind.EPOCHS, path, None, what, REMOVE_EPOCHS)

    def metadata(self) -> Iterator[Finding]:
        path = f"{self._files.folder}/{names.PARTITION_METADATA}"
        advice = "The next start of Moldau writes it anew. Kafka does not take the log without it."
        try:
            read_partition_metadata(self._disk.read(path))
        except FileNotFoundError:
            if self._has_batches and not self._standing.running:  # else it is just being written
                yield Finding(Severity.REPAIR, Kind.METADATA, path, None, "is missing", advice)
        except OSError as error:
            yield unreadable(path, error)
        except BadCheckpoint as damage:
            yield Finding(Severity.REPAIR, Kind.METADATA, path, None, str(damage), advice)

    # The end of the log against the checkpoints of its data folder

    def end(self) -> Iterator[Finding]:
        standing, end = self._standing, self.order.next_offset
        if standing.running or self._damaged:
            return
        point, log_start, watermark = standing.recovery_point, standing.log_start, standing.high_watermark
        folder = os.path.dirname(os.path.abspath(self._files.folder))
        log = os.path.basename(self._files.folder)
        if point is not None and (point > end or (standing.clean and point != end)):
            recovery = f"{folder}/{names.RECOVERY_POINTS}"
            what = f"says that {log} is on the disk up to offset {point}; it ends at {end}"
            advice = (
                "Records that were flushed are missing from its end: restore it from a replica or a copy."
            )
            if point < end:
                advice = (
                    f"The next start would go on at {point}: remove {names.CLEAN_SHUTDOWN} beside it, then it"
                    " checks the log."
                )
            yield Finding(Severity.DAMAGE, Kind.CHECKPOINT, recovery, None, what, advice)
        if log_start is not None and log_start > end:
            starts = f"{folder}/{names.LOG_STARTS}"
            what = f"says that {log} begins at offset {log_start}, past its end {end}"
            advice = "The next start would drop all of its records: take the line out, unless that is meant."
            yield Finding(Severity.DAMAGE, Kind.CHECKPOINT, starts, None, what, advice)
        if watermark is not None and watermark > end and not (point is not None and point > end):
            watermarks = f"{folder}/{names.HIGH_WATERMARKS}"
            what = f"says that {log} is committed up to offset {watermark}; it ends at {end}"
            advice = "After a crash that is what was not flushed; the next start puts it right."
            if standing.clean:
                advice = "Committed records are missing from its end: restore it from a replica or a copy."
            severity = Severity.DAMAGE if standing.clean else Severity.REPAIR
            yield Finding(severity, Kind.CHECKPOINT, watermarks, None, what, advice)
