"""The files in a log's folder as a start finds them, and what the small ones among them say.

Compactions that were interrupted are finished or undone first, and what a crash left behind is removed. A small file
that is damaged is told, and what it held is taken from elsewhere.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress

from moldau.log import names, swap
from moldau.log.checkpoints import BadCheckpoint, read_epochs, read_partition_metadata
from moldau.log.epochs import LeaderEpochs
from moldau.log.index import read_waiting
from moldau.log.mended import Mend
from moldau.log.producers import ProducerEntry
from moldau.log.scan import DamagedSegment, headers
from moldau.log.segment import Segment
from moldau.log.snapshots import BadSnapshot, read_snapshot
from moldau.runtime.ports import Disk

logger = logging.getLogger(__name__)


class FoundFiles:
    """The names in a log's folder, sorted out."""

    def __init__(self, disk: Disk, folder: str, found: set[str]) -> None:
        self._disk = disk
        self.folder = folder
        self.names = found
        self.bases = self.offsets(names.LOG)
        self.snapshots = self.offsets(names.SNAPSHOT)
        self._tell_missing_segments()

    @classmethod
    def of(cls, disk: Disk, folder: str) -> FoundFiles:
        found = set()
        listed = disk.list(folder)
        if swap.finish_swaps(disk, folder, listed):
            listed = disk.list(folder)
        for name in listed:
            if name.endswith((names.DELETED, names.TEMPORARY)):
                disk.remove(f"{folder}/{name}")  # left by a crash
            else:
                found.add(name)
        return cls(disk, folder, found)

    def _tell_missing_segments(self) -> None:
        """An index without its segment: what a removal leaves at the beginning, and else a loss."""
        indexed = {*self.offsets(names.OFFSET_INDEX), *self.offsets(names.TIME_INDEX)}
        for offset in sorted(indexed.difference(self.bases)):
            if self.bases and offset > self.bases[0]:
                path = self.path(offset, names.LOG)
                logger.error("%s is missing, with its records; its indexes are there", path)

    def offsets(self, suffix: str) -> list[int]:
        return sorted(o for o in (names.offset_of(name, suffix) for name in self.names) if o is not None)

    def path(self, offset: int, suffix: str) -> str:
        return f"{self.folder}/{names.file_name(offset, suffix)}"

    def has(self, offset: int, suffix: str) -> bool:
        return names.file_name(offset, suffix) in self.names

    def remove(self, offset: int, suffix: str) -> None:
        name = names.file_name(offset, suffix)
        if name in self.names:
            self.names.remove(name)
            self._disk.remove(f"{self.folder}/{name}")

    def remove_segment(self, base_offset: int) -> None:
        for suffix in (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TRANSACTION_INDEX):
            self.remove(base_offset, suffix)

    def transaction_indexes(self) -> list[int]:
        """The segments that have an index of aborted transactions."""
        return [base for base in self.bases if self.has(base, names.TRANSACTION_INDEX)]

    def remove_stray_snapshots(self, keep: int) -> None:
        """Snapshots that belong to no segment, but for the one at the end of the log."""
        bases = set(self.bases)
        for offset in self.snapshots:
            if offset != keep and offset not in bases:
                self.remove(offset, names.SNAPSHOT)
        self.snapshots = [o for o in self.snapshots if o == keep or o in bases]

    def topic_id(self) -> uuid.UUID | None:
        if names.PARTITION_METADATA not in self.names:
            return None
        try:
            return read_partition_metadata(self._disk.read(f"{self.folder}/{names.PARTITION_METADATA}"))
        except BadCheckpoint as damage:
            logger.warning("%s: %s", self.folder, damage)
            return None

    def start_of_epochs(self) -> int:
        """Where the log begins as far as its leader epochs know: the oldest one begins with the log."""
        entries = self._epoch_entries()
        return entries[0][1] if entries else 0

    def _epoch_entries(self) -> list[tuple[int, int]]:
        """From the checkpoint; none where it is missing or damaged."""
        if names.LEADER_EPOCHS not in self.names:
            return []
        try:
            return read_epochs(self._disk.read(f"{self.folder}/{names.LEADER_EPOCHS}"))
        except BadCheckpoint as damage:
            logger.warning("%s/%s: %s", self.folder, names.LEADER_EPOCHS, damage)
            return []

    def epochs(
        self, note_mended: Callable[[Mend, str], None], end_offset: int | None = None, begin_offset: int = 0
    ) -> LeaderEpochs:
        """From the checkpoint, or from the batches: where there is none, or it has an epoch from behind the end.

        Epochs before the checkpoint's first come from the batches too. When a log's start moves, epochs that end
        below it are dropped; a crash may then keep the shorter list of epochs, and the old start.
        """
        entries = self._epoch_entries()
        if entries and (end_offset is None or entries[-1][1] <= end_offset):
            if entries[0][1] <= begin_offset:
                return LeaderEpochs(entries)
            epochs = self._epochs_of_batches(entries[0][1])
            for epoch, start_offset in entries:
                epochs.assign(epoch, start_offset)
            return epochs
        if self.bases and self._disk.size(self.path(self.bases[0], names.LOG)):
            note_mended(Mend.EPOCHS, f"{self.folder}/{names.LEADER_EPOCHS} is made anew from the batches")
        return self._epochs_of_batches()

    def _epochs_of_batches(self, below_offset: int | None = None) -> LeaderEpochs:
        epochs = LeaderEpochs()
        for base_offset in self.bases:
            size = self._disk.size(self.path(base_offset, names.LOG))
            segment = Segment(self._disk, self.folder, base_offset, size=size, indexed=False)
            with suppress(DamagedSegment):  # found again, and dealt with, where the batches are checked
                for batch in headers(segment.log, 0, size, read_waiting):
                    if below_offset is not None and batch.header.base_offset >= below_offset:
                        return epochs
                    if batch.header.leader_epoch > epochs.latest:
                        epochs.assign(batch.header.leader_epoch, batch.header.base_offset)
        return epochs

    def snapshot(self, not_above: int) -> tuple[int, list[ProducerEntry]]:
        """The newest good snapshot; (-1, []) where there is none. Damaged ones are removed."""
        for offset in reversed(self.snapshots):
            if offset > not_above:
                continue
            path = self.path(offset, names.SNAPSHOT)
            try:
                return offset, read_snapshot(self._disk.read(path), offset)
            except BadSnapshot as damage:
                logger.warning("%s is removed, producers come from the batches: %s", path, damage)
                self.remove(offset, names.SNAPSHOT)
        return -1, []
