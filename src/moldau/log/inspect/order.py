"""The order of a log's batches: offsets that follow on each other, leader epochs that ascend.

The checksum of a batch covers neither its base offset nor its leader epoch, so what is wrong with them shows
only in the company of the batches around. Of two that contradict each other, the one that also contradicts
its other neighbour is blamed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from moldau.log.inspect.findings import RESTORE, Finding, Kind, Severity, offsets_text
from moldau.log.scan import Batch
from moldau.records.batch import DELETE_HORIZON, BatchHeader

GAPS_KEPT = 20
"""Gaps of one log that are told one by one; more are counted."""
UNCOVERED = "The checksum does not cover this field."
REMOVE_EPOCHS = (
    "Followers would cut off the wrong records. Stop the broker and remove the file: it is made anew from the"
    " batches."
)


class Gap(NamedTuple):
    path: str
    position: int
    first_offset: int
    next_offset: int
    """The first one that is there again."""
    batch: BatchHeader | None
    """Behind the gap; None where it lies between two segments."""


@dataclass(slots=True)
class OffsetOrder:
    """Fed with the segments and batches of a log in order; `findings` are what it saw, gaps come at the end."""

    next_offset: int
    findings: list[Finding] = field(default_factory=list)
    compacted: bool = False
    """A batch has lost records: compaction was here, and gaps are no damage."""
    _gaps: list[Gap] = field(default_factory=list)
    _gap_count: int = 0
    _open_gap: Gap | None = None
    """The gap before the last batch: perhaps there is none, and that batch's offset is wrong."""
    _excused: bool = False
    """The next gap was caused by what was found already."""

    def begin_segment(self, path: str, base_offset: int) -> None:
        if base_offset < self.next_offset:
            if not self._blame_last(base_offset):
                what = f"begins at offset {base_offset}, but the segment before it ends with {self.next_offset - 1}"
                self._found(Kind.OFFSETS, path, None, what, f"One of the two is misplaced. {RESTORE}")
        elif base_offset > self.next_offset:
            self._close_gap()
            self._note_gap(Gap(path, 0, self.next_offset, base_offset, None))
        self.next_offset = base_offset

    def take(self, path: str, batch: Batch) -> None:
        header = batch.header
        if header.count <= header.last_offset_delta or header.attributes & DELETE_HORIZON:
            self.compacted = True
        if header.base_offset < self.next_offset and not self._blame_last(header.base_offset):
            here = offsets_text(header.base_offset, header.last_offset)
            what = f"the batch has {here}, where {self.next_offset} or more is due"
            self._found(Kind.OFFSETS, path, batch.position, what, f"{UNCOVERED} {RESTORE}")
            self._close_gap()
            self._excused = True
            return
        self._close_gap()
        if header.base_offset > self.next_offset:
            gap = Gap(path, batch.position, self.next_offset, header.base_offset, header)
            if not self._excused:
                self._open_gap = gap
        self._excused = False
        self.next_offset = header.next_offset

    def skip_damage(self, next_offset: int | None = None) -> None:
        """A stretch cannot be read, and has been told: what is missing behind it is no further finding."""
        self._close_gap()
        self._excused = True
        if next_offset is not None:
            self.next_offset = max(self.next_offset, next_offset)

    def finish(self, known_end: int | None) -> None:
        """The log ends here. `known_end`: its next offset, where something else tells it."""
        gap = self._open_gap
        if gap is not None and gap.batch is not None:
            without_gap = gap.first_offset + gap.batch.last_offset_delta + 1
            if without_gap == known_end:
                self._blame_last(known_end)
        self._close_gap()

    def gap_findings(self, cleaned_to: int) -> Iterator[Finding]:
        if self.compacted:
            return
        for gap in self._gaps:
            if gap.next_offset <= cleaned_to:
                continue
            missing = offsets_text(gap.first_offset, gap.next_offset - 1)
            more = self._gap_count - len(self._gaps)
            yield Finding(
                Severity.DAMAGE,
                Kind.GAP,
                gap.path,
                gap.position,
                f"{missing} {'is' if gap.next_offset - gap.first_offset == 1 else 'are'} missing before this"
                + (f" (and {more} more gaps follow)" if more and gap is self._gaps[-1] else ""),
                "Only compaction leaves gaps, and no batch shows a trace of it: a file or a part of one is lost."
                f" {RESTORE}",
            )

    def _blame_last(self, offset: int) -> bool:
        """Whether the batch before is at fault: without it, and the gap before it, an offset is in order."""
        gap = self._open_gap
        if gap is None or gap.batch is None or gap.first_offset > offset:
            return False
        here = offsets_text(gap.batch.base_offset, gap.batch.last_offset)
        what = f"the batch has {here}, which cannot lie between {gap.first_offset - 1} and {offset}"
        self._found(Kind.OFFSETS, gap.path, gap.position, what, f"{UNCOVERED} {RESTORE}")
        self.next_offset = gap.first_offset
        self._open_gap = None
        self._excused = True
        return True

    def _close_gap(self) -> None:
        gap, self._open_gap = self._open_gap, None
        if gap is not None:
            self._note_gap(gap)

    def _note_gap(self, gap: Gap) -> None:
        if self._excused:
            self._excused = False
            return
        self._gap_count += 1
        if len(self._gaps) < GAPS_KEPT:
            self._gaps.append(gap)

    def _found(self, kind: Kind, path: str, position: int | None, what: str, advice: str) -> None:
        self.findings.append(Finding(Severity.DAMAGE, kind, path, position, what, advice))


@dataclass(slots=True)
class _Run:
    """Batches in a row with one leader epoch."""

    epoch: int
    path: str
    position: int
    first_offset: int
    batches: int = 1


class EpochOrder:
    """Fed with the batches of a log in order; tells at the end which epochs do not fit."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def take(self, path: str, batch: Batch, boundary: bool) -> None:
        """`boundary`: the checkpoint has an entry that begins with this batch."""
        header = batch.header
        last = self._runs[-1] if self._runs else None
        if last is not None and last.epoch == header.leader_epoch and not boundary:
            last.batches += 1
        else:
            self._runs.append(_Run(header.leader_epoch, path, batch.position, header.base_offset))

    def findings(
        self,
        checkpoint: str,
        entries: list[tuple[int, int]],
        known_to: int | None,
        misleading: set[tuple[str, int | None]],
    ) -> Iterator[Finding]:
        """Against the entries of the checkpoint, which are complete up to `known_to` (None: to the end).

        Batches whose offsets are wrong are `misleading`.
        """
        self._runs = [run for run in self._runs if (run.path, run.position) not in misleading]
        starts = [start for _, start in entries]
        wrong: list[tuple[_Run, int]] = []
        compared = 0
        for run in self._runs:
            index = bisect_right(starts, run.first_offset) - 1
            if index < 0 or (known_to is not None and run.first_offset >= known_to):
                continue
            compared += run.batches
            if entries[index][0] != run.epoch:
                wrong.append((run, entries[index][0]))
        if not compared:
            yield from self._without_checkpoint()
        elif wrong and self._batches_are_right(entries, wrong, compared):
            run, expected = wrong[0]
            yield Finding(
                Severity.DAMAGE,
                Kind.EPOCHS,
                checkpoint,
                None,
                f"says leader epoch {expected} for offset {run.first_offset}, its batch says {run.epoch}",
                REMOVE_EPOCHS,
            )
        else:
            for run, expected in wrong:
                yield _wrong_epoch(run, f"where {expected} is due")

    def _batches_are_right(
        self, entries: list[tuple[int, int]], wrong: list[tuple[_Run, int]], compared: int
    ) -> bool:
        """Whether the checkpoint is to blame: most batches contradict it, or all agree with each other and
        name only epochs that it knows."""
        if 2 * sum(run.batches for run, _ in wrong) > compared:
            return True
        known = {epoch for epoch, _ in entries}
        ascend = all(a.epoch <= b.epoch for a, b in pairwise(self._runs))
        return ascend and all(run.epoch in known for run, _ in wrong)

    def _without_checkpoint(self) -> Iterator[Finding]:
        runs = self._runs
        for index, (before, run) in enumerate(pairwise(runs), 1):
            if run.epoch < before.epoch:
                if index < 2 or runs[index - 2].epoch <= run.epoch:
                    yield _wrong_epoch(before, f"and {run.epoch} follows")
                else:
                    yield _wrong_epoch(run, f"after {before.epoch}")


def _wrong_epoch(run: _Run, why: str) -> Finding:
    return Finding(
        Severity.DAMAGE,
        Kind.LEADER_EPOCH,
        run.path,
        run.position,
        f"the batch at offset {run.first_offset} has leader epoch {run.epoch}, {why}",
        f"{UNCOVERED} Followers may cut off records that they should keep. {RESTORE}",
    )
