"""The engines that every contract test runs over: the operating system, its plain fallbacks, the simulated world."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.features import PLAIN, Features
from moldau.sim.fabric import Link
from moldau.sim.world import World

T = TypeVar("T")
Main = Callable[[Runtime], Coroutine[Any, Any, T]]

PATIENCE_S = 20.0
EARLY_S = 0.02
"""A real timer may end so much too soon: uvloop counts whole milliseconds from the beginning of its turn."""


class Engine(Protocol):
    name: str
    folder: str
    """An empty folder of the engine's disk."""
    failures_expected: bool
    """Set by a test that makes tasks or callbacks fail: elsewhere a simulated run with such failures is wrong."""

    def run(self, main: Main[T]) -> T:
        """Run a test's coroutine with a runtime, to its end."""
        ...


class RealEngine:
    def __init__(self, name: str, folder: Path, features: Features) -> None:
        self.name = name
        self.folder = str(folder)
        self.failures_expected = False
        self._features = features

    def run(self, main: Main[T]) -> T:
        async def whole() -> T:
            runtime = real_runtime(features=self._features)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await main(runtime)
            finally:
                close_runtime(runtime)

        factory = new_event_loop if self._features.uvloop else asyncio.SelectorEventLoop
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(whole())


class SimEngine:
    """With sends and receives that often take only a part, as every caller must expect."""

    name = "sim"
    folder = "/data"

    def __init__(self, seed: int) -> None:
        self.failures_expected = False
        self.world = World(seed, link=Link(partial_rate=0.2))
        self.host = self.world.host("here")
        self.host.runtime.disk.make_folder(self.folder)

    def run(self, main: Main[T]) -> T:
        async def whole() -> T:
            return await self.host.runtime.tasks.spawn(main(self.host.runtime), name="test")

        return self.world.run(whole())


@pytest.fixture(params=["real", "fallbacks", "sim", "sim-2"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    match request.param:
        case "real":
            yield RealEngine("real", tmp_path, Features.detect())
        case "fallbacks":
            yield RealEngine("fallbacks", tmp_path, PLAIN)
        case simulated:
            sim = SimEngine(seed=len(simulated))
            yield sim
            sim.world.close()
            assert sim.failures_expected or not sim.world.failures
