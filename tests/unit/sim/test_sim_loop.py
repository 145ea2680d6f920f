"""The simulated loop: virtual time, a fixed order, and the end of a life."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from moldau.runtime.ports import Runtime
from moldau.sim.loop import Deadlock, HostCrashed, StepsExceeded
from moldau.sim.world import World


@pytest.fixture
def world() -> Iterator[World]:
    with World(seed=1) as world:
        yield world


def test_an_hour_passes_in_no_time(world: World) -> None:
    started = time.monotonic()

    async def scenario() -> float:
        before = world.loop.time()
        await asyncio.sleep(3600)
        return world.loop.time() - before

    assert world.run(scenario()) == pytest.approx(3600, abs=0.001)
    assert time.monotonic() - started < 5


def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set(world: World) -> None:
    order: list[int] = []

    async def scenario() -> None:
        when = world.loop.time() + 1
        for number in range(50):
            world.loop.call_at(when, order.append, number)
        await asyncio.sleep(2)

    world.run(scenario())
    assert order == list(range(50))


def test_what_asyncio_offers_works_unchanged(world: World) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        assert list(await asyncio.gather(asyncio.sleep(2, "a"), asyncio.sleep(1, "b"))) == ["a", "b"]
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        putting = asyncio.create_task(queue.put(1))
        assert await asyncio.wait_for(queue.get(), 1) == 1
        await putting
        sleeping = asyncio.create_task(asyncio.sleep(100))
        await asyncio.sleep(0)
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping

    world.run(scenario())


def test_a_world_in_which_nothing_can_happen_is_an_error(world: World) -> None:
    async def waits_for_nobody() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="waits_for_nobody"):
        world.run(waits_for_nobody())


def test_a_run_without_end_is_an_error() -> None:
    async def spins() -> None:
        while True:
            await asyncio.sleep(0)

    with World(seed=1, steps_max=1000) as world, pytest.raises(StepsExceeded):
        world.run(spins())


def test_polling_until_a_deadline_reaches_it(world: World) -> None:
    async def scenario() -> int:
        deadline = world.loop.time() + 0.001
        polls = 0
        while world.loop.time() < deadline:
            polls += 1
            await asyncio.sleep(0)
        return polls

    assert 10 < world.run(scenario()) < 10_000


def test_cancelled_timers_do_not_pile_up(world: World) -> None:
    async def scenario() -> None:
        for _ in range(10_000):
            world.loop.call_later(1000, print).cancel()

    world.run(scenario())
    assert len(world.loop._timers) < 1000


def test_nothing_of_a_crashed_host_runs_again(world: World) -> None:
    host = world.host("a")
    seen: list[str] = []

    async def ticks(runtime: Runtime) -> None:
        while True:
            await runtime.tasks.sleep(1)
            seen.append("task")
            await asyncio.create_task(asyncio.sleep(0))

    async def scenario() -> None:
        host.runtime.tasks.spawn(ticks(host.runtime), name="ticks")
        host.runtime.tasks.call_later(2.5, seen.append, "timer")
        host.runtime.tasks.in_thread(seen.append, "thread")
        host.crash()
        await asyncio.sleep(100)

    world.run(scenario())
    assert seen == []
    assert not world.failures


def test_a_dying_coroutine_reaches_nothing(world: World) -> None:
    """Its `finally` blocks run once, at the crash, and every port refuses them."""
    host = world.host("a")
    refused: list[str] = []

    async def work(runtime: Runtime) -> None:
        file = runtime.disk.open("/file", create=True)
        try:
            await runtime.tasks.sleep(1000)
        finally:
            try:
                file.pwrite(b"too late", 0)
            except Exception:
                refused.append("an Exception, which a host's own handler can catch")
            except BaseException as error:
                refused.append(type(error).__name__)
            await runtime.tasks.sleep(1)
            refused.append("went on after the crash")

    async def scenario() -> None:
        host.runtime.tasks.spawn(work(host.runtime), name="work")
        await asyncio.sleep(1)
        host.crash()
        assert refused == ["HostCrashed"]
        await asyncio.sleep(10)

    world.run(scenario())
    assert refused == ["HostCrashed"]


def test_a_host_can_cause_its_own_end(world: World) -> None:
    host = world.host("a")
    seen: list[str] = []

    async def suicide(runtime: Runtime) -> None:
        host.crash()
        seen.append("the rest of this step")
        await runtime.tasks.sleep(1)
        seen.append("never")

    async def scenario() -> None:
        host.runtime.tasks.spawn(suicide(host.runtime), name="suicide")
        await asyncio.sleep(10)

    world.run(scenario())
    assert seen == ["the rest of this step"]


def test_a_crash_in_the_middle_of_a_disk_change_unwinds_the_host(world: World) -> None:
    host = world.host("a")
    seen: list[int] = []

    async def writer(runtime: Runtime) -> None:
        file = runtime.disk.open("/file", create=True)
        for number in range(10):
            try:
                file.pwrite(b"x", number)
            except Exception:
                seen.append(-1)
            seen.append(number)

    async def scenario() -> None:
        host.drive.crash_after(4)
        host.runtime.tasks.spawn(writer(host.runtime), name="writer")
        await asyncio.sleep(1)
        assert not host.alive

    world.run(scenario())
    assert seen == [0, 1, 2]
    assert not world.failures


def test_the_ports_of_a_past_life_are_dead_and_the_next_life_has_its_own(world: World) -> None:
    host = world.host("a")
    old = host.runtime
    new = host.restart()
    assert new is host.runtime
    with pytest.raises(HostCrashed):
        old.disk.list("/")
    with pytest.raises(HostCrashed):
        old.tasks.call_soon(print)
    with pytest.raises(HostCrashed):
        old.net.listen("", 1, lambda stream: None)
    assert new.disk.list("/") == []


def test_threads_are_bounded_and_take_time(world: World) -> None:
    host = world.host("a", thread_delay_s=(1.0, 1.0))

    async def scenario(runtime: Runtime) -> list[float]:
        start = runtime.clock.monotonic()
        futures = [runtime.tasks.in_thread(runtime.clock.monotonic) for _ in range(17)]
        return [await future - start for future in futures]

    async def whole() -> list[float]:
        return await host.runtime.tasks.spawn(scenario(host.runtime), name="scenario")

    times = [round(moment) for moment in world.run(whole())]
    assert times == [1] * 8 + [3] * 8 + [5]


def test_failures_that_nobody_awaits_are_kept_for_the_checkers(world: World) -> None:
    host = world.host("a")

    async def fails() -> None:
        raise ValueError("the reason")

    def fails_too() -> None:
        raise KeyError("another")

    async def scenario() -> None:
        host.runtime.tasks.spawn(fails(), name="some work")
        host.runtime.tasks.call_soon(fails_too)
        await asyncio.sleep(1)

    world.run(scenario())
    assert [(failure.host, type(failure.error)) for failure in world.failures] == [
        ("loop", KeyError),
        ("a", ValueError),
    ]
