"""Transactions as one log sees them: the markers that end them, and which of them are open.

A marker is a batch with one control record, written by a broker at the word of a transaction coordinator:

    key: version 2 (0) | type 2 (0 aborts, 1 commits)      value: version 2 (0) | coordinator epoch 4

Readers with read_committed see up to the first open transaction; one that has ended counts as open until its marker
is below the high watermark. Which producer has which transaction open is in `producers`; here is their order.
"""

from __future__ import annotations

from collections import deque
from struct import Struct, error
from typing import NamedTuple

from moldau.records.record import BadRecord, Record, build_batch, read_records
from moldau.runtime.ports import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
VERSION = 0
ABORT, COMMIT = 0, 1


class Marker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


class Ended(NamedTuple):
    """A transaction with records in the log that a marker has ended."""

    first_offset: int
    last_stable_offset: int
    """Where the next open transaction begins, or the offset after the marker."""


class Aborted(NamedTuple):
    """An entry of the index of aborted transactions."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int
    """When the marker was written: no later entry speaks of records below it."""


def build_marker(marker: Marker, producer_id: int, producer_epoch: int, timestamp: int) -> bytes:
    key = _KEY.pack(VERSION, COMMIT if marker.is_commit else ABORT)
    record = Record(0, timestamp, key, _VALUE.pack(VERSION, marker.coordinator_epoch))
    return build_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )


def read_marker(batch: Buffer) -> Marker | None:
    """The marker in a control batch; None for one that compaction has emptied, and for other control records."""
    try:
        records = read_records(batch)
        if not records or records[0].key is None or records[0].value is None:
            return None
        _, kind = _KEY.unpack_from(records[0].key)
        _, coordinator_epoch = _VALUE.unpack_from(records[0].value)
    except (BadRecord, error):
        return None
    return Marker(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None


NONE_ENDED: deque[tuple[int, int]] = deque(maxlen=0)
"""Shared by all logs without transactions: an empty deque of one's own takes 700 bytes, for each of thousands."""


class OpenTransactions:
    """The first offsets of a log's open transactions, and of those that ended above the high watermark."""

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}  # producer id -> first offset, in the order of the offsets
        self._ended = NONE_ENDED  # offset of the marker, first offset

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Transactions begin in the order of their first offsets."""
        self._open[producer_id] = first_offset

    def end(self, producer_id: int, marker_offset: int) -> Ended | None:
        """None where the producer had none open here."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        if self._ended is NONE_ENDED:
            self._ended = deque()
        self._ended.append((marker_offset, first_offset))
        return Ended(first_offset, next(iter(self._open.values()), marker_offset + 1))

    @property
    def first_open_offset(self) -> int | None:
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset that a reader with read_committed may not see yet; None: all are decided.

        The high watermark never moves back, so what is decided is forgotten here.
        """
        ended = self._ended
        while ended and ended[0][0] < high_watermark:
            ended.popleft()
        firsts = [first_offset for _, first_offset in ended]
        if self._open:
            firsts.append(next(iter(self._open.values())))
        return min(firsts, default=None)
