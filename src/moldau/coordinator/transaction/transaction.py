"""One transactional id: its producer's id and epoch, and the state of its transaction. Immutable.

Every step makes a new value, which is recorded whole. The states and what leads from one to the other:

    Empty, CompleteCommit, CompleteAbort  --a partition is added-->  Ongoing
    Ongoing  --EndTxn-->  PrepareCommit, PrepareAbort  --all markers are written-->  CompleteCommit, CompleteAbort
    Ongoing  --a new producer, or its time is up-->  PrepareAbort, with an epoch that fences the old producer

With transaction version 2 (KIP-890) every end of a transaction moves the epoch, and a transaction without partitions
can be aborted. The largest epoch but one is the last that a producer gets: then comes a new producer id with epoch 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.records.batch import PRODUCER_EPOCH_MAX

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
LAST_USABLE_EPOCH = PRODUCER_EPOCH_MAX - 1
EPOCH_PER_TRANSACTION = 2
"""The transaction version from which on every transaction has an epoch of its own."""


class State(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As Kafka prints it."""
        return self.name.title().replace("_", "")


LABELS = {state.label: state for state in State}
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
IDLE = (State.EMPTY, *COMPLETE)


class Transaction(NamedTuple):
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIMESTAMP
    updated_ms: int = NO_TIMESTAMP
    version: int = 0
    """The transaction version that its producer used last."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The one that follows when the transaction is complete, as the epochs of the old one are used up."""
    last_epoch: int = NO_EPOCH
    """The epoch before the last bump, by which a retry of InitProducerId is known. Not recorded, as in Kafka."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def has_own_epochs(self) -> bool:
        return self.version >= EPOCH_PER_TRANSACTION

    def is_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def is_of(self, producer_id: int, epoch: int) -> bool:
        return (producer_id, epoch) == (self.producer_id, self.producer_epoch)

    def is_after(self, producer_id: int, epoch: int) -> bool:
        """Whether its end gave a producer the id or the epoch that it has now: a retry of that end is known by it."""
        if producer_id == self.producer_id:
            return self.has_own_epochs and epoch + 1 == self.producer_epoch
        is_rotated = producer_id == self.previous_producer_id and self.producer_epoch == 0
        return is_rotated and epoch == LAST_USABLE_EPOCH

    # ---- a producer comes -----------------------------------------------------------------------------------

    def accepts_producer(self, expected_id: int, expected_epoch: int) -> bool:
        """Whether a producer that says who it was may go on: as the current one, or as the one before a rotation."""
        return expected_id == self.producer_id or (
            expected_id == self.previous_producer_id and expected_epoch >= LAST_USABLE_EPOCH
        )

    def with_next_epoch(self, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> Transaction:
        """For a producer that begins, or (with the epoch that it has) goes on; KafkaError where it is fenced."""
        if expected_epoch is None:
            epoch, last_epoch = self.producer_epoch + 1, NO_EPOCH
        elif expected_epoch == self.producer_epoch:
            epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch == self.last_epoch:  # a retry: it was given this epoch already
            epoch, last_epoch = self.producer_epoch, self.last_epoch
        else:
            raise KafkaError(ErrorCode.producer_fenced)
        return self._begun(self.producer_id, epoch, last_epoch, timeout_ms, now_ms)

    def with_new_producer_id(
        self, producer_id: int, *, keeps_epoch: bool, timeout_ms: int, now_ms: int
    ) -> Transaction:
        last_epoch = self.producer_epoch if keeps_epoch else NO_EPOCH
        return self._begun(producer_id, 0, last_epoch, timeout_ms, now_ms)

    def _begun(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        return self._replace(
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=(),
            start_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )

    # ---- it goes on -----------------------------------------------------------------------------------------

    def with_partitions(self, added: Iterable[TopicPartition], version: int, now_ms: int) -> Transaction:
        return self._replace(
            previous_producer_id=self.producer_id,
            state=State.ONGOING,
            partitions=tuple(dict.fromkeys([*self.partitions, *added])),
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            updated_ms=now_ms,
            version=version,
        )

    def prepared(
        self, *, is_commit: bool, version: int, now_ms: int, new_producer_id: int | None = None
    ) -> Transaction:
        """The end is decided: from here on it can only be carried out. The new producer id is for the last epoch."""
        epoch, last_epoch, next_producer_id = self.producer_epoch, self.last_epoch, NO_PRODUCER_ID
        if version >= EPOCH_PER_TRANSACTION:
            epoch, last_epoch = min(epoch + 1, PRODUCER_EPOCH_MAX), epoch
            if self.is_exhausted and new_producer_id is not None:
                next_producer_id = new_producer_id
        return self._replace(
            previous_producer_id=self.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            updated_ms=now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are written."""
        rotates = self.has_own_epochs and self.next_producer_id != NO_PRODUCER_ID
        is_commit = self.state is State.PREPARE_COMMIT
        return self._replace(
            producer_id=self.next_producer_id if rotates else self.producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=0 if rotates else self.producer_epoch,
            state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            partitions=(),
            updated_ms=now_ms,
        )
