"""Building a segment's indexes anew from its batches, beside the old ones, and putting them in their place."""

from __future__ import annotations

import logging

from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY, Index, read_waiting
from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.log.segment import Segment
from moldau.runtime.ports import Disk

logger = logging.getLogger(__name__)


def count_in(segment: Segment, batch: Batch, index_interval_bytes: int) -> None:
    """Take a batch that lies at the segment's end so far as if it had just been appended."""
    header = batch.header
    segment.append(None, header.size, header.last_offset, header.max_timestamp, index_interval_bytes)


def build_indexes(disk: Disk, folder: str, base_offset: int, size: int, index_interval_bytes: int) -> None:
    """Write and sync new indexes under temporary names. Blocks. Only headers are read, and no data is cut
    off."""
    segment = Segment(disk, folder, base_offset, size=0, indexed=False)
    segment.offsets = _new_index(disk, segment.path + names.OFFSET_INDEX, segment.offsets)
    segment.times = _new_index(disk, segment.path + names.TIME_INDEX, segment.times)
    try:
        for batch in headers(segment.log, 0, size, read_waiting):
            count_in(segment, batch, index_interval_bytes)
    except DamagedSegment as damage:
        logger.error("%s; what lies behind it in this segment cannot be read", damage)
    segment.seal()
    segment.offsets.file.sync()
    segment.times.file.sync()


def install_indexes(disk: Disk, folder: str, base_offset: int) -> None:
    """Put what `build_indexes` wrote in the place of the old indexes."""
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        path = f"{folder}/{names.file_name(base_offset, suffix)}"
        disk.rename(path + names.TEMPORARY, path)


def indexes_look_right(disk: Disk, folder: str, base_offset: int) -> bool:
    """Whether the indexes of a segment are there and hold whole entries."""
    path = f"{folder}/{names.file_name(base_offset, '')}"
    if disk.size(path + names.LOG) == 0:
        return True
    try:
        return not (
            disk.size(path + names.OFFSET_INDEX) % OFFSET_ENTRY.size
            or disk.size(path + names.TIME_INDEX) % TIME_ENTRY.size
        )
    except FileNotFoundError:
        return False


def _new_index(disk: Disk, path: str, like: Index) -> Index:
    index = Index(disk, path + names.TEMPORARY, like.entry)
    index.file.truncate(0)
    return index
