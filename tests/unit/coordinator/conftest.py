"""A bench with an empty journal that commits at once; tests that need another make their own in `world`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.sim.world import World

from .support import Bench, MemoryJournal


@pytest.fixture
def world() -> Iterator[World]:
    with World("coordinator") as world:
        yield world
        assert not world.failures


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(MemoryJournal(), world).load()


@pytest.fixture
def slow(world: World) -> Bench:
    """Its high watermark moves only by `journal.commit()`."""
    return Bench(MemoryJournal(commits=False), world).load()
