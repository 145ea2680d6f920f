"""The producers of a log: their epoch, last five batches and open transaction (KIP-98, KIP-360, KIP-890).

`check` and `check_marker` decide, `add` (data) and `end_transaction` (markers) are the only mutators, the same live
and at recovery. As in Kafka, a producer that the log does not know may begin with any sequence number, and a
retry older than five batches is out of order. The first batch of a transaction is taken only from someone who has
asked the coordinator about it: `begin_verification` gives a guard, which a marker makes worthless, so that a late
batch opens no transaction that nobody will ever end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.log.index import Read
from moldau.log.scan import Batch
from moldau.log.transactions import Aborted, Ended, OpenTransactions, read_marker
from moldau.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, PRODUCER_EPOCH_MAX, SEQUENCE_MAX
from moldau.runtime.ports import File

BATCHES_KEPT = 5
VERIFYING_MAX = 10_000
"""Producers of a log whose transactions are being looked up; the one that was first has to ask again."""
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
        "was_heard",
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
        self.was_heard = False
        """It has written since the last look for silent producers."""

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


class Verification:
    """A producer's transaction is being looked up: the guard that its first batch here must show."""

    __slots__ = ("begins_with_zero", "epoch", "lowest_sequence")

    def __init__(self, epoch: int, sequence: int, begins_with_zero: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        """Of several requests in flight, the one that must come first."""
        self.begins_with_zero = begins_with_zero
        """With an epoch for each transaction (KIP-890) its sequence numbers begin with 0: where the log has no batch
        of it, a first one with another number comes too early."""


class OutOfSequence(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Producers:
    __slots__ = ("_entries", "_verifying", "open")

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self._entries = {entry.producer_id: entry for entry in entries}
        self._verifying: dict[int, Verification] = {}
        self.open = OpenTransactions()
        for entry in sorted(self._entries.values(), key=lambda entry: entry.current_txn_first_offset):
            if entry.current_txn_first_offset >= 0:
                self.open.begin(entry.producer_id, entry.current_txn_first_offset)

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def entries(self) -> list[ProducerEntry]:
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset_delta: int,
        transactional: bool = False,
        guard: Verification | None = None,
    ) -> BatchSeen | None:
        """None for a batch that continues, the stored batch for a retry of it; raises OutOfSequence."""
        entry = self._entries.get(producer_id)
        if entry is not None and epoch == entry.epoch:
            if first_sequence == entry.next_sequence and entry.batches:
                if (entry.current_txn_first_offset >= 0) == transactional:
                    return None
            else:
                last_sequence = (first_sequence + last_offset_delta) & SEQUENCE_MAX
                seen = entry.find(first_sequence, last_sequence)
                if seen is not None:
                    return seen
        if transactional and not self.has_open_transaction(producer_id, epoch):
            self.check_epoch(producer_id, epoch)
            self._check_verified(producer_id, entry, first_sequence, guard)
        if entry is not None:
            _check_slowly(entry, epoch, first_sequence)
            if entry.current_txn_first_offset >= 0 and not transactional:
                raise OutOfSequence(
                    ErrorCode.invalid_txn_state,
                    f"a batch of producer {producer_id} is not of its transaction",
                )
        return None

    # Transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.epoch == epoch and entry.current_txn_first_offset >= 0

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, begins_with_zero: bool
    ) -> Verification | None:
        """The guard for a batch of a transaction; None where the transaction is open here already.

        Raises OutOfSequence for an epoch that is over: its coordinator need not be asked.
        """
        self.check_epoch(producer_id, epoch)
        if self.has_open_transaction(producer_id, epoch):
            return None
        found = self._verifying.get(producer_id)
        if found is None:
            found = Verification(epoch, first_sequence, begins_with_zero)
            self._verifying[producer_id] = found
            if len(self._verifying) > VERIFYING_MAX:
                del self._verifying[next(iter(self._verifying))]
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, first_sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, first_sequence)
        return found

    def is_verified(self, producer_id: int, epoch: int, guard: Verification | None) -> bool:
        """Whether a transaction may be opened here, or is open: nobody has ended it since the guard was given."""
        is_guarded = guard is not None and self._verifying.get(producer_id) is guard
        return is_guarded or self.has_open_transaction(producer_id, epoch)

    def guard_of_next(self, producer_id: int, marker_epoch: int) -> Verification | None:
        """The guard of the producer's next transaction, if it has one already, which a marker must not take away.

        A marker of transaction version 2 has the epoch of the transaction that follows (KIP-890). The producer may
        write to that one, and have it verified, before the marker has come here.
        """
        guard = self._verifying.get(producer_id)
        return guard if guard is not None and guard.begins_with_zero and guard.epoch == marker_epoch else None

    def keep_guard(self, producer_id: int, guard: Verification) -> None:
        self._verifying[producer_id] = guard

    def _check_verified(
        self, producer_id: int, entry: ProducerEntry | None, first_sequence: int, guard: Verification | None
    ) -> None:
        if guard is None or self._verifying.get(producer_id) is not guard:
            raise OutOfSequence(
                ErrorCode.invalid_txn_state, "the record is not part of an ongoing transaction"
            )
        has_no_state = entry is None or not entry.batches
        if guard.begins_with_zero and has_no_state and first_sequence != 0:
            expected = 0
        elif first_sequence > guard.lowest_sequence:
            expected = guard.lowest_sequence
        else:
            return
        raise OutOfSequence(
            ErrorCode.out_of_order_sequence_number,
            f"sequence {first_sequence} of producer {producer_id} comes before {expected}",
        )

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Whether a coordinator may write for this epoch of a producer; raises OutOfSequence."""
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            _refuse_epoch(entry, epoch)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> None:
        """Whether a coordinator may end the producer's transaction; raises OutOfSequence.

        With an epoch for each transaction (version 2) a marker's epoch is a new one, unless it is written again, or
        there is none left.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        is_of_open = epoch == entry.epoch and entry.current_txn_first_offset >= 0
        if epoch < entry.epoch or (transaction_version >= 2 and is_of_open and epoch < PRODUCER_EPOCH_MAX):
            raise OutOfSequence(
                ErrorCode.invalid_producer_epoch,
                f"the marker's epoch {epoch} of producer {producer_id} is behind {entry.epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise OutOfSequence(
                ErrorCode.transaction_coordinator_fenced,
                f"coordinator epoch {coordinator_epoch} is smaller than the last seen {entry.coordinator_epoch}",
            )

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, marker_offset: int, timestamp: int
    ) -> Ended | None:
        """A marker was appended; what it has ended, None where nothing was open."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.from_snapshot = False
            entry.batches.clear()
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.was_heard = True
        entry.current_txn_first_offset = -1
        self._verifying.pop(producer_id, None)
        return self.open.end(producer_id, marker_offset)

    # Data

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
        last_sequence = (
            (first_sequence + last_offset - first_offset) & SEQUENCE_MAX
            if first_sequence >= 0
            else NO_SEQUENCE  # a coordinator's own batch
        )
        batches.append(
            _new_tuple(BatchSeen, (first_sequence, last_sequence, first_offset, last_offset, timestamp))
        )
        entry.next_sequence = (last_sequence + 1) & SEQUENCE_MAX
        entry.last_timestamp = timestamp
        entry.was_heard = True
        if transactional:
            self._verifying.pop(producer_id, None)
            if entry.current_txn_first_offset < 0:
                entry.current_txn_first_offset = first_offset
                self.open.begin(producer_id, first_offset)

    def add_batch(self, file: File, batch: Batch, read: Read) -> Aborted | None:
        """A batch that lies in the log, of a producer or of none; the transaction that it aborts, if it does."""
        header = batch.header
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.add(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.base_offset,
                header.last_offset,
                header.max_timestamp,
                header.is_transactional,
            )
            return None
        marker = read_marker(read(file, header.size, batch.position))
        if marker is None:
            return None
        ended = self.end_transaction(
            header.producer_id,
            header.producer_epoch,
            marker.coordinator_epoch,
            header.base_offset,
            header.max_timestamp,
        )
        if ended is None or marker.is_commit:
            return None
        return Aborted(header.producer_id, ended.first_offset, header.base_offset, ended.last_stable_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that were silent for long and have no open transaction; returns how many.

        As in Kafka it is the time of their records that counts. But records may be old, so whoever has written since
        the last look is kept: its retries must be known.
        """
        gone = []
        for entry in self._entries.values():
            is_old = now_ms - entry.last_timestamp >= expiration_ms
            if is_old and entry.current_txn_first_offset < 0 and not entry.was_heard:
                gone.append(entry.producer_id)
            entry.was_heard = False
        for producer_id in gone:
            del self._entries[producer_id]
            self._verifying.pop(producer_id, None)
        return len(gone)


def _check_slowly(entry: ProducerEntry, epoch: int, first_sequence: int) -> None:
    if epoch < entry.epoch:
        _refuse_epoch(entry, epoch)
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


def _refuse_epoch(entry: ProducerEntry, epoch: int) -> None:
    raise OutOfSequence(
        ErrorCode.invalid_producer_epoch,
        f"epoch {epoch} of producer {entry.producer_id} is smaller than the last seen {entry.epoch}",
    )
