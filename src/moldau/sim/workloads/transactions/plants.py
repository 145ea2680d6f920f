"""Bugs on purpose in coordinators, logs and fetches: each must be found by the workload of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.coordinators import Coordinators
from moldau.broker.handlers import txn_offset_commit
from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.journal import PartitionJournal
from moldau.coordinator.shard import NOTHING, Decision
from moldau.coordinator.transaction.messages import Add, End, Markers
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.coordinator.transaction.transaction import PREPARED, Transaction
from moldau.log.producers import Producers
from moldau.log.producing import Producing
from moldau.replication.partition import Partition
from moldau.sim.planting import Plants, patched

plant = TRANSACTION_PLANTS = Plants()


# ---- what readers of committed records are shown -----------------------------------------------------------------


@plant("aborted-transactions-not-named", promise=4)
def aborted_transactions_not_named() -> Iterator[None]:
    """Readers of committed records are not told what was aborted."""
    with patched(Producing, "aborted_in", lambda *_: []):
        yield


@plant("open-transactions-readable", promise=4)
def open_transactions_readable() -> Iterator[None]:
    """The last stable offset is the high watermark, whatever is open."""
    high_watermark = property(lambda partition: partition.high_watermark)
    with patched(Partition, "last_stable_offset", high_watermark):
        yield


# ---- the two phases ----------------------------------------------------------------------------------------------


@plant("a-marker-left-out", promise=4)
def a_marker_left_out() -> Iterator[None]:
    """One partition of each transaction never hears of its end."""
    write = Coordinators._write_markers

    async def forgetful(self: Coordinators, markers: Markers) -> dict[Any, ErrorCode]:
        outcomes = await write(self, markers._replace(partitions=markers.partitions[1:]))
        return outcomes | dict.fromkeys(markers.partitions[:1], ErrorCode.none)

    with patched(Coordinators, "_write_markers", forgetful):
        yield


@plant("everything-is-committed", promise=4)
def everything_is_committed() -> Iterator[None]:
    """Markers say commit, whatever was decided."""
    write = Coordinators._write_markers

    async def generous(self: Coordinators, markers: Markers) -> dict[Any, ErrorCode]:
        return await write(self, markers._replace(is_commit=True))

    with patched(Coordinators, "_write_markers", generous):
        yield


@plant("decided-ends-forgotten", promise=4)
def decided_ends_forgotten() -> Iterator[None]:
    """A coordinator that comes up does not carry out the ends that were decided before."""
    on_loaded = TransactionShard.on_loaded

    def careless(self: TransactionShard, moment: Any) -> Decision:
        on_loaded(self, moment)
        return NOTHING

    with patched(TransactionShard, "on_loaded", careless):
        yield


@plant("end-answered-before-it-is-decided", promise=4)
def end_answered_before_it_is_decided() -> Iterator[None]:
    """The coordinator answers, and writes markers, without waiting for its own log."""
    everything: Any = property(lambda _self: 1 << 62)
    with patched(PartitionJournal, "committed_offset", everything):
        yield


@plant("time-is-never-up", promise=4)
def time_is_never_up() -> Iterator[None]:
    """Transactions whose producer is gone stay open for ever."""
    with patched(Transaction, "is_timed_out", lambda *_: False):
        yield


# ---- offsets in transactions -------------------------------------------------------------------------------------


@plant("offsets-count-at-once", promise=4)
def offsets_count_at_once() -> Iterator[None]:
    """Offsets of a transaction count before it is committed."""
    with patched(Offsets, "commit_in_transaction", lambda self, record, *_: self.commit(record)):
        yield


@plant("unstable-offsets-told", promise=4)
def unstable_offsets_told() -> Iterator[None]:
    """Who asks for stable offsets does not wait for the end of transactions."""
    with patched(Offsets, "is_unstable", lambda *_: False):
        yield


# ---- fencing -----------------------------------------------------------------------------------------------------


@plant("a-new-producer-fences-nobody", promise=6)
def a_new_producer_fences_nobody() -> Iterator[None]:
    """A second instance of a transactional id gets the epoch of the first."""
    begin = Transaction.with_next_epoch

    def shared(self: Transaction, expected_epoch: int | None, timeout_ms: int, now_ms: int) -> Transaction:
        begun = begin(self, expected_epoch, timeout_ms, now_ms)
        return begun._replace(producer_epoch=max(0, self.producer_epoch))

    with patched(Transaction, "with_next_epoch", shared):
        yield


@plant("epoch-not-checked-by-the-coordinator", promise=6)
def epoch_not_checked_by_the_coordinator() -> Iterator[None]:
    """Partitions are added to a transaction for whoever asks."""

    def lenient(self: TransactionShard, add: Add) -> Transaction:
        transaction = self._transactions.get(add.transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        if transaction.state in PREPARED:
            raise KafkaError(ErrorCode.concurrent_transactions)
        return transaction

    with patched(TransactionShard, "_check_producer", lenient):
        yield


@plant("a-fenced-producer-ends-transactions", promise=6)
def a_fenced_producer_ends_transactions() -> Iterator[None]:
    """EndTxn is taken from a producer of any epoch."""
    end = TransactionShard.end

    def lenient(self: TransactionShard, asked: End, *rest: Any) -> Decision:
        transaction = self._transactions.get(asked.transactional_id)
        if transaction is not None and asked.producer_epoch < transaction.producer_epoch:
            asked = asked._replace(producer_epoch=transaction.producer_epoch)
        return end(self, asked, *rest)

    with patched(TransactionShard, "end", lenient):
        yield


@plant("offsets-not-verified", promise=6)
def offsets_not_verified() -> Iterator[None]:
    """Offsets are taken into a transaction without asking its coordinator."""

    async def trusting(*_: Any) -> None:
        pass

    with patched(txn_offset_commit, "_verify", trusting):
        yield


@plant("a-late-batch-opens-a-transaction", promise=6)
def a_late_batch_opens_a_transaction() -> Iterator[None]:
    """A batch that comes after the end of its transaction begins one that nobody ends."""
    with (
        patched(Producers, "_check_verified", lambda *_: None),
        patched(Producers, "begin_verification", lambda *_: None),
    ):
        yield
