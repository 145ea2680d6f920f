"""A log as a plain list: what it must hold after each step, and what a crash may leave of it.

`Stored` is one batch as it was acknowledged. The list keeps every batch that may still come back (a crash undoes a
move of the log's start that was not checkpointed); what readers see is cut out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

BATCHES_KEPT = 5
"""Retries that are recognised: of a producer's last batches."""


class Row(NamedTuple):
    """One record, as a consumer reads it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class Sequence(NamedTuple):
    """What an idempotent producer says of a batch."""

    producer_id: int
    epoch: int
    first: int


@dataclass(frozen=True)
class Stored:
    base_offset: int
    last_offset: int
    rows: tuple[Row, ...]
    leader_epoch: int
    data: bytes
    """As it was sent, for a retry."""
    sequence: Sequence | None = None
    is_transactional: bool = False
    ends: tuple[int, bool] | None = None
    """Of a marker: the producer whose transaction it ends, and whether it commits."""
    marked_ms: int = -1
    """Of a marker: its time, by which it is found like a record."""

    @property
    def next_offset(self) -> int:
        return self.last_offset + 1

    @property
    def next_sequence(self) -> int:
        assert self.sequence is not None
        return self.sequence.first + self.next_offset - self.base_offset


class Transactions(NamedTuple):
    open: dict[int, int]
    """By producer: the offset of the first record."""
    aborted: set[int]
    """The offsets of the records."""


@dataclass
class LogModel:
    batches: list[Stored] = field(default_factory=list)
    start: int = 0
    end: int = 0
    start_durable: int = 0
    """The start that was checkpointed last: a crash may bring back what lies between."""
    durable: int = 0
    """Everything below was acknowledged after a sync."""
    compacted_to: int = 0
    committed_to: int = 0
    """Where the log ended when it was compacted: what is compacted, and decided transactions, are on all replicas."""
    tombstones: dict[Row, int] = field(default_factory=dict)
    """Those that a compaction has seen, and when the first one did."""
    forgotten: set[int] = field(default_factory=set)
    """Producers that the log may have forgotten: their batches are gone, and it was opened anew since."""

    # What readers see

    @property
    def rows(self) -> list[Row]:
        return [row for row in self._all_rows() if row.offset >= self.start]

    def _all_rows(self) -> Iterator[Row]:
        return (row for stored in self.batches for row in stored.rows)

    def _timed_rows(self) -> Iterator[Row]:
        """With markers, which have a time too."""
        for stored in self.batches:
            yield from stored.rows
            if stored.ends is not None:
                yield Row(stored.base_offset, stored.marked_ms, None, None)

    @property
    def has_markers(self) -> bool:
        return any(stored.ends is not None for stored in self.batches)

    def transactions(self) -> Transactions:
        """What the batches say of them."""
        known = Transactions({}, set())
        records: dict[int, list[int]] = {}
        for stored in self.batches:
            if stored.is_transactional and stored.sequence is not None:
                producer_id = stored.sequence.producer_id
                known.open.setdefault(producer_id, stored.base_offset)
                records.setdefault(producer_id, []).extend(row.offset for row in stored.rows)
            elif stored.ends is not None:
                producer_id, commit = stored.ends
                known.open.pop(producer_id, None)
                ended = records.pop(producer_id, [])
                if not commit:
                    known.aborted.update(ended)
        return known

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        timed = (row for row in self._timed_rows() if row.offset >= self.start)
        found = next((row for row in timed if row.timestamp >= timestamp), None)
        return found and (found.timestamp, found.offset)

    def newest_from(self, first: int) -> tuple[int, int] | None:
        """The first record that has the largest timestamp, from an offset on."""
        rows = [row for row in self._timed_rows() if row.offset >= first]
        newest = max(rows, key=lambda row: row.timestamp, default=None)
        return newest and (newest.timestamp, newest.offset)

    @property
    def has_emptied(self) -> bool:
        """Whether compaction has left nothing of some batch but, maybe, its header."""
        return any(not stored.rows for stored in self.batches)

    def newest_in(self, first: int, last: int) -> int:
        """The largest timestamp of the offsets in between."""
        return max((row.timestamp for row in self._timed_rows() if first <= row.offset < last), default=-1)

    def epoch_of(self, offset: int) -> int | None:
        found = (s.leader_epoch for s in self.batches if s.base_offset <= offset <= s.last_offset)
        return next(found, None)

    # Producers

    def of_producer(self, producer_id: int) -> list[Stored]:
        """Its batches of its last epoch, oldest first."""
        its = [s for s in self.batches if s.sequence and s.sequence.producer_id == producer_id]
        return [s for s in its if s.sequence and s.sequence.epoch == its[-1].sequence.epoch]  # type: ignore[union-attr]

    def producer_ids(self) -> list[int]:
        return sorted({s.sequence.producer_id for s in self.batches if s.sequence})

    def is_sure_of(self, producer_id: int) -> bool:
        """Whether the log must know the producer."""
        its = self.of_producer(producer_id)
        return bool(its) and producer_id not in self.forgotten

    # What changes it

    def append(self, stored: Stored) -> None:
        assert stored.base_offset == self.end
        self.batches.append(stored)
        self.end = stored.next_offset
        if stored.sequence is not None:
            self.forgotten.discard(stored.sequence.producer_id)

    def append_marker(self, producer_id: int, commit: bool, now_ms: int, leader_epoch: int) -> None:
        end = self.end
        self.append(Stored(end, end, (), leader_epoch, b"", ends=(producer_id, commit), marked_ms=now_ms))

    def end_at(self, offset: int) -> int:
        """Where the log ends when it is truncated to an offset: before the batch that reaches over it."""
        over = [s.base_offset for s in self.batches if s.base_offset < offset <= s.last_offset]
        return min(over, default=offset)

    def cut_off(self, end: int) -> None:
        self.batches = [stored for stored in self.batches if stored.last_offset < end]
        self.end = end
        self.durable = min(self.durable, end)
        self.compacted_to, self.committed_to = min(self.compacted_to, end), min(self.committed_to, end)

    def begin_anew(self, offset: int) -> None:
        self.batches.clear()
        self.start = self.start_durable = self.end = self.durable = offset
        self.compacted_to = self.committed_to = 0

    def compacted(self, rows: list[Row], to: int, now_ms: int) -> None:
        """Only these records are left, of those that readers may see."""
        left = set(rows)
        self.batches = [
            replace(stored, rows=tuple(r for r in stored.rows if r.offset < self.start or r in left))
            for stored in self.batches
        ]
        self.compacted_to, self.committed_to = max(self.compacted_to, to), self.end
        for row in rows:
            if row.value is None and row.offset < to:
                self.tombstones.setdefault(row, now_ms)

    def opened_anew(self, first_offset: int) -> None:
        """What lies below the first segment is not there to learn producers from."""
        for producer_id in self.producer_ids():
            if self.of_producer(producer_id)[-1].base_offset < max(first_offset, self.start):
                self.forgotten.add(producer_id)

    # A crash

    def ends_after_crash(self, lowest: int | None = None) -> set[int]:
        """Where the log may end: after any batch, but not before what is durable."""
        lowest = self.durable if lowest is None else lowest
        ends = {0, self.end, *(stored.next_offset for stored in self.batches)}
        # Where all that was written behind its start is lost, it begins anew there.
        starts = {start for start in (self.start_durable, self.start) if lowest <= start}
        return {end for end in ends if lowest <= end <= self.end and end >= self.start_durable} | starts


def check_compacted(
    before: list[Row],
    after: list[Row],
    *,
    dirty_from: int,
    tombstones: dict[Row, int],
    gone_before_ms: int,
    aborted: Collection[int] = (),
) -> None:
    """What a compaction may take away: records with a later one of their key, tombstones whose time is over, and what
    was aborted, which takes the place of nothing.

    From `dirty_from` on nothing goes. Tombstones that were seen before `gone_before_ms` may go.
    """
    left = set(after)
    assert after == [row for row in before if row in left], "records were changed, moved or added"
    last = {row.key: row for row in before if row.offset < dirty_from and row.offset not in aborted}
    for row in before:
        if row in left:
            continue
        assert row.offset < dirty_from, f"{row} is not old enough to go"
        if row.offset in aborted:
            continue
        if last[row.key] is row:
            seen_ms = tombstones.get(row)
            assert row.value is None, f"{row} was the last of its key"
            assert seen_ms is not None and seen_ms <= gone_before_ms, f"{row} went before its time"


def check_unique(rows: list[Row], below: int) -> None:
    """After a whole compaction, no key is there twice."""
    keys = [row.key for row in rows if row.offset < below]
    assert len(keys) == len(set(keys)), f"a key twice below {below}: {rows}"
