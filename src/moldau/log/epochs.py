"""The leader epochs of a log: at which offset each leader began to write (KIP-101).

Entries ascend in epoch and in start offset. `changed_from` says from which offset on the checkpoint
(`leader-epoch-checkpoint`) is not right any more; the owner writes it before it lets the recovery point pass that.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1
UNCHANGED = 2**63


class EpochEnd(NamedTuple):
    """The largest epoch not above the asked one, and the offset after its last record; -1, -1 if unknown."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    __slots__ = ("_entries", "changed_from", "latest")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self._entries = entries or []
        self.latest = self._entries[-1][0] if self._entries else NO_EPOCH
        self.changed_from = UNCHANGED

    @property
    def changed(self) -> bool:
        return self.changed_from < UNCHANGED

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """The epoch begins at an offset. Entries that contradict it were written by leaders that lost."""
        entries = self._entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return
        lowest = start_offset
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            lowest = min(lowest, entries.pop()[1])
        entries.append((epoch, start_offset))
        self._note_change(lowest)

    def end_offset_for(self, epoch: int, next_offset: int) -> EpochEnd:
        entries = self._entries
        if epoch == NO_EPOCH or epoch > self.latest:
            return EpochEnd(NO_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochEnd(epoch, next_offset)
        index = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if index == 0:
            # Older than all that is known: its records are gone, so the follower may begin at the oldest one.
            return EpochEnd(epoch, entries[0][1])
        return EpochEnd(entries[index - 1][0], entries[index][1])

    def epoch_of(self, offset: int) -> int:
        index = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[index - 1][0] if index else NO_EPOCH

    def truncate_from_end(self, next_offset: int) -> None:
        """Forget epochs that begin at or after the log's new end."""
        entries = self._entries
        if entries and entries[-1][1] >= next_offset:
            while entries and entries[-1][1] >= next_offset:
                lowest = entries.pop()[1]
            self._note_change(lowest)

    def truncate_from_start(self, log_start_offset: int) -> None:
        """Forget epochs that ended before the log's new start; the one it lies in begins there."""
        gone = bisect_right(self._entries, log_start_offset, key=lambda entry: entry[1])
        if gone and (gone > 1 or self._entries[0][1] < log_start_offset):
            epoch = self._entries[gone - 1][0]
            self._entries[:gone] = [(epoch, log_start_offset)]
            self._note_change(0)

    def clear(self) -> None:
        self._entries.clear()
        self._note_change(0)

    def _note_change(self, offset: int) -> None:
        self.latest = self._entries[-1][0] if self._entries else NO_EPOCH
        self.changed_from = min(self.changed_from, offset)

    def note_written(self) -> None:
        self.changed_from = UNCHANGED

    def write_anew(self) -> None:
        """The checkpoint is another one, or none."""
        self.changed_from = 0
