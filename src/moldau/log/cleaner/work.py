"""A compaction, from end to end, as it runs in a child process.

The log is read twice: once for its keys, once to write what stays of it. Every checksum is verified both times:
damaged data is never written anew as if it were good, the compaction fails and leaves the log as it is. Each
group of segments is reported as soon as its successor is complete, so that no more room on the disk is needed
than for one or two of them. A segment that stays as it is, is not written at all, and one of which nothing is left
becomes a part of the next.
"""

from __future__ import annotations

from moldau.log import names
from moldau.log.cleaner.batches import BatchCleaner
from moldau.log.cleaner.job import GROUP_SEGMENTS_MAX, Job, Replaced, Source, Summary
from moldau.log.cleaner.keys import Keys, Survivors
from moldau.log.cleaner.output import Output
from moldau.log.cleaner.transactions import Transactions
from moldau.log.scan import checked_batches
from moldau.log.segment import RELATIVE_OFFSET_MAX
from moldau.records.batch import BatchHeader, read_header
from moldau.records.record import records_of
from moldau.runtime.ports import Buffer, Child, File

SPILL = ".keys" + names.CLEANED
BURST_S = 0.1
"""What may be read and written at once before the rate is looked at."""


class Throttle:
    """Keeps to a number of bytes per second, by sleeping."""

    def __init__(self, child: Child, bytes_per_second: float) -> None:
        self._child = child
        self._bytes_per_second = bytes_per_second
        self._free_at_s = child.clock.monotonic()
        self.bytes_total = 0

    def spend(self, count: int) -> None:
        self.bytes_total += count
        now_s = self._child.clock.monotonic()
        self._free_at_s = max(self._free_at_s, now_s - BURST_S) + count / self._bytes_per_second
        if self._free_at_s > now_s:
            self._child.sleep(self._free_at_s - now_s)


def compact(child: Child, job: Job) -> Summary:
    """Reports a `Replaced` for each group of segments that has a successor."""
    return _Compaction(child, job).run()


class _Compaction:
    def __init__(self, child: Child, job: Job) -> None:
        self._child = child
        self._disk = child.disk
        self._job = job
        self._throttle = Throttle(child, job.bytes_per_second)
        self._written_bytes = 0
        self._records_after = self._bytes_after = 0
        self._number = 0
        """Of the next record, in the order of the log."""
        self._vanished: list[int] = []
        """Segments of which nothing is left, and that have no successor yet."""
        self._transactions = Transactions()
        first = job.groups[0][0].base_offset
        spill = f"{job.folder}/{names.file_name(first, SPILL)}"
        self._keys = Keys(child.disk, spill, job.dedupe_bytes)

    def run(self) -> Summary:
        began_s = self._child.clock.monotonic()
        job = self._job
        self._remove_leftovers()
        self._collect_keys()
        self._transactions = Transactions(job.aborted)
        cleaner = BatchCleaner(
            Survivors(self._keys, job.dedupe_bytes),
            self._transactions,
            job.last_records,
            end_offset=job.end_offset,
            now_ms=job.now_ms,
            delete_retention_ms=job.delete_retention_ms,
        )
        for group in job.groups:
            self._clean_group(group, cleaner)
        if self._vanished:
            self._report_vanished()
        self._keys.close()
        return Summary(
            records_before=self._keys.record_count,
            records_after=self._records_after,
            bytes_before=sum(source.size for source in job.sources),
            bytes_after=self._bytes_after,
            bytes_read=self._throttle.bytes_total - self._written_bytes,
            bytes_written=self._written_bytes,
            duration_s=self._child.clock.monotonic() - began_s,
        )

    def _remove_leftovers(self) -> None:
        """Of a compaction that was stopped."""
        for name in self._disk.list(self._job.folder):
            if name.endswith(names.CLEANED):
                self._disk.remove(f"{self._job.folder}/{name}")

    def _read(self, file: File, length: int, position: int) -> bytes:
        data = file.pread(length, position)
        self._throttle.spend(len(data))
        return data

    def _open(self, source: Source) -> File:
        return self._disk.open(f"{self._job.folder}/{names.file_name(source.base_offset, names.LOG)}")

    def _collect_keys(self) -> None:
        transactions = Transactions(self._job.aborted)
        for source in self._job.sources:
            file = self._open(source)
            for found, batch in checked_batches(file, 0, source.size, self._read):
                header = found.header
                if transactions.may_discard(header, batch) or header.is_control:
                    self._keys.pass_over(header.count)
                elif header.count:
                    self._keys.add(bytes(records_of(batch, header)), header.count)
            file.close()

    def _clean_group(self, group: tuple[Source, ...], cleaner: BatchCleaner) -> None:
        aborted_before = len(self._transactions.remaining)
        is_changed = len(group) > 1  # a lone segment is not copied before something in it changes
        output: Output | None = None
        for source in group:
            file = self._open(source)
            for found, batch in checked_batches(file, 0, source.size, self._read):
                header = found.header
                cleaned = cleaner.clean(header, batch, self._number)
                self._number += header.count
                if not is_changed and cleaned is not batch:
                    is_changed = True
                    if found.position:
                        output = self._begin_output(group, header)
                        self._copy_before(output, file, found.position)
                if cleaned is not None:
                    if is_changed and output is None:
                        output = self._begin_output(group, header)
                    self._keep(output, header, cleaned, cleaned is batch)
            file.close()
        old = tuple(source.base_offset for source in group)
        if output is not None:
            self._report(output, (*self._vanished, *old), aborted_before)
        elif is_changed:
            self._vanished += old
        if self._vanished and (not is_changed or len(self._vanished) >= GROUP_SEGMENTS_MAX):
            self._report_vanished()

    def _begin_output(self, group: tuple[Source, ...], first: BatchHeader) -> Output:
        """Segments before it of which nothing is left are taken in: it begins where they did, unless its first
        batch is too far from there."""
        if self._vanished and first.last_offset - self._vanished[0] > RELATIVE_OFFSET_MAX:
            self._report_vanished()
        return self._new_output(self._vanished[0] if self._vanished else group[0].base_offset)

    def _new_output(self, base_offset: int) -> Output:
        output = Output(
            self._disk,
            self._job.folder,
            index_interval_bytes=self._job.index_interval_bytes,
            index_bytes_max=self._job.segment_index_bytes,
            buffer_bytes=self._job.io_bytes,
        )
        output.begin(base_offset)
        return output

    def _report(self, output: Output, old: tuple[int, ...], aborted_before: int) -> None:
        output.finish(self._transactions.remaining[aborted_before:])
        self._child.report(Replaced(old, tuple(output.base_offsets)))
        self._vanished = []

    def _report_vanished(self) -> None:
        """An empty segment stands for those of which nothing is left: who reads there is led on."""
        nothing = len(self._transactions.remaining)
        self._report(self._new_output(self._vanished[0]), tuple(self._vanished), nothing)

    def _copy_before(self, output: Output, file: File, position: int) -> None:
        for found, batch in checked_batches(file, 0, position, self._read):
            self._write(output, found.header, batch)

    def _keep(self, output: Output | None, header: BatchHeader, batch: Buffer, as_it_was: bool) -> None:
        if not as_it_was:
            header = read_header(batch)
        self._records_after += header.count
        self._bytes_after += len(batch)
        if output is not None:
            self._write(output, header, batch)

    def _write(self, output: Output, header: BatchHeader, batch: Buffer) -> None:
        output.append(header, batch)
        self._written_bytes += len(batch)
        self._throttle.spend(len(batch))
