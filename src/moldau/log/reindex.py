"""Building a segment's indexes anew from its batches, beside the old ones, and putting them in their place.

At the start this mends indexes that are missing or cut off. An index whose content is wrong shows only when
it leads a reader astray: then an `IndexMender` has it rebuilt once, and what still cannot be read is
damaged data.
"""

from __future__ import annotations

import asyncio
import errno
import logging

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY, Index, read_waiting
from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.runtime.ports import Disk, Runtime

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
    last_offset = base_offset - 1
    try:
        for batch in headers(segment.log, 0, size, read_waiting):
            if last_offset < batch.header.last_offset <= base_offset + RELATIVE_OFFSET_MAX:
                count_in(segment, batch, index_interval_bytes)
                last_offset = batch.header.last_offset
            else:  # its offset is damaged: no entry may lead to it
                segment.size = batch.end_position
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


class IndexMender:
    """For one log: the segment that was found astray last, and the one rebuilding of its indexes."""

    __slots__ = ("_rebuilding", "_runtime", "_suspect")

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._suspect: int | None = None
        self._rebuilding: asyncio.Task[None] | None = None

    def explain(self, segment: Segment, damage: DamagedSegment) -> Exception:
        """What a reader is told: to wait while the index may be at fault, else that the data is damaged."""
        if self._suspect != segment.base_offset:
            logger.warning("%s; the indexes of the segment are rebuilt", damage)
            self._suspect = segment.base_offset
            self._rebuilding = None
        elif self._rebuilding is not None and self._rebuilding.done():
            logger.error("%s", damage)
            return KafkaError(ErrorCode.corrupt_message, str(damage))
        return BlockingIOError(errno.EAGAIN, "the index must be rebuilt", segment.path)

    async def settled(self) -> None:
        """Wait until nothing is being rebuilt: the segments are about to change."""
        while self._rebuilding is not None and not self._rebuilding.done():
            await asyncio.shield(self._rebuilding)
        self._suspect = self._rebuilding = None

    async def mend(self, segment: Segment, folder: str, index_interval_bytes: int) -> bool:
        """Rebuild the segment's indexes if it is the suspect; whether they are new."""
        if self._suspect != segment.base_offset:
            return False
        if self._rebuilding is None:
            self._rebuilding = self._runtime.tasks.spawn(
                self._rebuild(segment, folder, index_interval_bytes), name=f"rebuild {segment.path}"
            )
        await self._rebuilding
        return True

    async def _rebuild(self, segment: Segment, folder: str, index_interval_bytes: int) -> None:
        disk, base_offset = self._runtime.disk, segment.base_offset
        await self._runtime.tasks.in_thread(
            build_indexes, disk, folder, base_offset, segment.size, index_interval_bytes
        )
        # In one step on the loop's thread: no reader or append sees the old index under the new file.
        install_indexes(disk, folder, base_offset)
        segment.reload_indexes(read_waiting)
