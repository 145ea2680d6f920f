"""A folder of segments on a real disk, compacted by the child's own function in this process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moldau.log import names
from moldau.log.cleaner.choice import Shape, groups_of
from moldau.log.cleaner.job import Job, Replaced, Source, Summary
from moldau.log.cleaner.work import compact
from moldau.log.index import read_waiting
from moldau.log.reindex import count_in
from moldau.log.scan import checked_batches
from moldau.log.segment import Segment
from moldau.records.batch import BatchHeader
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.ports import Child
from moldau.runtime.real.clock import RealClock
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def batch_of(offset: int, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> bytes:
    """A batch of keys and values from an offset on."""
    timestamp = options.pop("timestamp", NOW_MS)
    headers = options.pop("headers", ())
    records = [Record(offset + i, timestamp + i, key, value, headers) for i, (key, value) in enumerate(pairs)]
    return build_batch(records, **options)


class Folder:
    """Segments, each given as a list of batches."""

    def __init__(self, path: Path, segments: Sequence[Sequence[bytes]]) -> None:
        self.path = str(path)
        self.disk = RealDisk(Features.detect())
        self.bases: list[int] = []
        self.slept_s: list[float] = []
        self.end_offset = 0
        for batches in segments:
            base_offset = int.from_bytes(batches[0][:8], "big")
            self._write(base_offset, b"".join(batches))
            self.bases.append(base_offset)
        self.end_offset = self.batches()[-1][0].next_offset

    def _write(self, base_offset: int, data: bytes) -> None:
        Path(self._log(base_offset)).write_bytes(data)
        segment = Segment(self.disk, self.path, base_offset, size=0, indexed=False)
        for batch, _ in checked_batches(segment.log, 0, len(data), read_waiting):
            count_in(segment, batch, 4096)
        segment.seal()

    def _log(self, base_offset: int) -> str:
        return f"{self.path}/{names.file_name(base_offset, names.LOG)}"

    @property
    def names(self) -> list[str]:
        return self.disk.list(self.path)

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        found = []
        for base_offset in self.bases:
            file = self.disk.open(self._log(base_offset))
            for batch, data in checked_batches(file, 0, file.size(), read_waiting):
                found.append((batch.header, bytes(data)))
        return found

    def records(self) -> list[Record]:
        return [record for _, data in self.batches() for record in read_records(data)]

    def offsets(self) -> list[int]:
        return [record.offset for record in self.records()]

    def job(self, **options: Any) -> Job:
        options = {
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 10 << 20,
            "end_offset": self.end_offset,
        } | {**options}
        segment_bytes = options.pop("segment_bytes")
        alone = options.pop("alone", False)
        shapes = [Shape(base, self.disk.size(self._log(base)), 0, 0) for base in self.bases]
        groups = groups_of(shapes, options["end_offset"], segment_bytes, 10 << 20)
        if alone:
            groups = tuple((Source(shape.base_offset, shape.size),) for shape in shapes)
        defaults = {
            "folder": self.path,
            "groups": groups,
            "now_ms": NOW_MS,
            "delete_retention_ms": DAY_MS,
            "index_interval_bytes": 4096,
        }
        return Job(**(defaults | options))

    def compact(self, **options: Any) -> Summary:
        """Compact all segments, and put what came of it in its place."""
        reports: list[Replaced] = []
        child = Child(self.disk, RealClock(), self.slept_s.append, reports.append)
        summary = compact(child, self.job(**options))
        for replaced in reports:
            for base_offset in replaced.old:
                for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX):
                    self.disk.remove(f"{self.path}/{names.file_name(base_offset, suffix)}")
            first = self.bases.index(replaced.old[0])
            self.bases[first : first + len(replaced.old)] = replaced.new
        for name in self.names:
            if name.endswith(names.CLEANED):
                self.disk.rename(f"{self.path}/{name}", f"{self.path}/{name.removesuffix(names.CLEANED)}")
        self.reports = reports
        return summary
