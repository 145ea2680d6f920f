"""The content of a log's files, piece by piece, for whoever wants to see it. Damage is passed over, and told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, read_waiting
from moldau.log.inspect.batches import BadStretch, batches_and_damage
from moldau.log.inspect.files import LogFiles
from moldau.log.inspect.indexes import IndexFile
from moldau.log.scan import Batch, DamagedSegment, headers
from moldau.records.record import BadRecord, Record, iterate_records
from moldau.runtime.ports import Disk


@dataclass(frozen=True, slots=True)
class BatchContent:
    """One batch; `records` are there where they were asked for."""

    batch: Batch
    records: list[Record] | None = None
    damage: str = ""
    """Why the records cannot be read, although the checksum is right."""


def segment_content(
    disk: Disk, files: LogFiles, base_offset: int, *, from_offset: int = 0, decode: bool = False
) -> Iterator[BatchContent | BadStretch]:
    """The batches of a segment that reach an offset or lie behind it."""
    path = files.path(base_offset, names.LOG)
    size = disk.size(path)
    file = disk.open(path)
    try:
        position = position_of(disk, files, base_offset, from_offset)
        for found in batches_and_damage(file, size, position=position, next_offset=base_offset):
            if isinstance(found, BadStretch):
                yield found
            elif found.header.last_offset < from_offset:
                continue
            elif not decode:
                yield BatchContent(found)
            else:
                yield _decoded(found, file.pread(found.header.size, found.position), from_offset)
    finally:
        file.close()


def position_of(disk: Disk, files: LogFiles, base_offset: int, offset: int) -> int:
    """Where to begin to read for an offset: as the index says, if a batch begins there, else at 0."""
    if offset <= base_offset or not files.has(base_offset, names.OFFSET_INDEX):
        return 0
    position = 0
    for entry in IndexFile(disk, files.path(base_offset, names.OFFSET_INDEX), OFFSET_ENTRY).entries():
        if base_offset + entry.fields[0] > offset:
            break
        position = entry.fields[1]
    path = files.path(base_offset, names.LOG)
    try:
        first = next(headers(disk.open(path), position, disk.size(path), read_waiting), None)
    except DamagedSegment:
        return 0
    return position if first is not None and first.header.base_offset <= offset else 0


def _decoded(batch: Batch, data: bytes, from_offset: int) -> BatchContent:
    try:
        records = [record for record in iterate_records(data) if record.offset >= from_offset]
    except BadRecord as damage:
        return BatchContent(batch, None, str(damage))
    return BatchContent(batch, records)
