"""What the clients of a run may rely on: a plain list of records per partition, and the first thing that breaks it.

Clients tell the model what they sent, what was acknowledged and what they read; the broker's host tells it where each
log ended when the broker came up. The model compares as it goes, and once more with everything that can be read at
the end (`checkers`). It knows nothing of how the broker works.

What holds for a partition (promises 2 and 3 of docs/requirements.md, for one broker):
- Offsets are dense. An offset that was acknowledged or read has that record for ever.
- What was acknowledged or visible once is visible to whoever asks later: the high watermark never moves back, nor does
  the last stable offset.
- A process that ends, however it ends, takes nothing of this back. A power cut takes nothing of it back from a topic
  that is flushed before it acknowledges (`flush.messages=1`); of any other topic it may take the end, never a part
  from the middle.
- One leader epoch has one record at an offset, for ever: what takes the place of a record that a power cut took has a
  higher one, so that a reader can tell them apart (KIP-320).
- A record of an idempotent producer is stored at most once.

An answer may arrive when the broker that gave it is dead already, so everything is stamped with the broker's life
that the client was connected to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.records.record import Record

VIOLATIONS_KEPT = 20
NO_LIMIT = 2**63 - 1


class Violation(NamedTuple):
    time_s: float
    partition: TopicPartition | None
    expected: str
    found: str

    def __str__(self) -> str:
        where = f", {self.partition}" if self.partition is not None else ""
        return f"at {self.time_s:.6f} s{where}: expected {self.expected}; found {self.found}"


class Sent(NamedTuple):
    """A record on its way to a partition. Its value is its name: no two are alike."""

    producer: str
    session: int
    number: int
    idempotent: bool
    record: Record


class Known(NamedTuple):
    """What a client was told of an offset."""

    value: bytes
    how: str


class Start(NamedTuple):
    """Where a log ended when the broker came up."""

    life: int
    power_lost: bool
    next_offset: int


class Visible(NamedTuple):
    """Offsets below `next_offset` could be read, as a broker's life said or implied."""

    life: int
    next_offset: int


NOTHING = Visible(0, 0)


class LookUp(NamedTuple):
    """An answer to "which record is the first with this timestamp or a later one" (None: with the largest one)."""

    life: int
    timestamp: int | None
    visible: int
    """What was visible for sure when it was asked."""
    found_timestamp: int
    found_offset: int


@dataclass(slots=True)
class Ledger:
    """One partition."""

    partition: TopicPartition
    is_flushed: bool
    """Every acknowledgement waits for the disk: `flush.messages=1`."""
    keeps_timestamps: bool
    report: Callable[[TopicPartition, str, str], None]
    sent: dict[bytes, Sent] = field(default_factory=dict)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    records: list[Known | None] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)
    """Where the records of idempotent producers were found."""
    written: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """What was read, by leader epoch and offset."""
    starts: list[Start] = field(default_factory=list)
    visible: Visible = field(default_factory=lambda: Visible(0, 0))
    stable: Visible = field(default_factory=lambda: Visible(0, 0))
    """The same of the last stable offset: decided for readers of committed records."""
    look_ups: list[LookUp] = field(default_factory=list)
    power_lost: bool = False
    """Since the log was last opened, by a start that could not open it."""
    first_offset: int = 0
    """What lies before it may be gone: somebody has asked for that."""
    has_gaps: bool = False
    """It is compacted: a record may be gone when a later one of its key is there."""

    # What clients say

    def on_sent(self, batch: Sequence[Sent]) -> None:
        for sent in batch:
            assert sent.record.value is not None
            self.sent[sent.record.value] = sent

    def on_acknowledged(self, life: int, base_offset: int, batch: Sequence[Sent]) -> None:
        how = f"acknowledged to {batch[0].producer}"
        for index, sent in enumerate(batch):
            value = sent.record.value or b""
            if self._note(life, base_offset + index, value, how):
                self.acknowledged[value] = base_offset + index
        self.on_visible(life, base_offset + len(batch))

    def on_read(self, life: int, reader: str, leader_epoch: int, record: Record) -> None:
        value = record.value or b""
        if self.check_genuine(record):
            self.check_epoch(leader_epoch, record)
            self._note(life, record.offset, value, f"read by {reader}")
        self.on_visible(life, record.offset + 1)

    def on_visible(self, life: int, next_offset: int) -> None:
        standing = self.standing(Visible(life, next_offset))
        if standing > self.visible.next_offset:
            self.visible = Visible(life, standing)

    def on_look_up(self, look_up: LookUp) -> None:
        self.look_ups.append(look_up)

    def check_visible(self, before: Visible, high_watermark: int) -> None:
        """An answer's high watermark, against what was visible when it was asked for."""
        wanted = self.standing(before)
        if high_watermark < wanted:
            self.fail(f"a high watermark of at least {wanted}", str(high_watermark))

    def on_stable(self, life: int, next_offset: int) -> None:
        standing = self.standing(Visible(life, next_offset))
        if standing > self.stable.next_offset:
            self.stable = Visible(life, standing)

    def check_stable(self, before: Visible, last_stable_offset: int, high_watermark: int) -> None:
        """An answer's last stable offset, against what was stable when it was asked for."""
        wanted = self.standing(before)
        if not wanted <= last_stable_offset <= high_watermark:
            self.fail(f"a last stable offset from {wanted} to {high_watermark}", str(last_stable_offset))

    def check_epoch(self, leader_epoch: int, record: Record) -> None:
        value = record.value or b""
        first = self.written.setdefault((leader_epoch, record.offset), value)
        if first != value:
            self.fail(
                f"offset {record.offset} in leader epoch {leader_epoch} to hold {_shown(first)}",
                _shown(value),
            )

    def check_genuine(self, record: Record) -> bool:
        """Whether somebody has sent a record just like this."""
        sent = self.sent.get(record.value or b"")
        if sent is None:
            self.fail(f"offset {record.offset} to hold a record that was sent", _shown(record.value))
            return False
        mine = sent.record
        if (record.key, record.headers) != (mine.key, mine.headers) or (
            self.keeps_timestamps and record.timestamp != mine.timestamp
        ):
            self.fail(f"offset {record.offset} to hold {mine}", str(record))
            return False
        return True

    def _note(self, life: int, offset: int, value: bytes, how: str) -> bool:
        """Offset and record belong together from now on. False where a power cut has parted them already."""
        if not self.stands(life, offset, how):
            return False
        records = self.records
        records.extend([None] * (offset + 1 - len(records)))
        known = records[offset]
        if known is None:
            records[offset] = Known(value, how)
        elif known.value != value:
            self.fail(
                f"offset {offset} to hold {_shown(known.value)} ({known.how})", f"{_shown(value)} ({how})"
            )
        sent = self.sent.get(value)
        if sent is not None and sent.idempotent and self.places.setdefault(value, offset) != offset:
            self.fail(
                f"{_shown(value)} once, at offset {self.places[value]}", f"it at offset {offset} too ({how})"
            )
        return True

    # What the broker's host says

    def on_start(self, start: Start) -> None:
        self.starts.append(start)
        end = start.next_offset
        for offset in range(end, len(self.records)):
            known = self.records[offset]
            if known is not None and not self._may_lose(start):
                self._lost(start, offset, known.how)
                break
        for known in self.records[end:]:
            if known is not None:
                self.places.pop(known.value, None)
                self.acknowledged.pop(known.value, None)
        del self.records[end:]
        self.visible = Visible(start.life, self.standing(self.visible))
        self.stable = Visible(start.life, self.standing(self.stable))

    def stands(self, life: int, offset: int, how: str) -> bool:
        """Whether what a life said of an offset still holds; a violation where it should and does not."""
        for start in self.starts:
            if start.life > life and offset >= start.next_offset:
                if not self._may_lose(start):
                    self._lost(start, offset, how)
                return False
        return True

    def standing(self, visible: Visible) -> int:
        """How much of what was visible must still be."""
        return min(visible.next_offset, self.limit_since(visible.life))

    def limit_since(self, life: int) -> int:
        """The lowest end to which a power cut may have brought the log since a life."""
        ends = [s.next_offset for s in self.starts if s.life > life and self._may_lose(s)]
        return min(ends, default=NO_LIMIT)

    def _may_lose(self, start: Start) -> bool:
        return start.power_lost and not self.is_flushed

    def _lost(self, start: Start, offset: int, how: str) -> None:
        cause = "a power cut" if start.power_lost else "the end of the process"
        self.fail(
            f"offset {offset} ({how}) to be there after {cause}", f"a log that ends at {start.next_offset}"
        )

    def fail(self, expected: str, found: str) -> None:
        self.report(self.partition, expected, found)


class Model:
    """All partitions of a run, and what was found to be wrong."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.ledgers: dict[TopicPartition, Ledger] = {}
        self.violations: list[Violation] = []
        self.is_linear = True
        """What one client was told is known to whoever answers another one later. Not so in a cluster, where a
        leader may be the last to hear that it is none any more."""
        self._clock = clock

    def add(
        self,
        partition: TopicPartition,
        *,
        is_flushed: bool,
        keeps_timestamps: bool,
        kind: type[Ledger] = Ledger,
    ) -> None:
        self.ledgers[partition] = kind(partition, is_flushed, keeps_timestamps, self.fail)

    def relied_on(self, ledger: Ledger) -> tuple[Visible, Visible]:
        """What anyone who asks now must find visible and stable at least."""
        return (ledger.visible, ledger.stable) if self.is_linear else (NOTHING, NOTHING)

    def __getitem__(self, partition: TopicPartition) -> Ledger:
        return self.ledgers[partition]

    def on_start(self, life: int, ends: dict[TopicPartition, int | None], *, power_lost: bool) -> None:
        """Where each log ends; None for one that this start could not open."""
        for partition, ledger in self.ledgers.items():
            lost = power_lost or ledger.power_lost
            end = ends.get(partition, 0)
            ledger.power_lost = lost and end is None
            if end is not None:
                ledger.on_start(Start(life, lost, end))

    def fail(self, partition: TopicPartition | None, expected: str, found: str) -> None:
        if len(self.violations) < VIOLATIONS_KEPT:
            self.violations.append(Violation(self._clock(), partition, expected, found))


def _shown(value: bytes | None) -> str:
    """A record's name: its value up to the filler."""
    return repr((value or b"").partition(b"|")[0].decode("ascii", "replace"))
