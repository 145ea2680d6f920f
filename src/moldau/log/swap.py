"""Putting compacted segments in the place of the old ones, so that a crash at any point leaves one or the other.

The steps are Kafka's. New files are durable as `.cleaned`; whoever finds such a file at the start removes it.
They are renamed to `.swap`, the data of the first segment last: from then on the swap is decided, and a start
finishes it. Then the old files become `.deleted`, and `.swap` is taken off the new ones. Each step is durable
before the next one is relied upon; a file system keeps the order of renames within a folder.

A start that finishes a swap knows the old segments by the offsets that the new ones hold. One that lies behind
them, because nothing of it was left, comes back: its records have later ones with the same keys, and the next
compaction, for which it is as dirty as before, takes it away again.

Everything here blocks but `put_in_place`, which only renames.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from moldau.log import names
from moldau.log.index import read_waiting
from moldau.log.scan import DamagedSegment, headers
from moldau.runtime.ports import Disk

logger = logging.getLogger(__name__)

SUFFIXES = (names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX, names.LOG)
"""In the order in which they are renamed: where the data is, its indexes are."""


def decide_swap(disk: Disk, folder: str, base_offsets: Iterable[int]) -> None:
    """From here on the new segments are the log's, whatever happens. FileNotFoundError: there is none of one."""
    for base_offset in sorted(base_offsets, reverse=True):
        for suffix in SUFFIXES:
            path = f"{folder}/{names.file_name(base_offset, suffix)}"
            if suffix == names.LOG or disk.exists(path + names.CLEANED):
                disk.rename(path + names.CLEANED, path + names.SWAP)
    disk.sync_folder(folder)


def undo_swap(disk: Disk, folder: str, base_offsets: Sequence[int]) -> None:
    """Give up a swap that was perhaps decided: the old segments are all there."""
    first = f"{folder}/{names.file_name(min(base_offsets), names.LOG)}"
    if disk.exists(first + names.SWAP):
        disk.rename(first + names.SWAP, first + names.CLEANED)  # a start would remove them all from here on
        disk.sync_folder(folder)
    for base_offset in base_offsets:
        for suffix in SUFFIXES:
            for mark in (names.CLEANED, names.SWAP):
                path = f"{folder}/{names.file_name(base_offset, suffix + mark)}"
                if path != first + names.CLEANED and disk.exists(path):
                    disk.remove(path)
    disk.sync_folder(folder)
    if disk.exists(first + names.CLEANED):
        disk.remove(first + names.CLEANED)


def remove_cleaned(disk: Disk, folder: str) -> None:
    """What a compaction left that did not come to its end."""
    for name in disk.list(folder):
        if name.endswith(names.CLEANED):
            disk.remove(f"{folder}/{name}")


def finish_swaps(disk: Disk, folder: str, found: Iterable[str]) -> bool:
    """At the start: undo compactions that were not decided, finish those that were. Whether names changed.

    `found` are the names in the folder.
    """
    left = [name for name in found if name.endswith((names.CLEANED, names.SWAP))]
    if not left:
        return False
    undecided = min(_offsets(left, names.LOG + names.CLEANED), default=None)
    decided = [
        base for base in _offsets(left, names.LOG + names.SWAP) if undecided is None or base < undecided
    ]
    for name in left:
        if name.endswith(names.CLEANED) or int(name.partition(".")[0]) not in decided:
            disk.remove(f"{folder}/{name}")
    if decided:
        logger.info("%s: a compaction that was interrupted is finished", folder)
        _remove_old(disk, folder, decided)
        for base_offset in decided:
            put_in_place(disk, folder, base_offset)
    disk.sync_folder(folder)
    return True


def _offsets(found: Iterable[str], suffix: str) -> list[int]:
    return sorted(o for o in (names.offset_of(name, suffix) for name in found) if o is not None)


def _remove_old(disk: Disk, folder: str, decided: list[int]) -> None:
    """The segments that the new ones replace, as far as they have not gone yet."""
    next_offset = max(_next_offset(disk, folder, base_offset) for base_offset in decided)
    for base_offset in _offsets(disk.list(folder), names.LOG):
        if decided[0] <= base_offset < next_offset:
            kept = () if base_offset not in decided else (names.SNAPSHOT,)
            for suffix in (*SUFFIXES, names.SNAPSHOT):
                path = f"{folder}/{names.file_name(base_offset, suffix)}"
                if suffix not in kept and disk.exists(path):
                    disk.remove(path)
    disk.sync_folder(folder)


def _next_offset(disk: Disk, folder: str, base_offset: int) -> int:
    file = disk.open(f"{folder}/{names.file_name(base_offset, names.LOG + names.SWAP)}")
    next_offset = base_offset
    try:
        for batch in headers(file, 0, file.size(), read_waiting):
            next_offset = batch.header.next_offset
    except DamagedSegment as damage:
        logger.error("%s", damage)
    file.close()
    return next_offset


def put_in_place(disk: Disk, folder: str, base_offset: int) -> None:
    """Take `.swap` off the names of a segment's files, the data last."""
    for suffix in SUFFIXES:
        path = f"{folder}/{names.file_name(base_offset, suffix)}"
        if disk.exists(path + names.SWAP):
            disk.rename(path + names.SWAP, path)
