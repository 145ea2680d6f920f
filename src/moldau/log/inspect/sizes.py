"""How large the logs of a data folder are, and from when to when their records go. Reads a few pages of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY
from moldau.log.inspect.batches import Window
from moldau.log.inspect.files import TRANSACTION_INDEX, LogFiles, futures_in, partitions_in
from moldau.log.inspect.indexes import last_entry
from moldau.log.scan import DamagedSegment, headers
from moldau.records.batch import DELETE_HORIZON, LOG_APPEND_TIME, BatchHeader
from moldau.runtime.ports import Disk

SizeOf = Callable[[str], int]
_INDEXES = (names.OFFSET_INDEX, names.TIME_INDEX, TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True)
class LogSize:
    partition: TopicPartition
    segments: int
    log_bytes: int
    index_bytes: int
    other_bytes: int
    first_offset: int
    """Of the oldest segment; records below the log start may be among them."""
    next_offset: int
    oldest_ms: int | None
    newest_ms: int | None
    is_future: bool = False
    """A copy that is on its way into the folder."""

    @property
    def bytes(self) -> int:
        return self.log_bytes + self.index_bytes + self.other_bytes


def measure_folder(disk: Disk, path: str, size_of: SizeOf | None = None) -> Iterator[LogSize]:
    """Each log of a data folder. `size_of` tells a file's size where sparse files are to count less."""
    for partition, folder in partitions_in(disk, path):
        yield measure_log(disk, partition, folder, size_of)
    for partition, folder in futures_in(disk, path):
        yield replace(measure_log(disk, partition, folder, size_of), is_future=True)


def measure_log(disk: Disk, partition: TopicPartition, folder: str, size_of: SizeOf | None = None) -> LogSize:
    files = LogFiles(disk, folder)
    log_bytes = index_bytes = other_bytes = 0
    for name in files.names:
        size = _size(size_of or disk.size, f"{folder}/{name}")
        if name.endswith(names.LOG):
            log_bytes += size
        elif name.endswith(_INDEXES):
            index_bytes += size
        else:
            other_bytes += size
    next_offset, tail_newest = _tail(disk, files)
    newest = [stamp for base in files.bases if (stamp := _last_indexed(disk, files, base)) is not None]
    return LogSize(
        partition,
        len(files.bases),
        log_bytes,
        index_bytes,
        other_bytes,
        files.bases[0] if files.bases else 0,
        next_offset,
        _oldest(disk, files),
        max([*newest, *([tail_newest] if tail_newest is not None else [])], default=None),
    )


def first_timestamp(header: BatchHeader) -> int:
    """Of a batch's first record, or as near as its header tells it."""
    if header.attributes & (LOG_APPEND_TIME | DELETE_HORIZON):
        return header.max_timestamp
    return header.base_timestamp


def _size(size_of: SizeOf, path: str) -> int:
    try:
        return size_of(path)
    except FileNotFoundError:
        return 0  # removed by a running broker


def _batches(disk: Disk, files: LogFiles, base_offset: int, position: int) -> Iterator[BatchHeader]:
    """The headers from a position on, as far as they can be read."""
    try:
        path = files.path(base_offset, names.LOG)
        size = disk.size(path)
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        yield from (batch.header for batch in headers(file, position, size, Window(file, size)))
    except DamagedSegment:
        return
    finally:
        file.close()


def _oldest(disk: Disk, files: LogFiles) -> int | None:
    for base_offset in files.bases:
        for header in _batches(disk, files, base_offset, 0):
            stamp = first_timestamp(header)
            return stamp if stamp >= 0 else None
    return None


def _last_indexed(disk: Disk, files: LogFiles, base_offset: int) -> int | None:
    if not files.has(base_offset, names.TIME_INDEX):
        return None
    entry = last_entry(disk, files.path(base_offset, names.TIME_INDEX), TIME_ENTRY)
    return entry[0] if entry else None


def _tail(disk: Disk, files: LogFiles) -> tuple[int, int | None]:
    """The log's next offset, and the newest timestamp behind the last segment's last index entry."""
    if not files.bases:
        return 0, None
    base_offset = files.bases[-1]
    entry = None
    if files.has(base_offset, names.OFFSET_INDEX):
        entry = last_entry(disk, files.path(base_offset, names.OFFSET_INDEX), OFFSET_ENTRY)
    next_offset, newest = base_offset, None
    for position in (entry[1] if entry else 0, 0):
        for header in _batches(disk, files, base_offset, position):
            next_offset = header.next_offset
            if header.max_timestamp >= 0:
                newest = max(newest or 0, header.max_timestamp)
        if next_offset > base_offset:  # else the index leads astray: from the beginning, then
            break
    return next_offset, newest
