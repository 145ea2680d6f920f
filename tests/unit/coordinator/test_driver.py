"""The runtime's promises, over a toy state machine: append, apply, answer when committed; load; give up."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.limits import (
    COORDINATOR_CALLS_HELD_MAX,
    COORDINATOR_GRACES_MAX,
    COORDINATOR_NOTES_HELD_MAX,
)
from moldau.coordinator.driver import GRACE_MS, PATIENCE_S, RECORDS_PER_TURN, Driver, State
from moldau.coordinator.journal import Entry
from moldau.coordinator.shard import Decision, Producer
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.sim.world import World

from .support import Bench, MemoryJournal, Registers, new_reply


def stored(*rows: tuple[str, str | None]) -> MemoryJournal:
    journal = MemoryJournal()
    for name, value in rows:
        journal.append([(name.encode(), None if value is None else value.encode())], 0)
    return journal


# ---- writing ------------------------------------------------------------------------------------------------


def test_a_write_is_appended_applied_and_answered(bench: Bench) -> None:
    reply = bench.put("a", "1")

    assert reply.response == "stored"
    assert bench.shard.values == {"a": "1"}
    assert [(entry.key, entry.value) for entry in bench.journal.entries] == [(b"a", b"1")]


def test_an_answer_waits_for_the_high_watermark(slow: Bench) -> None:
    first, second = slow.put("a", "1"), slow.put("a", "2")

    assert not first.is_answered and not second.is_answered
    slow.journal.commit(1)
    assert first.is_answered and not second.is_answered
    slow.journal.commit(2)
    assert second.is_answered


def test_a_write_that_nobody_waits_for_commits_what_others_wait_for(slow: Bench) -> None:
    reply = slow.put("a", "1")
    slow.journal.commits = True
    slow.decide(Decision(records=[("b", "2")]))

    assert reply.response == "stored"


def test_a_read_waits_until_what_it_saw_is_committed(slow: Bench) -> None:
    slow.put("a", "1")
    reply = slow.get("a")

    assert not reply.is_answered
    slow.journal.commit()
    assert reply.response == "1"


def test_an_answer_of_now_does_not_wait(slow: Bench) -> None:
    slow.put("a", "1")
    reply = new_reply()
    slow.decide(Decision(answers_now=[(reply, "alive")]))

    assert reply.response == "alive"


def test_what_cannot_be_appended_is_not_applied_and_fails(bench: Bench) -> None:
    bench.journal.refusal = ErrorCode.coordinator_not_available
    reply = bench.put("a", "1")

    assert reply.response is ErrorCode.coordinator_not_available
    assert bench.shard.values == {}


def test_a_refused_write_fails_the_parked_answers_that_it_would_have_given(bench: Bench) -> None:
    waiting = bench.wait()
    bench.journal.refusal = ErrorCode.not_coordinator
    bench.put("a", "1")

    assert waiting.response is ErrorCode.not_coordinator


def test_a_parked_reply_is_answered_by_a_later_event(bench: Bench) -> None:
    waiting = bench.wait()
    assert not waiting.is_answered

    bench.put("a", "1")
    assert waiting.response == "changed"


def test_effects_are_performed_once_committed(slow: Bench) -> None:
    slow.decide(Decision(records=[("a", "1")], effects=["send"]))

    assert slow.performed == []
    slow.journal.commit()
    assert slow.performed == ["send"]


def test_effects_of_a_refused_decision_are_dropped(bench: Bench) -> None:
    bench.journal.refusal = ErrorCode.not_coordinator
    bench.decide(Decision(records=[("a", "1")], effects=["send"]))

    assert bench.performed == []


def test_an_atomic_decision_is_one_batch_however_large(bench: Bench) -> None:
    bench.decide(Decision(records=[(f"key-{number}", "x" * 100) for number in range(50)]))

    assert len(bench.journal.batches) == 1


def test_a_decision_that_may_be_cut_keeps_to_the_largest_batch(bench: Bench) -> None:
    names = [f"key-{number}" for number in range(50)]
    bench.decide(Decision(records=[(name, "x" * 100) for name in names], is_atomic=False))

    sizes = [sum(len(e.key or b"") + len(e.value or b"") for e in batch) for batch in bench.journal.batches]
    assert len(sizes) > 1 and max(sizes) <= bench.journal.batch_bytes_max
    assert list(bench.shard.values) == names


def test_records_of_a_transaction_carry_their_producer(bench: Bench) -> None:
    bench.decide(Decision(records=[("a", "1")], producer=Producer(7, 2)))

    assert bench.journal.entries[0].producer == Producer(7, 2)


def test_an_answer_that_waits_too_long_fails_but_its_effects_still_come(slow: Bench) -> None:
    reply = new_reply()
    slow.decide(Decision(records=[("a", "1")], answers=[(reply, "stored")], effects=["send"]))

    slow.sleep(4.9)
    assert not reply.is_answered
    slow.sleep(0.2)
    assert reply.response is ErrorCode.coordinator_not_available
    slow.journal.commit()
    assert slow.performed == ["send"]


# ---- time ---------------------------------------------------------------------------------------------------


def test_a_deadline_decides_through_the_log(bench: Bench) -> None:
    bench.put_for("a", "1", ttl_ms=300)

    bench.sleep(0.29)
    assert "a" in bench.shard.values
    bench.sleep(0.02)
    assert "a" not in bench.shard.values
    assert bench.journal.entries[-1].value is None


def test_a_later_deadline_does_not_hide_an_earlier_one(bench: Bench) -> None:
    bench.put_for("late", "1", ttl_ms=5000)
    bench.put_for("soon", "1", ttl_ms=100)

    bench.sleep(0.2)
    assert bench.shard.values == {"late": "1"}


def test_each_due_decision_is_carried_out_before_the_next_is_made(bench: Bench) -> None:
    for name in "abc":
        bench.put_for(name, "1", ttl_ms=100)

    bench.sleep(0.2)
    assert bench.shard.values == {}
    assert [entry.key for entry in bench.journal.entries[3:]] == [b"a", b"b", b"c"]


def test_after_a_stop_whoever_is_heard_within_a_moment_stays(bench: Bench) -> None:
    for name in ("healthy", "dead"):
        bench.put_for(name, "1", ttl_ms=6000)
    bench.stop_for(12)
    bench.sleep(GRACE_MS / 1000 - 0.1)
    assert bench.shard.values == {"healthy": "1", "dead": "1"}
    bench.put_for("healthy", "2", ttl_ms=6000)
    bench.sleep(0.2)

    assert bench.shard.values == {"healthy": "2"}


def test_what_writes_meanwhile_does_not_end_the_moment_that_all_have_after_a_stop(bench: Bench) -> None:
    bench.put_for("quiet", "1", ttl_ms=6000)
    bench.stop_for(12)
    bench.sleep(0.01)
    bench.put("other", "1")
    bench.sleep(GRACE_MS / 1000 - 0.1)

    assert "quiet" in bench.shard.values


def test_a_loop_that_is_never_on_time_does_not_keep_the_dead_for_ever(bench: Bench) -> None:
    bench.put_for("dead", "1", ttl_ms=1000)
    for _ in range(COORDINATOR_GRACES_MAX):
        bench.stop_for(5)
        bench.sleep(0.01)
        assert "dead" in bench.shard.values
    bench.stop_for(5)
    bench.sleep(0.01)

    assert "dead" not in bench.shard.values


@pytest.mark.parametrize("new_loop", [new_event_loop, asyncio.SelectorEventLoop])
def test_what_waits_in_a_socket_when_a_deadline_is_due_is_heard_first(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A heartbeat that has arrived while the loop was held for a little, over real sockets."""

    async def hold_the_loop() -> list[bytes | None]:
        loop = asyncio.get_running_loop()
        runtime = real_runtime(loop)
        here, there = socket.socketpair()
        journal = MemoryJournal()
        driver: Driver[Registers] = Driver(
            "registers-0",
            journal,
            Registers,
            runtime.tasks,
            runtime.clock,
            write_timeout_ms=5000,
            perform=print,
        )

        def hold() -> None:
            there.recv(100)
            there.send(b"heartbeat")
            time.sleep(0.05)

        def receive() -> None:
            here.recv(100)
            loop.call_soon(beat)

        def beat() -> None:
            reply = new_reply()
            driver.write(lambda shard, moment: shard.put_for(reply, "a", "2", moment, 60_000), reply)

        try:
            await driver.load()
            first = new_reply()
            driver.write(lambda shard, moment: shard.put_for(first, "a", "1", moment, 20), first)
            loop.add_reader(here, receive)
            loop.add_reader(there, hold)
            here.send(b"something slow")
            await asyncio.sleep(0.1)
            return [entry.value for entry in journal.entries]
        finally:
            driver.close()
            loop.remove_reader(here)
            loop.remove_reader(there)
            here.close()
            there.close()
            close_runtime(runtime)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(hold_the_loop()) == [b"1", b"2"]


# ---- loading ------------------------------------------------------------------------------------------------


def test_loading_replays_the_log(world: World) -> None:
    bench = Bench(stored(("a", "1"), ("b", "2"), ("a", None)), world).load()

    assert bench.get("b").response == "2"
    assert bench.get("a").response is None
    assert bench.shard.loaded_at is not None


def test_requests_wait_in_order_while_the_log_is_loaded(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    replies = [bench.get("a"), bench.put("a", "2"), bench.get("a"), bench.put("a", "3"), bench.get("a")]

    assert not any(reply.is_answered for reply in replies)
    bench.load()
    assert [reply.response for reply in replies] == ["1", "stored", "2", "stored", "3"]


def test_who_comes_while_those_are_served_who_have_waited_is_served_behind_them(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    for number in range(100):
        bench.put("a", str(number))
    bench.start_loading()

    async def come_in_between() -> None:
        while bench.driver.state is State.LOADING:
            await world.sleep(0)
        assert bench.shard.values["a"] != "99"
        bench.put("a", "last")
        await world.sleep(0.01)

    world.run(come_in_between())
    assert bench.get("a").response == "last"


def test_requests_are_refused_where_the_load_takes_long(world: World) -> None:
    journal = stored(("a", "1"))
    journal.unreadable = [OSError("broken")] * 10
    bench = Bench(journal, world)
    early = bench.put("b", "2")
    bench.load()
    assert not early.is_answered
    bench.sleep(PATIENCE_S)

    assert early.response is ErrorCode.coordinator_load_in_progress
    assert bench.get("a").response is ErrorCode.coordinator_load_in_progress


def test_no_more_requests_wait_for_the_load_than_the_bound(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    replies = [bench.get("a") for _ in range(COORDINATOR_CALLS_HELD_MAX + 1)]

    assert [reply.is_answered for reply in replies] == [False] * COORDINATOR_CALLS_HELD_MAX + [True]
    assert replies[-1].response is ErrorCode.coordinator_load_in_progress
    bench.driver.close()
    assert {reply.response for reply in replies[:-1]} == {ErrorCode.not_coordinator}


def test_replay_gives_way_to_others(world: World) -> None:
    journal = MemoryJournal()
    journal.append([(f"key-{number}".encode(), b"") for number in range(10 * RECORDS_PER_TURN)], 0)
    bench = Bench(journal, world)
    turns = 0

    async def watch() -> None:
        nonlocal turns
        while bench.driver.state is State.LOADING:
            turns += 1
            await world.sleep(0)

    bench.start_loading()
    world.run(watch())
    assert turns >= 10


def test_an_event_of_the_cluster_waits_for_the_load(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    bench.driver.note(lambda shard, _: Decision(records=[(name, None) for name in shard.values]))

    assert bench.load().get("a").response is None


def test_events_are_kept_for_after_the_load_up_to_a_bound(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    for number in range(COORDINATOR_NOTES_HELD_MAX + 10):
        bench.driver.note(lambda _shard, _moment, number=number: Decision(records=[(str(number), "x")]))

    assert len(bench.load().shard.values) == 1 + COORDINATOR_NOTES_HELD_MAX


def test_a_log_that_cannot_be_read_is_loaded_again_from_nothing(world: World) -> None:
    journal = stored(("a", "1"), ("b", "2"))
    journal.unreadable = [OSError("broken"), OSError("still broken")]
    bench = Bench(journal, world).load()

    assert bench.driver.state is State.LOADING
    bench.sleep(1.0)
    assert bench.get("a").response == "1"


def test_records_of_an_unknown_kind_are_left_alone(world: World) -> None:
    bench = Bench(stored(("?new", "1"), ("b", "2")), world).load()

    assert bench.shard.values == {"b": "2"}


def test_replay_tells_of_transactions_that_ended(world: World) -> None:
    journal = MemoryJournal()
    journal.append([(b"a", b"1")], 0, Producer(7, 2))
    journal.append_marker(Producer(7, 2), is_commit=True)
    bench = Bench(journal, world).load()

    assert bench.shard.markers == [(Producer(7, 2), True)]
    assert Entry(0, b"a", b"1", Producer(7, 2)) in journal.entries


def test_what_was_loaded_but_is_not_committed_is_not_read(world: World) -> None:
    journal = stored(("a", "1"), ("a", "2"))
    journal.commits = False
    journal.committed_offset = 1
    bench = Bench(journal, world).load()
    reply = bench.get("a")

    assert not reply.is_answered
    journal.commit()
    assert reply.response == "2"


def test_what_a_load_leads_to_waits_until_all_that_was_loaded_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The markers of a transaction whose end is in the log, but may still be lost with this leader."""
    monkeypatch.setattr(Registers, "on_loaded", lambda *_: Decision(effects=["markers"]))
    journal = stored(("a", "1"), ("a", "2"))
    journal.commits = False
    journal.committed_offset = 1
    bench = Bench(journal, world).load()

    assert bench.performed == []
    journal.commit()
    assert bench.performed == ["markers"]


# ---- giving up ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_loaded", [True, False])
def test_without_leadership_nothing_is_served(world: World, is_loaded: bool) -> None:
    bench = Bench(stored(("a", "1")), world)
    if is_loaded:
        bench.load()
    bench.driver.close()

    assert bench.get("a").response is ErrorCode.not_coordinator
    assert bench.put("a", "2").response is ErrorCode.not_coordinator


def test_giving_up_tells_everyone_who_waits(slow: Bench) -> None:
    parked, written = slow.wait(), slow.put("a", "1")
    unwritten = slow.wait()
    slow.driver.close()

    assert [reply.response for reply in (parked, written, unwritten)] == [ErrorCode.not_coordinator] * 3


def test_a_deadline_after_giving_up_decides_nothing(bench: Bench) -> None:
    bench.put_for("a", "1", ttl_ms=100)
    bench.driver.close()

    bench.sleep(0.5)
    assert len(bench.journal.entries) == 1


def test_a_load_that_is_given_up_never_serves(world: World) -> None:
    bench = Bench(stored(("a", "1")), world)
    bench.start_loading()
    bench.driver.close()
    bench.sleep(0.1)

    assert bench.driver.state is State.CLOSED
    assert bench.get("a").response is ErrorCode.not_coordinator
