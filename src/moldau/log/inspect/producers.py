"""Verifying producer snapshots: readable, in their place, and in agreement with the batches before them."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.log import names
from moldau.log.inspect.files import LogFiles
from moldau.log.inspect.findings import Finding, Kind, Severity, unreadable
from moldau.log.producers import ProducerEntry
from moldau.log.snapshots import BadSnapshot, read_snapshot
from moldau.records.batch import BatchHeader
from moldau.runtime.ports import Disk

REMOVED = "Harmless: the next start removes it, and reads the producers' state from the batches."
REMOVE = (
    "Retries of its producers may be stored twice or refused. Stop the broker and remove the file: the state is"
    " read from the batches."
)


class SnapshotCheck:
    """Fed with the headers of a log's batches in order."""

    def __init__(self, disk: Disk, files: LogFiles, *, running: bool) -> None:
        self._disk = disk
        self._files = files
        self._running = running
        self._coming = list(reversed(files.snapshots))
        self._producers: dict[int, tuple[int, int]] = {}
        """Epoch and last offset of each producer so far."""
        self._findings: list[Finding] = []
        self._contradictions: list[Finding] = []

    def take(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1] <= header.base_offset:
            self._check(self._coming.pop())
        if header.producer_id >= 0 and not header.is_control:
            self._producers[header.producer_id] = (header.producer_epoch, header.last_offset)

    def findings(self, *, batches_are_sound: bool) -> Iterator[Finding]:
        """At the end of the log. A snapshot is not judged by batches that are damaged themselves."""
        while self._coming:
            self._check(self._coming.pop())
        yield from self._findings
        if batches_are_sound:
            yield from self._contradictions

    def _check(self, offset: int) -> None:
        path = self._files.path(offset, names.SNAPSHOT)
        try:
            entries = read_snapshot(self._disk.read(path))
        except FileNotFoundError:
            return  # removed since the folder was read
        except OSError as error:
            self._findings.append(unreadable(path, error))
            return
        except BadSnapshot as damage:
            found = Finding(Severity.REPAIR, Kind.SNAPSHOT, path, None, f"is damaged: {damage}", REMOVED)
            self._findings.append(found)
            return
        for entry in entries:
            if entry.last_offset >= offset:
                what = f"has a batch of producer {entry.producer_id} at offset {entry.last_offset}, which comes after"
                self._findings.append(Finding(Severity.DAMAGE, Kind.SNAPSHOT, path, None, what, REMOVE))
                return
        what = next(filter(None, map(self._contradiction, entries)), "")
        if what:
            self._contradictions.append(Finding(Severity.DAMAGE, Kind.SNAPSHOT, path, None, what, REMOVE))

    def _contradiction(self, entry: ProducerEntry) -> str:
        known = self._producers.get(entry.producer_id)
        if known is None or self._running or not entry.batches:
            return ""
        epoch, last_offset = known
        if entry.epoch != epoch or entry.last_offset == last_offset:
            return ""
        return f"has producer {entry.producer_id} at offset {entry.last_offset}, but its last batch is at {last_offset}"
