"""The properties find bugs: each of these is put into the log on purpose, and must show in a few tries.

Some are found by any sequences at all. The others need two things to come together, which is what hypothesis looks for
in `make properties`; here a few lines bring them together, and the seed decides what the disk makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from moldau.log import opening, scan, truncation
from moldau.log.cleaner.cleaner import LogCleaner
from moldau.log.flush import Flusher
from moldau.log.manager import LogManager
from moldau.log.producers import Producers
from moldau.log.segment import Segment
from moldau.records.batch import read_header
from moldau.records.compression import Codec
from moldau.sim.planting import patched
from moldau.sim.workloads.log.plants import LOG_PLANTS
from properties.test_log_properties import LogOnSimulatedDisk

EXAMPLES_MAX = 100
STEPS = 40
SEEDS = range(40)
Plant = Callable[[], AbstractContextManager[None]]


@contextmanager
def checkpoints_are_not_written() -> Iterator[None]:
    async def idle(self: LogManager) -> None:
        return None

    with patched(LogManager, "write_checkpoints", idle):
        yield


ANYWHERE: dict[str, Plant] = {
    "checkpoints-are-not-written": checkpoints_are_not_written,
    "offset-given-twice": partial(LOG_PLANTS.planted, "offset-given-twice"),
    "retries-forgotten-at-restart": partial(LOG_PLANTS.planted, "retries-forgotten-at-restart"),
    "look-up-misses-a-batch": partial(LOG_PLANTS.planted, "look-up-misses-a-batch"),
}


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_bug_is_found_by_any_sequences(name: str) -> None:
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
    with ANYWHERE[name](), pytest.raises(Exception) as found:
        run_state_machine_as_test(LogOnSimulatedDisk, settings=tried)
    assert not isinstance(found.value, ImportError | NameError | AttributeError), "that is another bug"


# Bugs that need more than one thing to go wrong


@contextmanager
def recovered_tail_is_not_synced() -> Iterator[None]:
    """What a killed process left in the page cache is served before it is on the disk."""
    load = opening.load_log

    def hasty(*args: Any) -> Any:
        with patched(Segment, "sync", lambda self: None):
            return load(*args)

    with patched(opening, "load_log", hasty):
        yield


def killed_and_then_cut_off(machine: LogOnSimulatedDisk) -> None:
    write(machine, b"never flushed by its own process")
    machine.kill()
    machine.crash()


@contextmanager
def checksums_are_ignored() -> Iterator[None]:
    """Recovery believes every checksum: a batch of which some sectors are lost stays in the log."""
    with patched(scan, "crc_of", lambda data, start, stop: read_header(data, start).crc):
        yield


def torn_in_the_middle(machine: LogOnSimulatedDisk) -> None:
    for _ in range(3):
        write(machine, b"long enough for many sectors" * 200)
    machine.crash()


@contextmanager
def recovery_point_stays_at_a_cut() -> Iterator[None]:
    with patched(Flusher, "hold", lambda self, offset: None):
        yield


def cut_and_written_anew(machine: LogOnSimulatedDisk) -> None:
    for _ in range(4):
        write(machine, b"old")
    machine.flush()
    machine.checkpoint()
    machine.truncate(share=0.25)
    for _ in range(2):
        write(machine, b"long enough for many sectors" * 100)
    machine.crash()


@contextmanager
def producers_are_forgotten_at_a_cut() -> Iterator[None]:
    find = truncation.find_cut

    def forgetful(*args: Any) -> Any:
        return find(*args)._replace(producers=Producers())

    with patched(truncation, "find_cut", forgetful):
        yield


def cut_between_a_producers_batches(machine: LogOnSimulatedDisk) -> None:
    write(machine, b"first")
    write(machine, b"second")
    machine.truncate(share=0.5)


@contextmanager
def nothing_is_compacted() -> Iterator[None]:
    async def idle(self: LogCleaner, *args: Any) -> None:
        return None

    with patched(LogCleaner, "_plan", idle):
        yield


@contextmanager
def tombstones_go_at_once() -> Iterator[None]:
    plan = LogCleaner._plan

    async def hasty(self: LogCleaner, *args: Any) -> Any:
        job = await plan(self, *args)
        return job and replace(job, delete_retention_ms=-1)

    with patched(LogCleaner, "_plan", hasty):
        yield


def compacted_twice(machine: LogOnSimulatedDisk) -> None:
    write(machine, b"first")
    write(machine, None)
    for _ in range(2):
        machine.roll()
        write(machine, b"of another key", key=b"b")
        machine.compact()


TOGETHER: dict[str, tuple[Plant, Callable[[LogOnSimulatedDisk], None]]] = {
    "recovered-tail-not-synced": (recovered_tail_is_not_synced, killed_and_then_cut_off),
    "checksum-ignored-at-recovery": (checksums_are_ignored, torn_in_the_middle),
    "recovery-point-stays-at-a-cut": (recovery_point_stays_at_a_cut, cut_and_written_anew),
    "producers-forgotten-at-a-cut": (producers_are_forgotten_at_a_cut, cut_between_a_producers_batches),
    "nothing-is-compacted": (nothing_is_compacted, compacted_twice),
    "tombstones-go-at-once": (tombstones_go_at_once, compacted_twice),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_a_bug_is_found_where_things_come_together(name: str) -> None:
    plant, sequence = TOGETHER[name]
    for seed in SEEDS:
        go_through(sequence, seed)  # finds nothing as long as nothing is planted
    with plant(), pytest.raises(Exception) as found:
        for seed in SEEDS:
            go_through(sequence, seed)
    assert not isinstance(found.value, ImportError | NameError | AttributeError), "that is another bug"


def go_through(sequence: Callable[[LogOnSimulatedDisk], None], seed: int) -> None:
    machine = LogOnSimulatedDisk()
    config = {
        "internal.segment.bytes": "20000",
        "cleanup.policy": "compact",
        "delete.retention.ms": "5000",
    }
    try:
        machine.start(seed=seed, config=config, cold_rate=0.0, short_write_rate=0.0)
        sequence(machine)
        machine.the_log_is_the_list()
        machine.producers_are_known()
    finally:
        machine.teardown()


def write(machine: LogOnSimulatedDisk, value: bytes | None, key: bytes = b"a") -> None:
    machine.append(pairs=[(key, value)], codec=Codec.NONE, age_ms=0, producer=7)
