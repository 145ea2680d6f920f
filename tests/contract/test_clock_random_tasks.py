"""Clock, Random and Tasks: every sentence of their ports, over every engine."""

from __future__ import annotations

import asyncio
import logging

import pytest

from moldau.runtime.ports import Runtime

from .conftest import EARLY_S, Engine


def test_monotonic_time_never_goes_back(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        times = []
        for _ in range(100):
            times.append(runtime.clock.monotonic())
            await runtime.tasks.sleep(0)
        assert times == sorted(times)
        assert times[-1] > times[0]

    engine.run(main)


def test_sleeping_takes_its_time_on_both_clocks(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        monotonic, wall_ms = runtime.clock.monotonic(), runtime.clock.wall_ms()
        await runtime.tasks.sleep(0.03)
        assert runtime.clock.monotonic() - monotonic >= 0.03 - EARLY_S
        assert runtime.clock.wall_ms() - wall_ms >= 30 - 1000 * EARLY_S

    engine.run(main)


def test_wall_time_is_milliseconds_since_the_epoch(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        assert 1_600_000_000_000 < runtime.clock.wall_ms() < 10_000_000_000_000

    engine.run(main)


def test_random_draws_stay_in_their_range_and_differ(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        draws = [runtime.random.random() for _ in range(100)]
        assert all(0 <= draw < 1 for draw in draws)
        assert len(set(draws)) == 100
        assert {runtime.random.randrange(3) for _ in range(200)} == {0, 1, 2}
        assert len(runtime.random.bytes(33)) == 33
        assert runtime.random.bytes(16) != runtime.random.bytes(16)
        first, second = runtime.random.uuid(), runtime.random.uuid()
        assert first != second
        assert first.version == 4

    engine.run(main)


def test_forks_are_streams_of_their_own_even_with_one_label(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        forks = [runtime.random.fork("a"), runtime.random.fork("a"), runtime.random.fork("b")]
        assert len({fork.bytes(16) for fork in (*forks, runtime.random)}) == 4

    engine.run(main)


def test_callbacks_run_in_the_order_in_which_they_became_due(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        order: list[str] = []
        runtime.tasks.call_later(0.03, done.set_result, None)
        runtime.tasks.call_later(0.02, order.append, "later")
        runtime.tasks.call_later(0.01, order.append, "sooner")
        runtime.tasks.call_soon(order.append, "now")
        runtime.tasks.call_soon(order.append, "next")
        assert order == []
        await done
        assert order == ["now", "next", "sooner", "later"]

    engine.run(main)


def test_a_cancelled_timer_does_not_fire(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        fired: list[int] = []
        runtime.tasks.call_later(0.005, fired.append, 1).cancel()
        runtime.tasks.call_later(0.005, fired.append, 2)
        await runtime.tasks.sleep(0.02)
        assert fired == [2]

    engine.run(main)


def test_spawned_work_runs_beside_its_caller_and_gives_its_result(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        order = []

        async def work() -> str:
            order.append("work")
            await runtime.tasks.sleep(0)
            return "result"

        task = runtime.tasks.spawn(work(), name="some work")
        order.append("caller")
        assert await task == "result"
        assert order == ["caller", "work"]
        assert task.get_name() == "some work"

    engine.run(main)


def test_a_failure_that_nobody_awaits_is_logged_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    engine.failures_expected = True

    async def main(runtime: Runtime) -> None:
        async def work() -> None:
            raise ValueError("the reason")

        task = runtime.tasks.spawn(work(), name="lonely work")
        await runtime.tasks.sleep(0.01)
        assert task.done()

    with caplog.at_level(logging.ERROR):
        engine.run(main)
    assert [record.getMessage() for record in caplog.records if "lonely work" in record.getMessage()] != []
    assert caplog.text.count("ValueError: the reason") == 1


def test_a_failure_that_is_awaited_is_raised_and_not_logged(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(runtime: Runtime) -> None:
        async def work() -> None:
            await runtime.tasks.sleep(0.001)
            raise ValueError("the reason")

        with pytest.raises(ValueError, match="the reason"):
            await runtime.tasks.spawn(work(), name="work")
        await runtime.tasks.sleep(0.005)

    with caplog.at_level(logging.ERROR):
        engine.run(main)
    assert not caplog.records


def test_thread_work_resolves_on_the_loop_with_its_result_or_error(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        assert await runtime.tasks.in_thread(divmod, 17, 5) == (3, 2)
        with pytest.raises(ZeroDivisionError):
            await runtime.tasks.in_thread(divmod, 1, 0)

    engine.run(main)


def test_the_loop_goes_on_while_thread_work_runs(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        ticks: list[int] = []
        futures = [runtime.tasks.in_thread(pow, 3, 100_000) for _ in range(50)]
        runtime.tasks.call_soon(ticks.append, 1)
        results = [await future for future in futures]
        assert ticks == [1]
        assert len(results) == 50

    engine.run(main)
