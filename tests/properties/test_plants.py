"""The properties find bugs: each of these is put into the log on purpose, and some sequence shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from moldau.log.manager import LogManager
from moldau.sim.plants import patched, planted
from properties.test_log_properties import LogOnSimulatedDisk

EXAMPLES_MAX = 100
STEPS = 40


@contextmanager
def checkpoints_are_not_written() -> Iterator[None]:
    async def idle(self: LogManager) -> None:
        return None

    with patched(LogManager, "write_checkpoints", idle):
        yield


PLANTS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "checkpoints-are-not-written": checkpoints_are_not_written,
    "offset-given-twice": partial(planted, "offset-given-twice"),
    "retries-forgotten-at-restart": partial(planted, "retries-forgotten-at-restart"),
    "look-up-misses-a-batch": partial(planted, "look-up-misses-a-batch"),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    tried = settings(
        max_examples=EXAMPLES_MAX,
        stateful_step_count=STEPS,
        derandomize=True,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with PLANTS[name](), pytest.raises(Exception) as found:
        run_state_machine_as_test(LogOnSimulatedDisk, settings=tried)
    assert not isinstance(found.value, ImportError | NameError | AttributeError), "that is another bug"
