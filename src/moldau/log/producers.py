"""The idempotent producers of a log: their epoch and last five batches (KIP-98, KIP-360).

`check` decides, `add` is the only mutator for data batches, the same live and at recovery. As in Kafka, a
producer that the log does not know may begin with any sequence number, and a retry older than five batches
is out of order. Open transactions (`current_txn_first_offset`, coordinator epochs) are carried in
snapshots; markers end them in the part of the log that handles transactions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, SEQUENCE_MAX, BatchHeader

BATCHES_KEPT = 5
_new_tuple = tuple.__new__
"""Half the cost of calling a NamedTuple's class."""


class BatchSeen(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry:
    """What the log knows of one producer."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "from_snapshot",
        "last_timestamp",
        "next_sequence",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.current_txn_first_offset = -1
        self.batches: list[BatchSeen] = []
        self.next_sequence = 0
        """The only sequence number that continues the last batch."""
        self.from_snapshot = False
        """There may be earlier batches in the log than those remembered here (see `recall`)."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def find(self, first_sequence: int, last_sequence: int) -> BatchSeen | None:
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


class OutOfSequence(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Producers:
    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, last_offset_delta: int
    ) -> BatchSeen | None:
        """None for a batch that continues, the stored batch for a retry of it; raises OutOfSequence."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if epoch == entry.epoch:
            if first_sequence == entry.next_sequence and entry.batches:
                return None
            last_sequence = (first_sequence + last_offset_delta) & SEQUENCE_MAX
            seen = entry.find(first_sequence, last_sequence)
            if seen is not None:
                return seen
        _check_slowly(entry, epoch, first_sequence)
        return None

    def add(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool = False,
    ) -> None:
        """A data batch of a producer was appended."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        batches = entry.batches
        if entry.epoch != epoch:
            entry.epoch = epoch
            entry.from_snapshot = False
            batches.clear()
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        last_sequence = (first_sequence + last_offset - first_offset) & SEQUENCE_MAX
        batches.append(
            _new_tuple(BatchSeen, (first_sequence, last_sequence, first_offset, last_offset, timestamp))
        )
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MAX
        entry.last_timestamp = timestamp
        if transactional and entry.current_txn_first_offset < 0:
            entry.current_txn_first_offset = first_offset

    def add_batch(self, header: BatchHeader) -> None:
        """A batch that lies in the log, of a producer or of none."""
        if header.producer_id >= 0 and not header.is_control:
            self.add(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.is_transactional,
            )

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for long and have no open transaction; returns how many."""
        gone = [
            entry.producer_id
            for entry in self._entries.values()
            if entry.current_txn_first_offset < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._entries[producer_id]
        return len(gone)


def _check_slowly(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
    if epoch < entry.epoch:
        raise OutOfSequence(
            ErrorCode.invalid_producer_epoch,
            f"epoch {epoch} of producer {entry.producer_id} is smaller than the last seen {entry.epoch}",
        )
    if entry.epoch == NO_PRODUCER_EPOCH:
        return
    if epoch != entry.epoch:
        if first_sequence != 0:
            raise OutOfSequence(
                ErrorCode.out_of_order_sequence_number,
                f"producer {entry.producer_id} begins epoch {epoch} with sequence {first_sequence}, not 0",
            )
    elif first_sequence != (entry.next_sequence if entry.batches else 0):
        raise OutOfSequence(
            ErrorCode.out_of_order_sequence_number,
            f"sequence {first_sequence} of producer {entry.producer_id} does not follow {entry.last_sequence}",
        )
