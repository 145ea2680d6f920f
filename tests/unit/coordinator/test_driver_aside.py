"""What takes long is decided in a thread: the loop goes on, and the shard is never used by two."""

from __future__ import annotations

import asyncio
import time

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.limits import COORDINATOR_CALLS_HELD_MAX
from moldau.coordinator.driver import Driver, State
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment, Producer
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.sim.world import World

from .support import Bench, MemoryJournal, Registers, new_reply


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(MemoryJournal(), world).load()


def put_long(bench: Bench, name: str, value: str) -> Reply:
    reply = new_reply()
    bench.driver.write(lambda shard, _: shard.put(reply, name, value), reply, lambda _: True)
    return reply


def values(journal: MemoryJournal) -> list[bytes | None]:
    return [entry.value for entry in journal.entries]


def test_what_comes_meanwhile_waits_in_order(bench: Bench) -> None:
    first = put_long(bench, "a", "1")
    others = [bench.get("a"), bench.put("a", "2"), put_long(bench, "a", "3"), bench.get("a")]
    assert not first.is_answered and not any(reply.is_answered for reply in others)
    bench.sleep(1)

    assert first.response == "stored"
    assert [reply.response for reply in others] == ["1", "stored", "stored", "3"]
    assert values(bench.journal) == [b"1", b"2", b"3"]
    assert bench.get("a").response == "3"  # at once again


def test_a_look_at_much_is_aside_too(bench: Bench) -> None:
    bench.put("a", "1")
    reply = new_reply()
    bench.driver.read(lambda shard, _: shard.values.get("a"), reply, lambda _: True)
    assert not reply.is_answered
    bench.sleep(1)
    assert reply.response == "1"


def test_whether_it_takes_long_is_asked_when_its_turn_has_come(bench: Bench) -> None:
    """By then the shard may be another one, and it must not be looked at while a thread has it."""
    put_long(bench, "a", "large")
    reply, asked = new_reply(), []

    def takes_long(shard: Registers) -> bool:
        asked.append(shard.values.get("a"))
        return False

    bench.driver.write(lambda shard, _: shard.put(reply, "a", "2"), reply, takes_long)
    assert asked == []
    bench.sleep(1)
    assert asked == ["large"] and reply.response == "stored"


def test_markers_and_notes_that_come_meanwhile_are_not_lost(bench: Bench) -> None:
    put_long(bench, "a", "1")
    bench.driver.apply_marker(Producer(7, 0), is_commit=True)
    bench.driver.note(lambda *_: Decision(records=[("b", "noted")]))
    assert bench.shard.markers == []
    bench.sleep(1)
    assert bench.shard.markers == [(Producer(7, 0), True)]
    assert bench.shard.values == {"a": "1", "b": "noted"}


def test_a_marker_that_changes_much_is_applied_before_what_follows_it(bench: Bench) -> None:
    bench.driver.apply_marker(Producer(7, 0), is_commit=False, takes_long=lambda _: True)
    reply = new_reply()
    bench.driver.read(lambda shard, _: list(shard.markers), reply)
    assert not reply.is_answered
    bench.sleep(1)
    assert reply.response == [(Producer(7, 0), False)]


def test_leadership_that_is_lost_meanwhile_ends_all_who_wait(bench: Bench) -> None:
    parked = bench.wait()
    first, behind = put_long(bench, "a", "1"), bench.put("a", "2")
    bench.driver.close()
    assert behind.response is ErrorCode.not_coordinator
    bench.sleep(1)

    assert first.response is ErrorCode.not_coordinator
    assert parked.is_answered
    assert values(bench.journal) == []
    assert bench.driver.state is State.CLOSED


def test_deadlines_that_pass_meanwhile_are_judged_afterwards(bench: Bench) -> None:
    bench.put_for("short-lived", "1", ttl_ms=1)
    put_long(bench, "a", "1")
    bench.sleep(2)
    assert bench.shard.values == {"a": "1"}


def test_what_cannot_be_appended_is_not_applied(bench: Bench) -> None:
    bench.journal.refusal = ErrorCode.coordinator_not_available
    reply = put_long(bench, "a", "1")
    bench.sleep(1)
    assert reply.response is ErrorCode.coordinator_not_available
    assert bench.shard.values == {}


def test_a_decision_that_may_be_cut_is_written_in_pieces(bench: Bench) -> None:
    reply = new_reply()
    rows = [(f"key-{number}", "x" * 100) for number in range(50)]
    decision = Decision(rows, [(reply, "done")], is_atomic=False)
    bench.driver.write(lambda *_: decision, reply, lambda _: True)
    bench.sleep(1)
    assert reply.response == "done" and len(bench.shard.values) == 50


def test_a_failure_is_answered_and_the_shard_goes_on(bench: Bench, world: World) -> None:
    reply = new_reply()

    def fail(*_: object) -> Decision:
        raise ValueError("a mistake")

    bench.driver.write(fail, reply, lambda _: True)
    behind = bench.put("a", "1")
    bench.sleep(1)
    assert reply.response is ErrorCode.unknown_server_error
    assert behind.response == "stored"
    assert [str(failure.error) for failure in world.failures] == ["a mistake"]
    world.failures.clear()


def test_no_more_than_so_many_wait(bench: Bench) -> None:
    put_long(bench, "a", "1")
    replies = [bench.put("a", str(number)) for number in range(COORDINATOR_CALLS_HELD_MAX + 1)]
    assert replies[-1].response is ErrorCode.coordinator_load_in_progress
    bench.sleep(1)
    assert all(reply.response == "stored" for reply in replies[:-1])


def test_the_loop_goes_on_while_a_thread_decides() -> None:
    """With real threads: a decision that computes for a while, and a loop that is to turn many times meanwhile."""
    turns = 0

    async def decide_for_long() -> int:
        nonlocal turns
        runtime = real_runtime(asyncio.get_running_loop())
        driver: Driver[Registers] = Driver(
            "registers-0",
            MemoryJournal(),
            Registers,
            runtime.tasks,
            runtime.clock,
            write_timeout_ms=5000,
            perform=print,
        )
        await driver.load()
        reply = new_reply()

        def decide(shard: Registers, _: Moment) -> Decision:
            until_s = time.thread_time() + 0.2
            while time.thread_time() < until_s:
                sum(range(1000))
            return shard.put(reply, "a", "1")

        driver.write(decide, reply, lambda _: True)
        while not reply.is_answered:
            await asyncio.sleep(0.001)
            turns += 1
        driver.close()
        close_runtime(runtime)
        return turns

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(decide_for_long()) >= 20
