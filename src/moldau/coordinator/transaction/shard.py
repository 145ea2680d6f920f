"""The transaction coordinator's state machine: the transactional ids of one partition of `__transaction_state`.

A transaction ends in two phases. First the decision is recorded (PrepareCommit, PrepareAbort) and the client answered:
from then on it cannot end otherwise. Then the markers are written, an effect, and when they all are the end is
recorded too. After a crash in between, `on_loaded` asks for the markers again; writing one twice is harmless.

Pure: no clock, no chance, no input or output. A new producer id comes from outside: a decision that needs one answers
`NeedsProducerId`, and is asked for again with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.coordinator.deadlines import Deadlines
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import NOTHING, Decision, Moment, Producer
from moldau.coordinator.transaction import records
from moldau.coordinator.transaction.messages import (
    Add,
    Described,
    End,
    Identity,
    Init,
    Markers,
    NeedsProducerId,
    TimedOut,
)
from moldau.coordinator.transaction.records import (
    TransactionForgotten,
    TransactionRecord,
    TransactionRecorded,
)
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import (
    COMPLETE,
    EPOCH_PER_TRANSACTION,
    IDLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    State,
    Transaction,
)

ABORT, EXPIRE = "abort", "expire"
NEEDS_PRODUCER_ID = NeedsProducerId()


class TransactionShard:
    """`coordinator_epoch` is the leader epoch of the partition: it fences the markers of earlier leaders."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}
        self._unmarked: dict[str, tuple[TopicPartition, ...]] = {}
        """Of transactions that are being ended: the partitions that wait for their marker, where some have theirs."""
        self._deadlines: Deadlines[str] = Deadlines()

    # ---- the log --------------------------------------------------------------------------------------------

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return records.encode(record)

    def decode(self, key: bytes, value: bytes | None) -> TransactionRecord | None:
        return records.decode(key, value)

    def apply(self, record: TransactionRecord, producer: Producer | None) -> None:
        self._unmarked.pop(record.transactional_id, None)
        match record:
            case TransactionRecorded():
                self._transactions[record.transactional_id] = record.transaction
            case TransactionForgotten():
                self._transactions.pop(record.transactional_id, None)

    def apply_marker(self, producer: Producer, *, is_commit: bool) -> None:
        """No transaction has records here."""

    # ---- life and time --------------------------------------------------------------------------------------

    def on_loaded(self, moment: Moment) -> Decision:
        """Ends that were decided are carried out."""
        self._deadlines.set(ABORT, moment.ms + self._settings.abort_interval_ms)
        self._deadlines.set(EXPIRE, moment.ms + self._settings.expiry_interval_ms)
        prepared = [
            self._markers(transactional_id, transaction)
            for transactional_id, transaction in self._transactions.items()
            if transaction.state in PREPARED
        ]
        return Decision(effects=prepared)

    def parked(self) -> Sequence[Reply]:
        return ()

    @property
    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms

    def on_time(self, moment: Moment) -> Iterator[Decision]:
        for what in self._deadlines.pop_due(moment.ms):
            if what == ABORT:
                self._deadlines.set(ABORT, moment.ms + self._settings.abort_interval_ms)
                yield from self._abort_timed_out(moment.wall_ms)
            else:
                self._deadlines.set(EXPIRE, moment.ms + self._settings.expiry_interval_ms)
                yield self._expire(moment.wall_ms)

    def _abort_timed_out(self, wall_ms: int) -> Iterator[Decision]:
        for transactional_id, transaction in list(self._transactions.items()):
            if not transaction.is_timed_out(wall_ms):
                continue
            if transaction.is_exhausted:
                producer = transaction.producer_id, transaction.producer_epoch
                yield Decision(effects=[TimedOut(transactional_id, *producer)])
            else:
                yield self._fence(transactional_id, transaction, wall_ms)

    def time_out(
        self, timed_out: TimedOut, new_producer_id: int | None, reply: Reply, moment: Moment
    ) -> Decision:
        """Abort a transaction whose time is up, and whose producer has no epoch left. Answered as `init`."""
        transaction = self._transactions.get(timed_out.transactional_id)
        is_same = transaction is not None and transaction.is_of(*timed_out[1:])
        if transaction is None or not is_same or not transaction.is_timed_out(moment.wall_ms):
            return _now(reply, Identity(ErrorCode.none))
        if new_producer_id is None:
            return _now(reply, NEEDS_PRODUCER_ID)
        answers = [(reply, Identity(ErrorCode.none))]
        return self._fence(timed_out.transactional_id, transaction, moment.wall_ms, new_producer_id, answers)

    def _expire(self, wall_ms: int) -> Decision:
        """Ids that nobody has used for long."""
        since_ms = wall_ms - self._settings.id_expiration_ms
        unused = [
            TransactionForgotten(transactional_id)
            for transactional_id, transaction in self._transactions.items()
            if transaction.state in IDLE and transaction.updated_ms <= since_ms
        ]
        return Decision(unused, is_atomic=False)

    # ---- producers ------------------------------------------------------------------------------------------

    def init(self, init: Init, new_producer_id: int | None, reply: Reply, moment: Moment) -> Decision:
        """A producer begins, or goes on after an error. A transaction that is open is aborted first."""
        transaction = self._transactions.get(init.transactional_id)
        try:
            if transaction is None:
                if new_producer_id is None:
                    return _now(reply, NEEDS_PRODUCER_ID)
                transaction = Transaction(new_producer_id, NO_EPOCH, init.timeout_ms)
            elif transaction.state in PREPARED:
                raise KafkaError(ErrorCode.concurrent_transactions)
            elif init.expected_id != NO_PRODUCER_ID and not transaction.accepts_producer(
                init.expected_id, init.expected_epoch
            ):
                raise KafkaError(ErrorCode.producer_fenced)
            if transaction.state is State.ONGOING:
                if transaction.is_exhausted and new_producer_id is None:
                    return _now(reply, NEEDS_PRODUCER_ID)
                retry = [(reply, Identity(ErrorCode.concurrent_transactions))]
                return self._fence(init.transactional_id, transaction, moment.wall_ms, new_producer_id, retry)
            begun = _begin(transaction, init, new_producer_id, moment.wall_ms)
        except KafkaError as refusal:
            return Decision(answers=((reply, Identity(refusal.code)),))
        if begun is None:
            return _now(reply, NEEDS_PRODUCER_ID)
        answer = Identity(ErrorCode.none, begun.producer_id, begun.producer_epoch)
        return Decision([TransactionRecorded(init.transactional_id, begun)], [(reply, answer)])

    def _fence(
        self,
        transactional_id: str,
        transaction: Transaction,
        wall_ms: int,
        new_producer_id: int | None = None,
        answers: Sequence[tuple[Reply, object]] = (),
    ) -> Decision:
        """Abort an open transaction with an epoch that its producer does not have; then comes the new producer id."""
        aborted = transaction.prepared(
            is_commit=False, version=EPOCH_PER_TRANSACTION, now_ms=wall_ms, new_producer_id=new_producer_id
        )
        return self._prepare(transactional_id, aborted, answers)

    # ---- transactions ---------------------------------------------------------------------------------------

    def add(self, add: Add, reply: Reply, moment: Moment) -> Decision:
        """Partitions become part of the transaction before anything is written to them. Answered with an error."""
        found = self._transactions.get(add.transactional_id)
        if found is not None and found.state in PREPARED:
            return Decision(answers=((reply, ErrorCode.concurrent_transactions),))
        try:
            transaction = self._check_producer(add)
        except KafkaError as refusal:
            return Decision(answers=((reply, refusal.code),))
        if transaction.state is State.ONGOING and set(add.partitions) <= set(transaction.partitions):
            return Decision(answers=((reply, ErrorCode.none),))
        grown = transaction.with_partitions(add.partitions, add.version, moment.wall_ms)
        return Decision([TransactionRecorded(add.transactional_id, grown)], [(reply, ErrorCode.none)])

    def verify(self, add: Add) -> dict[TopicPartition, ErrorCode]:
        """A look: whether the partitions are part of the transaction."""
        try:
            transaction = self._check_producer(add)
        except KafkaError as refusal:
            return dict.fromkeys(add.partitions, refusal.code)
        missing = set(add.partitions).difference(transaction.partitions)
        return {
            p: ErrorCode.transaction_abortable if p in missing else ErrorCode.none for p in add.partitions
        }

    def _check_producer(self, add: Add) -> Transaction:
        transaction = self._transactions.get(add.transactional_id)
        if transaction is None or transaction.producer_id != add.producer_id:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if transaction.producer_epoch != add.producer_epoch:
            raise KafkaError(ErrorCode.producer_fenced)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.concurrent_transactions)
        return transaction

    def end(self, end: End, new_producer_id: int | None, reply: Reply, moment: Moment) -> Decision:
        """Decide how a transaction ends; answered when that is recorded, before the markers are written."""
        transaction = self._transactions.get(end.transactional_id)
        try:
            if transaction is None:
                raise KafkaError(ErrorCode.invalid_producer_id_mapping)
            has_ended = _has_ended(transaction, end)
        except KafkaError as refusal:
            return Decision(answers=((reply, Identity(refusal.code)),))
        if has_ended:
            same = Identity(ErrorCode.none, transaction.producer_id, transaction.producer_epoch)
            return Decision(answers=((reply, same),))
        if end.version >= EPOCH_PER_TRANSACTION and transaction.is_exhausted and new_producer_id is None:
            return _now(reply, NEEDS_PRODUCER_ID)
        prepared = transaction.prepared(
            is_commit=end.is_commit,
            version=end.version,
            now_ms=moment.wall_ms,
            new_producer_id=new_producer_id,
        )
        after = prepared.completed(moment.wall_ms)
        answer = Identity(ErrorCode.none, after.producer_id, after.producer_epoch)
        return self._prepare(end.transactional_id, prepared, [(reply, answer)])

    def complete(self, markers: Markers, reply: Reply, moment: Moment) -> Decision:
        """All markers are written. Nothing to record where this was found out before."""
        transaction = self._ending(markers)
        if transaction is None:
            return Decision(answers=((reply, ErrorCode.none),))
        done = transaction.completed(moment.wall_ms)
        return Decision([TransactionRecorded(markers.transactional_id, done)], [(reply, ErrorCode.none)])

    def note_markers(self, markers: Markers, unmarked: tuple[TopicPartition, ...]) -> Decision:
        """Some of the markers are written. Which are not is told to whoever asks, and never recorded."""
        if self._ending(markers) is not None:
            self._unmarked[markers.transactional_id] = unmarked
        return NOTHING

    def _ending(self, markers: Markers) -> Transaction | None:
        """The transaction that the markers end, where it waits for them still."""
        transaction = self._transactions.get(markers.transactional_id)
        if transaction is None or transaction.state not in PREPARED:
            return None
        return transaction if self._markers(markers.transactional_id, transaction) == markers else None

    def _prepare(
        self, transactional_id: str, prepared: Transaction, answers: Sequence[tuple[Reply, object]]
    ) -> Decision:
        record = TransactionRecorded(transactional_id, prepared)
        return Decision([record], answers, effects=[self._markers(transactional_id, prepared)])

    def _markers(self, transactional_id: str, transaction: Transaction) -> Markers:
        return Markers(
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            self._coordinator_epoch,
            transaction.state is State.PREPARE_COMMIT,
            transaction.version,
            transaction.partitions,
        )

    # ---- how they are shown ---------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Described | None:
        """With the partitions of its transaction; while that is being ended, with those that wait for their marker."""
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            return None
        partitions = self._unmarked.get(transactional_id, transaction.partitions)
        return Described(transactional_id, transaction._replace(partitions=partitions))

    def list_transactions(self) -> list[tuple[str, Transaction]]:
        """All of them, by their transactional ids."""
        return list(self._transactions.items())


def _now(reply: Reply, response: object) -> Decision:
    return Decision(answers_now=((reply, response),))


def _begin(
    transaction: Transaction, init: Init, new_producer_id: int | None, wall_ms: int
) -> Transaction | None:
    """The next epoch, or a new producer id where there is none left; None where that one is needed."""
    expected_epoch = None if init.expected_id == NO_PRODUCER_ID else init.expected_epoch
    if transaction.producer_epoch == NO_EPOCH and expected_epoch is not None:
        expected_epoch = NO_EPOCH  # an id that was forgotten: its producer begins anew
    if transaction.is_exhausted and expected_epoch in (None, transaction.producer_epoch):
        if new_producer_id is None:
            return None
        return transaction.with_new_producer_id(
            new_producer_id,
            keeps_epoch=expected_epoch is not None,
            timeout_ms=init.timeout_ms,
            now_ms=wall_ms,
        )
    return transaction.with_next_epoch(expected_epoch, init.timeout_ms, wall_ms)


def _has_ended(transaction: Transaction, end: End) -> bool:
    """Whether a transaction has ended as asked already; False where it is to be ended now; KafkaError otherwise.

    In the order of Kafka's TransactionCoordinator.endTransaction.
    """
    state, gives_epoch = transaction.state, end.version >= EPOCH_PER_TRANSACTION
    if (
        gives_epoch and state in PREPARED
    ):  # who asks may have the epoch, or the id, that counts when it is complete
        raise KafkaError(ErrorCode.concurrent_transactions)
    is_current = _is_current(transaction, end)
    if state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if state is State.ONGOING:
        return False
    if gives_epoch and is_current and not end.is_commit:
        return False  # nothing was added to it, but its epoch ends
    asked = State.COMPLETE_COMMIT if end.is_commit else State.COMPLETE_ABORT
    if state is not asked or (gives_epoch and is_current):
        raise KafkaError(ErrorCode.invalid_txn_state)
    return True


def _is_current(transaction: Transaction, end: End) -> bool:
    """Whether who asks has the producer's id and epoch of now; False for those before an end that gave new ones, which
    it asks for again. KafkaError for anybody else."""
    if transaction.is_of(end.producer_id, end.producer_epoch):
        return True
    was_current = end.version >= EPOCH_PER_TRANSACTION and transaction.is_after(
        end.producer_id, end.producer_epoch
    )
    if was_current and transaction.state in COMPLETE:
        return False
    if transaction.producer_id != end.producer_id and not was_current:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    raise KafkaError(ErrorCode.producer_fenced)
