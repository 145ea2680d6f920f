"""KRaft's metadata as it lies in `__cluster_metadata-0`: the newest snapshot, and the log from there on.

Every batch is checked (length, checksum, offsets without a gap), and a snapshot must be whole: metadata that is not
exactly what Kafka wrote would make topics disappear. `BadMetadata` names the file and the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from moldau.importer.kraft_records import BadRecord, MetadataRecord, UnknownRecord, decode
from moldau.log import names
from moldau.log.index import read_waiting
from moldau.log.inspect.files import METADATA_LOG, LogFiles
from moldau.log.scan import DamagedSegment, checked_batches
from moldau.records import record as records
from moldau.runtime.ports import Disk
from moldau.wire.primitives import WireError, read_uvarint

FOLDER = str(METADATA_LOG)
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_CONTROL_KEY = Struct(">hh")
"""Version and type."""
_LEADER_CHANGE, _SNAPSHOT_FOOTER, _VOTERS = 2, 4, 6
_VOTERS_AT = {_LEADER_CHANGE: 6, _VOTERS: 2}
"""Where in a control record's value the voters begin: after its version and, of the first, the leader's id."""


class BadMetadata(Exception):
    """The metadata cannot be read; the text says where and why."""


class WrittenByNewer(BadMetadata):
    """The metadata holds something that Kafka 4.3 does not know."""


class Voters(NamedTuple):
    """How many controllers vote from here on."""

    count: int  # type: ignore[assignment]  # as in Kafka's messages


class _Footer(NamedTuple):
    """The end of a snapshot."""


Entry = MetadataRecord | Voters


def read_metadata(disk: Disk, folder: str) -> Iterator[Entry]:
    """Everything in order; the state after the last entry is the cluster's."""
    snapshot = newest_snapshot(disk, folder)
    next_offset = 0
    if snapshot is not None:
        next_offset, name = snapshot
        yield from _read_snapshot(disk, f"{folder}/{name}")
    yield from _read_log(disk, folder, next_offset)


def newest_snapshot(disk: Disk, folder: str) -> tuple[int, str] | None:
    """The offset after the last record that it holds, and its name."""
    found = [
        (int(match[1]), int(match[2]), match[0])
        for match in map(_SNAPSHOT.fullmatch, disk.list(folder))
        if match
    ]
    if not found:
        return None
    next_offset, _, name = max(found)
    return next_offset, name


def _read_snapshot(disk: Disk, path: str) -> Iterator[Entry]:
    complete = False
    for _, entry in _entries(disk, path):
        complete = isinstance(entry, _Footer)
        if entry is not None and not isinstance(entry, _Footer):
            yield entry
    if not complete:
        raise BadMetadata(f"{path} is cut off: it has no footer")


def _read_log(disk: Disk, folder: str, next_offset: int) -> Iterator[Entry]:
    files = LogFiles(disk, folder)
    for base_offset in files.segments_from(next_offset):
        path = files.path(base_offset, names.LOG)
        if base_offset > next_offset:
            raise BadMetadata(f"{path} begins at {base_offset}, but {next_offset} is due")
        for offset, entry in _entries(disk, path, base_offset):
            if offset >= next_offset:
                next_offset = offset + 1
                if entry is not None and not isinstance(entry, _Footer):
                    yield entry


def _entries(
    disk: Disk, path: str, next_offset: int | None = None
) -> Iterator[tuple[int, Entry | _Footer | None]]:
    """The records of a file with their offsets, None for those passed over."""
    file = disk.open(path)
    try:
        for batch, data in checked_batches(file, 0, disk.size(path), read_waiting):
            where = f"{path} at {batch.position}"
            if next_offset is not None and batch.header.base_offset != next_offset:
                raise BadMetadata(f"{where}: offset {batch.header.base_offset} where {next_offset} is due")
            next_offset = batch.header.next_offset
            for record in records.iterate_records(data):
                yield record.offset, _entry(record, batch.header.is_control)
    except DamagedSegment as damage:
        raise BadMetadata(str(damage)) from None
    except (records.BadRecord, BadRecord) as damage:
        raise BadMetadata(f"{where}: {damage}") from None
    except UnknownRecord as unknown:
        raise WrittenByNewer(f"{where}: {unknown} is not known") from None
    finally:
        file.close()


def _entry(record: records.Record, control: bool) -> Entry | _Footer | None:
    value = record.value or b""
    if not control:
        return decode(value)
    try:
        _, type_ = _CONTROL_KEY.unpack(record.key or b"")
        if type_ == _SNAPSHOT_FOOTER:
            return _Footer()
        if type_ in _VOTERS_AT:
            count, _ = read_uvarint(memoryview(value), _VOTERS_AT[type_])
            return Voters(count - 1)
    except (error, IndexError, WireError) as damage:
        raise BadRecord(f"no control record: {damage}") from None
    return None
