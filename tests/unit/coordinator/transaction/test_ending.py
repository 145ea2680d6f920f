"""The second phase: markers are written until all are there, and the end is recorded then, not before."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.ending import Ending
from moldau.coordinator.transaction.messages import Markers
from moldau.sim.world import World

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
MARKERS = Markers("t", 7, 1, 3, True, 2, (A, B))
OK = ErrorCode.none


class Bench:
    """Outcomes are given beforehand, attempt by attempt; the last one is repeated."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.outcomes: list[dict[TopicPartition, ErrorCode]] = [{}]
        self.completions = [OK]
        self.written: list[tuple[TopicPartition, ...]] = []
        self.completed = 0
        self.noted: list[tuple[TopicPartition, ...]] = []
        self.leads = True
        tasks = world.host("broker").runtime.tasks
        self.ending = Ending(tasks, self._write, self._complete, self._note, lambda _: self.leads)

    async def _write(self, markers: Markers) -> dict[TopicPartition, ErrorCode]:
        self.written.append(markers.partitions)
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    async def _complete(self, markers: Markers) -> ErrorCode:
        assert markers == MARKERS
        self.completed += 1
        return self.completions.pop(0) if len(self.completions) > 1 else self.completions[0]

    def _note(self, markers: Markers, unmarked: tuple[TopicPartition, ...]) -> None:
        assert markers == MARKERS
        self.noted.append(unmarked)

    def run(self, seconds: float = 30.0) -> None:
        self.ending.begin(MARKERS)
        self.sleep(seconds)

    def sleep(self, seconds: float) -> None:
        self._world.run(self._world.sleep(seconds))


@pytest.fixture
def bench() -> Iterator[Bench]:
    with World("ending") as world:
        yield Bench(world)
        assert not world.failures


def test_the_end_is_recorded_when_all_markers_are_written(bench: Bench) -> None:
    bench.outcomes = [{A: OK, B: OK}]
    bench.run()
    assert (bench.written, bench.completed) == ([(A, B)], 1)


def test_only_what_could_not_be_written_is_tried_again(bench: Bench) -> None:
    bench.outcomes = [{A: OK, B: ErrorCode.kafka_storage_error}, {B: ErrorCode.not_enough_replicas}, {B: OK}]
    bench.run()
    assert (bench.written, bench.completed) == ([(A, B), (B,), (B,)], 1)
    assert bench.noted == [(B,), (B,)]


def test_a_partition_that_is_gone_needs_no_marker(bench: Bench) -> None:
    bench.outcomes = [{A: OK}]
    bench.run()
    assert (bench.written, bench.completed) == ([(A, B)], 1)


@pytest.mark.parametrize(
    "error", [ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced]
)
def test_a_fenced_coordinator_records_nothing(bench: Bench, error: ErrorCode) -> None:
    bench.outcomes = [{A: OK, B: error}]
    bench.run()
    assert (len(bench.written), bench.completed) == (1, 0)
    assert bench.noted == [(B,)]


def test_who_does_not_lead_any_more_gives_up(bench: Bench) -> None:
    bench.outcomes = [{A: ErrorCode.kafka_storage_error}]
    bench.run(1.0)
    attempts = len(bench.written)
    assert attempts > 1
    bench.leads = False
    bench.sleep(30.0)
    assert len(bench.written) <= attempts + 1
    assert bench.completed == 0


def test_the_record_of_the_end_is_tried_again_too(bench: Bench) -> None:
    bench.outcomes = [{A: OK, B: OK}]
    bench.completions = [ErrorCode.coordinator_not_available, ErrorCode.unknown_server_error, OK]
    bench.run()
    assert (len(bench.written), bench.completed) == (1, 3)
