"""New segments, written as `.cleaned` files beside the old ones.

They are complete and durable when `finish` returns. A group of segments becomes one, unless it would outgrow
what a segment can hold (its indexes count positions and offsets in 32 bits, and have a limit of their own):
then another one is begun. The data is synced as it is written, so that there is never much for the disk to
catch up with while others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.log import names
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.log.transactions import Aborted
from moldau.log.transactions_index import packed
from moldau.records.batch import BatchHeader
from moldau.runtime.ports import Buffer, Disk, File

POSITION_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1
SYNC_BYTES = 16 * 1024 * 1024
NEVER_MS = 2**62


class Output:
    def __init__(
        self, disk: Disk, folder: str, *, index_interval_bytes: int, index_bytes_max: int, buffer_bytes: int
    ) -> None:
        self._disk = disk
        self._folder = folder
        self._index_interval_bytes = index_interval_bytes
        self._index_bytes_max = index_bytes_max
        self._buffer_bytes = buffer_bytes
        self._buffer = bytearray()
        self._segment: Segment | None = None
        self._unsynced_bytes = 0
        self.base_offsets: list[int] = []
        self.bytes_written = 0

    def begin(self, base_offset: int) -> None:
        """A new segment, which may stay empty."""
        self._complete()
        segment = Segment(self._disk, self._folder, base_offset, size=0, indexed=False, suffix=names.CLEANED)
        segment.set_limits(NEVER_MS, self._index_bytes_max)
        segment.log  # noqa: B018 (opening creates it)
        self._segment = segment
        self.base_offsets.append(base_offset)

    def append(self, header: BatchHeader, batch: Buffer) -> None:
        segment = self._current
        size = len(batch)
        if segment.size and (
            segment.size + size > POSITION_MAX
            or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.full
        ):
            self.begin(header.base_offset)
            segment = self._current
        segment.append(None, size, header.last_offset, header.max_timestamp, self._index_interval_bytes)
        self._buffer += batch
        if len(self._buffer) >= self._buffer_bytes:
            self._write(segment)

    @property
    def _current(self) -> Segment:
        assert self._segment is not None
        return self._segment

    def _write(self, segment: Segment) -> None:
        position = segment.size - len(self._buffer)
        write_all(segment.log, self._buffer, position)
        self.bytes_written += len(self._buffer)
        self._unsynced_bytes += len(self._buffer)
        self._buffer = bytearray()
        if self._unsynced_bytes >= SYNC_BYTES:
            segment.log.sync()
            self._unsynced_bytes = 0

    def _complete(self) -> None:
        segment = self._segment
        if segment is not None:
            self._write(segment)
            segment.seal()
            segment.sync()
            for file in (segment.log, segment.offsets.file, segment.times.file):
                file.close()
            self._segment = None

    def finish(self, aborted: Sequence[Aborted]) -> None:
        """Everything is on the disk, under names that no one looks for yet.

        `aborted` are the transactions that the indexes of the new segments have to tell of, in order.
        """
        self._complete()
        for base_offset, stop in zip(self.base_offsets, [*self.base_offsets[1:], OFFSET_MAX], strict=True):
            entries = [entry for entry in aborted if base_offset <= entry.last_offset < stop]
            if entries:
                name = names.file_name(base_offset, names.TRANSACTION_INDEX + names.CLEANED)
                file = self._disk.open(f"{self._folder}/{name}", create=True)
                write_all(file, packed(entries), 0)
                file.sync()
                file.close()
        self._disk.sync_folder(self._folder)


def write_all(file: File, data: Buffer, position: int) -> None:
    view = memoryview(data)
    while view:
        written = file.pwrite(view, position)
        view = view[written:]
        position += written
