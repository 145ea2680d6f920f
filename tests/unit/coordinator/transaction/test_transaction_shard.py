"""The transaction coordinator's state machine, driven without a log: every record that is decided on is applied."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment
from moldau.coordinator.transaction.messages import (
    Add,
    End,
    Identity,
    Init,
    Markers,
    NeedsProducerId,
    TimedOut,
)
from moldau.coordinator.transaction.records import TransactionRecorded
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.shard import TransactionShard
from moldau.coordinator.transaction.transaction import LAST_USABLE_EPOCH, State

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
OK = ErrorCode.none
V2 = 2


class Bench:
    """One transactional id, `t`. Answers come at once; effects are kept until `write_markers`."""

    def __init__(self, shard: TransactionShard | None = None) -> None:
        self.shard = shard or TransactionShard(TransactionSettings(), coordinator_epoch=3)
        self.records: list[Any] = []
        self.effects: list[Any] = []
        self.now_ms = 1_000_000
        self.next_id = 100

    def _carry_out(self, decision: Decision) -> Any:
        for record in decision.records:
            key, value = self.shard.encode(record)
            self.records.append((key, value))
            self.shard.apply(self.shard.decode(key, value) and record, None)
        self.effects += decision.effects
        for reply, response in [*decision.answers_now, *decision.answers]:
            reply.answer(response)
        return decision

    def _ask(self, decide: Any) -> Any:
        new_id = None
        while True:
            reply = Reply(lambda error: error)
            self._carry_out(decide(new_id, reply, Moment(self.now_ms, self.now_ms)))
            if not isinstance(reply.response, NeedsProducerId):
                return reply.response
            new_id = self.next_id
            self.next_id += 1

    def init(self, expected: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000) -> Any:
        init = Init("t", timeout_ms, *expected)
        found = self._ask(lambda new_id, reply, moment: self.shard.init(init, new_id, reply, moment))
        return found if found.error else (found.producer_id, found.producer_epoch)

    def add(self, producer: tuple[int, int], *places: TopicPartition, version: int = 0) -> ErrorCode:
        add = Add("t", *producer, places, version)
        error: ErrorCode = self._ask(lambda _, reply, moment: self.shard.add(add, reply, moment))
        return error

    def end(self, producer: tuple[int, int], *, commit: bool = True, version: int = 0) -> Any:
        end = End("t", *producer, commit, version)
        found = self._ask(lambda new_id, reply, moment: self.shard.end(end, new_id, reply, moment))
        return found if found.error else (found.producer_id, found.producer_epoch)

    def write_markers(self) -> list[Markers]:
        effects, self.effects = self.effects, []
        for markers in effects:
            self._ask(lambda _, reply, moment, markers=markers: self.shard.complete(markers, reply, moment))
        return effects

    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        for decision in self.shard.on_time(Moment(self.now_ms, self.now_ms)):
            self._carry_out(decision)

    def time_out(self) -> None:
        """Carry out the time-outs that need a new producer id."""
        due = [effect for effect in self.effects if isinstance(effect, TimedOut)]
        self.effects = [effect for effect in self.effects if effect not in due]
        for effect in due:
            self._ask(
                lambda new_id, reply, moment, effect=effect: self.shard.time_out(
                    effect, new_id, reply, moment
                )
            )

    def init_to_the_last_epoch(self) -> tuple[int, int]:
        """As if all epochs before had been used."""
        producer_id, _ = self.init()
        found = self.shard.describe("t")
        assert found is not None
        last = found.transaction._replace(producer_epoch=LAST_USABLE_EPOCH)
        self._carry_out(Decision([TransactionRecorded("t", last)]))
        return producer_id, LAST_USABLE_EPOCH

    @property
    def state(self) -> State | None:
        found = self.shard.describe("t")
        return None if found is None else found.transaction.state

    def after_a_crash(self) -> Bench:
        """The same log, replayed by another coordinator."""
        shard = TransactionShard(TransactionSettings(), coordinator_epoch=4)
        other = Bench(shard)
        for key, value in self.records:
            record = shard.decode(key, value)
            assert record is not None
            shard.apply(record, None)
        other.now_ms, other.next_id = self.now_ms, self.next_id
        other._carry_out(shard.on_loaded(Moment(self.now_ms, self.now_ms)))
        return other


def refused(code: ErrorCode) -> Identity:
    return Identity(code)


# ---- producers ------------------------------------------------------------------------------------------------


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_zero_then_the_next_epochs() -> None:
    bench = Bench()
    assert [bench.init(), bench.init(), bench.init()] == [(100, 0), (100, 1), (100, 2)]


def test_a_new_producer_aborts_the_transaction_of_the_one_before_and_comes_again() -> None:
    bench = Bench()
    old = bench.init()
    bench.add(old, A)
    assert bench.init() == refused(ErrorCode.concurrent_transactions)
    assert bench.state is State.PREPARE_ABORT
    assert bench.init() == refused(ErrorCode.concurrent_transactions)  # the markers are not written yet
    (markers,) = bench.write_markers()
    assert (markers.producer_epoch, markers.is_commit, markers.partitions) == (1, False, (A,))
    assert bench.init() == (100, 2)
    assert bench.end(old) == refused(ErrorCode.producer_fenced)
    assert bench.add(old, A) is ErrorCode.producer_fenced


def test_a_producer_that_goes_on_after_an_error_is_fenced_by_another_one() -> None:
    bench = Bench()
    mine = bench.init()
    again = bench.init(expected=mine)
    assert again == (100, 1)
    assert bench.init(expected=mine) == again  # a retry of the same
    other = bench.init()
    assert bench.init(expected=again) == refused(ErrorCode.producer_fenced)
    assert bench.init(expected=(7, 0)) == refused(ErrorCode.producer_fenced)
    assert other == (100, 2)


def test_a_producer_whose_id_was_forgotten_begins_anew() -> None:
    assert Bench().init(expected=(5, 9)) == (100, 0)


def test_a_new_producer_id_follows_when_the_epochs_are_used_up() -> None:
    bench = Bench()
    producer = bench.init_to_the_last_epoch()
    rotated = bench.init(expected=producer)
    assert rotated == (101, 0)
    assert bench.init(expected=producer) == rotated  # a retry


# ---- a transaction --------------------------------------------------------------------------------------------


def test_a_transaction_is_committed_in_two_phases() -> None:
    bench = Bench()
    producer = bench.init()
    assert bench.add(producer, A) is OK
    assert bench.add(producer, B, A) is OK
    assert bench.end(producer) == producer
    assert bench.state is State.PREPARE_COMMIT
    assert bench.effects == [Markers("t", 100, 0, 3, True, 0, (A, B))]
    assert bench.add(producer, A) is ErrorCode.concurrent_transactions
    assert bench.end(producer) == refused(ErrorCode.concurrent_transactions)
    bench.write_markers()
    assert bench.state is State.COMPLETE_COMMIT


def test_the_end_can_be_asked_for_again_but_not_for_another_end() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A)
    bench.end(producer, commit=False)
    assert bench.end(producer, commit=True) == refused(ErrorCode.concurrent_transactions)
    bench.write_markers()
    assert bench.end(producer, commit=False) == producer
    assert bench.end(producer, commit=True) == refused(ErrorCode.invalid_txn_state)
    assert bench.effects == []


def test_an_end_is_recorded_once_though_it_is_found_out_twice() -> None:
    """Also where the transaction had no partitions, and nothing tells its record from that of its end."""
    for places in ((A,), ()):
        bench = Bench()
        producer = bench.init()
        if places:
            bench.add(producer, *places, version=V2)
        bench.end(producer, commit=False, version=V2)
        effects = bench.effects.copy()
        bench.write_markers()
        count = len(bench.records)
        bench.effects = effects
        bench.write_markers()
        assert len(bench.records) == count


def test_while_a_transaction_is_ended_the_partitions_without_a_marker_are_described() -> None:
    bench = Bench()

    def described() -> tuple[TopicPartition, ...]:
        found = bench.shard.describe("t")
        assert found is not None
        return found.transaction.partitions

    producer = bench.init()
    bench.add(producer, A, B)
    bench.end(producer)
    assert described() == (A, B)
    (markers,) = bench.effects
    bench._carry_out(bench.shard.note_markers(markers, (B,)))
    assert described() == (B,)
    bench._carry_out(bench.shard.note_markers(markers._replace(coordinator_epoch=2), ()))
    assert described() == (B,)
    assert bench.write_markers() == [markers]
    bench.add(producer, A)
    assert described() == (A,)


def test_a_partition_that_is_there_already_is_not_recorded_again() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A)
    count = len(bench.records)
    assert bench.add(producer, A) is OK
    assert len(bench.records) == count


def test_strangers_are_refused() -> None:
    bench = Bench()
    assert bench.add((1, 0), A) is ErrorCode.invalid_producer_id_mapping
    assert bench.end((1, 0)) == refused(ErrorCode.invalid_producer_id_mapping)
    producer_id, epoch = bench.init()
    assert bench.add((producer_id + 1, epoch), A) is ErrorCode.invalid_producer_id_mapping
    assert bench.add((producer_id, epoch + 1), A) is ErrorCode.producer_fenced
    assert bench.end((producer_id, epoch)) == refused(ErrorCode.invalid_txn_state)  # nothing was begun


def test_partitions_are_verified() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A)
    add = Add("t", *producer, (A, B))
    assert bench.shard.verify(add) == {A: OK, B: ErrorCode.transaction_abortable}
    assert bench.shard.verify(add._replace(producer_epoch=9)) == dict.fromkeys(
        (A, B), ErrorCode.producer_fenced
    )
    bench.end(producer)
    assert bench.shard.verify(add)[A] is ErrorCode.concurrent_transactions


# ---- an epoch for each transaction (KIP-890) -----------------------------------------------------------------


def test_every_end_gives_the_next_epoch_and_fences_the_one_before() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A, version=V2)
    after = bench.end(producer, version=V2)
    assert after == (100, 1)
    assert [(m.producer_epoch, m.version) for m in bench.write_markers()] == [(1, V2)]
    assert bench.add(producer, A, version=V2) is ErrorCode.producer_fenced
    assert bench.add(after, A, version=V2) is OK


def test_a_retry_of_an_end_is_known_by_the_epoch_before() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A, version=V2)
    after = bench.end(producer, version=V2)
    assert bench.end(producer, version=V2) == refused(ErrorCode.concurrent_transactions)
    bench.write_markers()
    assert bench.end(producer, version=V2) == after
    assert bench.end(producer, commit=False, version=V2) == refused(ErrorCode.invalid_txn_state)
    assert bench.effects == []


def test_a_transaction_without_partitions_can_be_aborted_but_not_committed() -> None:
    bench = Bench()
    producer = bench.init()
    assert bench.end(producer, version=V2) == refused(ErrorCode.invalid_txn_state)
    after = bench.end(producer, commit=False, version=V2)
    assert after == (100, 1)
    assert [m.partitions for m in bench.write_markers()] == [()]
    assert bench.state is State.COMPLETE_ABORT
    assert bench.end(after, commit=False, version=V2) == (100, 2)


def test_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    bench = Bench()
    producer = bench.init_to_the_last_epoch()
    bench.add(producer, A, version=V2)
    after = bench.end(producer, version=V2)
    assert after == (101, 0)
    (markers,) = bench.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (100, LAST_USABLE_EPOCH + 1)
    assert bench.end(producer, version=V2) == after  # a retry
    assert bench.add(after, A, version=V2) is OK


def test_the_last_epoch_is_followed_by_a_new_producer_id_also_where_another_producer_comes() -> None:
    """Otherwise the one before could go on with the largest epoch, and no marker could ever end its transaction."""
    bench = Bench()
    producer = bench.init_to_the_last_epoch()
    bench.add(producer, A, version=V2)
    assert bench.init() == refused(ErrorCode.concurrent_transactions)
    (markers,) = bench.write_markers()
    assert (markers.producer_id, markers.producer_epoch) == (100, LAST_USABLE_EPOCH + 1)
    assert bench.end(producer, version=V2) == refused(ErrorCode.invalid_txn_state)
    assert bench.end(producer, commit=False, version=V2) == (101, 0)
    assert bench.end(producer) == refused(ErrorCode.invalid_producer_id_mapping)
    assert bench.init() == (101, 1)


@pytest.mark.parametrize("is_rotated", [False, True])
def test_the_next_transaction_has_to_wait_for_the_markers_of_the_one_before(is_rotated: bool) -> None:
    """Its producer was told the epoch, or the id, that counts from then on."""
    bench = Bench()
    producer = bench.init_to_the_last_epoch() if is_rotated else bench.init()
    bench.add(producer, A, version=V2)
    after = bench.end(producer, version=V2)
    wait = ErrorCode.concurrent_transactions
    assert bench.add(after, B, version=V2) is wait
    assert bench.end(after, commit=False, version=V2) == refused(wait)
    assert bench.init(expected=after) == refused(wait)
    bench.write_markers()
    assert bench.add(after, B, version=V2) is OK


def test_the_first_end_with_an_epoch_of_its_own_is_no_retry_of_the_last_without() -> None:
    """A producer whose brokers were upgraded."""
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A)
    bench.end(producer)
    bench.write_markers()
    assert bench.end(producer, version=V2) == refused(ErrorCode.invalid_txn_state)
    assert bench.end(producer, commit=False, version=V2) == (100, 1)


# ---- time -----------------------------------------------------------------------------------------------------


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    bench = Bench()
    bench._carry_out(bench.shard.on_loaded(Moment(bench.now_ms, bench.now_ms)))
    producer = bench.init(timeout_ms=30_000)
    bench.add(producer, A)
    bench.pass_time(30_000)
    assert bench.state is State.ONGOING
    bench.pass_time(10_000)
    assert bench.state is State.PREPARE_ABORT
    bench.write_markers()
    assert bench.state is State.COMPLETE_ABORT
    assert bench.add(producer, A) is ErrorCode.producer_fenced
    assert bench.end(producer) == refused(ErrorCode.producer_fenced)


def test_a_time_out_at_the_last_epoch_is_followed_by_a_new_producer_id() -> None:
    bench = Bench()
    bench._carry_out(bench.shard.on_loaded(Moment(bench.now_ms, bench.now_ms)))
    producer = bench.init_to_the_last_epoch()
    bench.add(producer, A, version=V2)
    bench.pass_time(70_000)
    assert (bench.effects, bench.state) == ([TimedOut("t", *producer)], State.ONGOING)
    bench.time_out()
    (markers,) = bench.write_markers()
    assert (markers.producer_epoch, markers.is_commit) == (LAST_USABLE_EPOCH + 1, False)
    after = bench.end(producer, commit=False, version=V2)
    assert after == (101, 0)
    assert bench.add(after, A, version=V2) is OK


def test_a_time_out_that_comes_too_late_aborts_nothing() -> None:
    bench = Bench()
    bench._carry_out(bench.shard.on_loaded(Moment(bench.now_ms, bench.now_ms)))
    producer = bench.init_to_the_last_epoch()
    bench.add(producer, A, version=V2)
    bench.pass_time(70_000)
    late = bench.effects.copy()
    bench.effects.clear()
    after = bench.end(producer, version=V2)
    bench.write_markers()
    bench.add(after, B, version=V2)
    bench.effects = late
    bench.time_out()
    assert (bench.effects, bench.state) == ([], State.ONGOING)


def test_ids_that_nobody_uses_are_forgotten_but_no_open_transaction_is() -> None:
    bench = Bench()
    bench._carry_out(bench.shard.on_loaded(Moment(bench.now_ms, bench.now_ms)))
    bench.init()
    bench.pass_time(7 * 24 * 3_600_000)
    assert bench.state is None
    assert bench.records[-1][1] is None
    assert bench.init() == (101, 0)


# ---- crashes --------------------------------------------------------------------------------------------------


def test_after_a_crash_an_end_that_was_decided_is_carried_out() -> None:
    for commit in (True, False):
        bench = Bench()
        producer = bench.init()
        bench.add(producer, A, B)
        bench.end(producer, commit=commit)
        other = bench.after_a_crash()
        assert other.effects == [Markers("t", 100, 0, 4, commit, 0, (A, B))]
        other.write_markers()
        assert other.state is (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
        assert other.end(producer, commit=commit) == producer


def test_after_a_crash_the_next_epoch_and_the_next_producer_id_are_those_that_were_promised() -> None:
    for is_rotated in (False, True):
        bench = Bench()
        producer = bench.init_to_the_last_epoch() if is_rotated else bench.init()
        bench.add(producer, A, version=V2)
        after = bench.end(producer, version=V2)
        other = bench.after_a_crash()
        assert other.add(after, B, version=V2) is ErrorCode.concurrent_transactions
        other.write_markers()
        assert other.end(producer, version=V2) == after  # a retry, whose first answer was lost
        assert other.add(after, B, version=V2) is OK


def test_markers_of_a_coordinator_before_the_crash_complete_nothing_after_it() -> None:
    bench = Bench()
    producer = bench.init()
    bench.add(producer, A)
    bench.end(producer)
    other = bench.after_a_crash()
    late = bench.effects[0]
    other._ask(lambda _, reply, moment: other.shard.complete(late, reply, moment))
    assert other.state is State.PREPARE_COMMIT


def test_after_a_crash_nothing_else_is_done() -> None:
    bench = Bench()
    producer = bench.init()
    assert bench.after_a_crash().effects == []
    bench.add(producer, A)
    other = bench.after_a_crash()
    assert other.effects == []
    assert other.state is State.ONGOING
    assert other.end(producer) == producer
