"""Verifying the indexes of aborted transactions against the markers in the log.

Each marker that aborts records of the log must have an entry with its segment, and each entry its marker. An entry
may speak of records that are gone: compaction removes them before their marker.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.log import names
from moldau.log.inspect.files import LogFiles
from moldau.log.inspect.findings import Finding, Kind, Severity, unreadable
from moldau.log.inspect.indexes import Entry, IndexFile, wrong_transactions
from moldau.log.scan import Batch
from moldau.log.transactions import read_marker
from moldau.log.transactions_index import ENTRY
from moldau.runtime.ports import Disk

MEANS = "Consumers of committed records may see aborted ones, or miss some."
MAKE_ANEW = (
    f"{MEANS} Stop the broker and put a file with a single byte in its place: the next start takes it for damaged,"
    " and makes it anew from the batches."
)
REBUILT = "The next start makes it anew from the batches."


class _Abort(NamedTuple):
    producer_id: int
    first_offset: int | None
    """Of the first of its records that are in the log; None where none is."""


class TransactionCheck:
    """Fed with a log's batches in order."""

    def __init__(self, disk: Disk, files: LogFiles, *, running: bool, recovered_from: int | None) -> None:
        """`recovered_from`: the first segment whose index the next start makes anew anyway."""
        self._disk = disk
        self._files = files
        self._running = running
        self._recovered_from = recovered_from
        self._open: dict[int, int] = {}
        """Producer id to the first offset of its transaction."""
        self._aborts: dict[int, dict[int, _Abort]] = {}
        """Base offset of the segment, then offset of the marker."""

    def take(self, path: str, batch: Batch) -> None:
        header = batch.header
        if not header.is_transactional:
            return
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        file = self._disk.open(path)
        try:
            marker = read_marker(file.pread(header.size, batch.position))
        finally:
            file.close()
        if marker is None:
            return
        first_offset = self._open.pop(header.producer_id, None)
        if not marker.is_commit:
            base_offset = names.offset_of(path.rpartition("/")[2], names.LOG)
            assert base_offset is not None, path
            segment = self._aborts.setdefault(base_offset, {})
            segment[header.base_offset] = _Abort(header.producer_id, first_offset)

    def findings(self, bases: list[int], *, batches_are_sound: bool) -> Iterator[Finding]:
        """At the end of the log, of some of its segments: of each index the first thing that is wrong. Damaged
        batches say nothing about an index."""
        for base_offset in bases:
            if self._running and base_offset == self._files.bases[-1]:
                return  # it is being written to
            found = self._malformed(base_offset)
            if found is None and batches_are_sound:
                found = self._contradiction(base_offset, self._aborts.get(base_offset, {}))
            if found is not None:
                yield found

    def _malformed(self, base_offset: int) -> Finding | None:
        """What a start sees for itself."""
        index = self._index(base_offset)
        if index is None:
            return None
        wrong = wrong_transactions(base_offset, self._files.next_base(base_offset), index.entries())
        if index.error is not None:
            return unreadable(index.path, index.error)
        if wrong is not None:
            kind, position, what = Kind.INDEX_ENTRY, wrong.first.position, f"an entry {wrong.what}"
        elif index.zeroes_at is not None:
            kind, position, what = Kind.INDEX_ZEROES, index.zeroes_at, "has zeroes in the place of entries"
        elif index.rest_bytes:
            kind, position, what = Kind.INDEX_CUT, index.size - index.rest_bytes, "ends within an entry"
        else:
            return None
        if self._running:
            return Finding(Severity.DAMAGE, kind, index.path, position, what, f"{MEANS} {REBUILT}")
        return Finding(Severity.REPAIR, kind, index.path, position, what, REBUILT)

    def _contradiction(self, base_offset: int, aborts: dict[int, _Abort]) -> Finding | None:
        """What only the batches tell."""
        path = self._files.path(base_offset, names.TRANSACTION_INDEX)
        index = self._index(base_offset)
        entries = {entry.fields[3]: entry for entry in index.entries()} if index is not None else {}
        for offset, abort in sorted(aborts.items()):
            what = _wrong(abort, entries.pop(offset, None), offset)
            if what and index is None:
                return self._found(base_offset, Kind.INDEX_MISSING, path, None, f"is missing, so it {what}")
            if what:
                return self._found(base_offset, Kind.INDEX_SHORT, path, None, what)
        for offset, entry in entries.items():
            what = f"says that a transaction was aborted at offset {offset}, where no marker says so"
            return self._found(base_offset, Kind.INDEX_ENTRY, path, entry.position, what)
        return None

    def _index(self, base_offset: int) -> IndexFile | None:
        if not self._files.has(base_offset, names.TRANSACTION_INDEX):
            return None
        return IndexFile(self._disk, self._files.path(base_offset, names.TRANSACTION_INDEX), ENTRY)

    def _found(self, base_offset: int, kind: Kind, path: str, position: int | None, what: str) -> Finding:
        if self._recovered_from is not None and base_offset >= self._recovered_from:
            return Finding(Severity.REPAIR, kind, path, position, what, REBUILT)
        return Finding(Severity.DAMAGE, kind, path, position, what, MAKE_ANEW)


def _wrong(abort: _Abort, entry: Entry | None, offset: int) -> str:
    if abort.first_offset is None:
        return ""  # there is nothing that a reader would have to leave out
    if entry is None:
        return f"does not tell of the transaction of producer {abort.producer_id} that was aborted at offset {offset}"
    _, producer_id, first_offset, _, _ = entry.fields
    if producer_id != abort.producer_id or first_offset > abort.first_offset:
        return (
            f"says that producer {producer_id} began at {first_offset} what was aborted at offset {offset};"
            f" it was producer {abort.producer_id}, at {abort.first_offset}"
        )
    return ""
