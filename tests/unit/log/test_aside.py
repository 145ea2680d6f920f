"""What logs compute off the loop: so many at a time, the largest alone, and in turns of those who ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from log_world import ManualTasks, settle

from moldau.base.limits import ASIDE_BATCHES_MAX, HEAVY_BATCHES_MAX
from moldau.log.aside import Aside
from moldau.records.bounds import ASIDE, HEAVY, Bounds, TooMuch


class Stage:
    """Work that notes when it is done, in threads that are held until released one by one."""

    def __init__(self) -> None:
        self.tasks = ManualTasks()
        self.tasks.held = True
        self.aside = Aside(self.tasks)
        self.done: list[str] = []

    def start(self, who: str, name: str, *, is_heavy: bool = False) -> asyncio.Task[str]:
        def work(bounds: Bounds) -> str | TooMuch:
            if is_heavy and bounds is ASIDE:
                return TooMuch()
            assert bounds is (HEAVY if is_heavy else ASIDE)
            self.done.append(name)
            return name

        return asyncio.get_running_loop().create_task(self.aside.run(who, work))

    @property
    def under_way(self) -> int:
        return len(self.tasks.waiting)

    async def finish_one(self) -> None:
        self.tasks.waiting.pop(0)()
        await settle()

    async def finish_all(self) -> None:
        while self.tasks.waiting:
            await self.finish_one()


def staged(play: Callable[[Stage], Any]) -> None:
    async def main() -> None:
        await play(Stage())

    asyncio.run(main())


def test_so_many_are_under_way_at_a_time() -> None:
    async def play(stage: Stage) -> None:
        tasks = [stage.start("one", str(number)) for number in range(5)]
        await settle()
        assert stage.under_way == ASIDE_BATCHES_MAX
        await stage.finish_all()
        assert [await task for task in tasks] == stage.done == ["0", "1", "2", "3", "4"]

    staged(play)


def test_the_largest_go_one_after_the_other_and_do_not_keep_others_waiting() -> None:
    async def play(stage: Stage) -> None:
        heavy = []
        for number in range(4):
            heavy.append(stage.start("one", f"heavy {number}", is_heavy=True))
            await settle()
            stage.tasks.waiting.pop()()  # it turns out to be heavy
            await settle()
        assert stage.under_way == HEAVY_BATCHES_MAX
        small = stage.start("two", "small")
        await settle()
        stage.tasks.waiting.pop()()
        assert await small == "small" and stage.done == ["small"]
        await stage.finish_all()
        assert [await task for task in heavy] == [f"heavy {number}" for number in range(4)]

    staged(play)


def test_those_who_ask_take_turns() -> None:
    async def play(stage: Stage) -> None:
        for number in range(6):
            stage.start("greedy", f"greedy {number}")
        await settle()
        for number in range(2):
            stage.start("modest", f"modest {number}")
        await settle()
        await stage.finish_all()
        assert stage.done.index("modest 0") <= ASIDE_BATCHES_MAX + 1
        assert stage.done.index("modest 1") <= ASIDE_BATCHES_MAX + 3
        of_greedy = [name for name in stage.done if name.startswith("greedy")]
        assert of_greedy == sorted(of_greedy), "and each one's own stay in order"

    staged(play)


def test_who_gives_up_while_waiting_leaves_the_line() -> None:
    async def play(stage: Stage) -> None:
        tasks = [stage.start("one", str(number)) for number in range(5)]
        await settle()
        tasks[3].cancel()
        await settle()
        await stage.finish_all()
        assert stage.done == ["0", "1", "2", "4"]
        again = [stage.start("two", f"again {number}") for number in range(2)]
        await settle()
        assert stage.under_way == ASIDE_BATCHES_MAX, "every place is there again"
        await stage.finish_all()
        assert [await task for task in again] == ["again 0", "again 1"]

    staged(play)


def test_a_thread_has_its_place_until_it_is_done_whoever_gave_up() -> None:
    async def play(stage: Stage) -> None:
        tasks = [stage.start("one", str(number)) for number in range(ASIDE_BATCHES_MAX)]
        await settle()
        for task in tasks:
            task.cancel()
        stage.start("two", "next")
        await settle()
        assert stage.under_way == ASIDE_BATCHES_MAX
        await stage.finish_one()
        assert stage.under_way == ASIDE_BATCHES_MAX, "the next one came when a thread was free"
        await stage.finish_all()
        assert stage.done[-1] == "next"

    staged(play)


def test_a_place_that_comes_to_one_who_just_gave_up_goes_on_to_the_next() -> None:
    async def play(stage: Stage) -> None:
        tasks = [stage.start("one", str(number)) for number in range(ASIDE_BATCHES_MAX + 2)]
        await settle()
        stage.tasks.waiting.pop(0)()
        for _ in range(2):  # the done callback gives the place away; its owner has not run yet
            await asyncio.sleep(0)
        tasks[ASIDE_BATCHES_MAX].cancel()
        await settle()
        await stage.finish_all()
        assert str(ASIDE_BATCHES_MAX + 1) in stage.done

    staged(play)


def test_a_failure_is_the_askers_and_frees_the_place() -> None:
    async def play(stage: Stage) -> None:
        def fail(bounds: Bounds) -> str:
            raise OSError("the disk")

        stage.tasks.held = False
        for _ in range(2 * ASIDE_BATCHES_MAX):
            with pytest.raises(OSError, match="the disk"):
                await stage.aside.run("one", fail)
        assert await stage.start("one", "after") == "after"

    staged(play)
