"""How far a move has come, as it is shown."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.base.ids import TopicPartition
from moldau.cli import cluster_progress
from moldau.cli.cluster_client import BrokerView, ClusterView, Moving
from moldau.cli.cluster_progress import Meter, Pace, Step
from moldau.cli.errors import CliError

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def broker(number: int, *, is_fenced: bool = False) -> BrokerView:
    return BrokerView(number, "host", 9000 + number, None, is_fenced)


class Moves:
    """A cluster in which orders-0 and orders-1 go from broker 1 to 2, as far as a test says."""

    def __init__(self) -> None:
        self.under_way = [FIRST, SECOND]
        self.copied = {FIRST: 0, SECOND: 0}
        self.is_fenced = False
        self.is_silent = False

    def cluster(self) -> ClusterView:
        return ClusterView("id", 1, (broker(1), broker(2, is_fenced=self.is_fenced)))

    def moving(self) -> dict[TopicPartition, Moving]:
        elsewhere = {TopicPartition("other", 0): Moving((1, 2), (2,), (1,))}
        return {place: Moving((1, 2), (2,), (1,)) for place in self.under_way} | elsewhere

    def log_sizes(self, asked: BrokerView) -> dict[TopicPartition, int]:
        if self.is_silent:
            raise CliError("gone")
        return {FIRST: 1000, SECOND: 500} if asked.id == 1 else dict(self.copied)


def steps(moves: Moves) -> Iterator[Step]:
    meter = Meter(moves, [FIRST, SECOND])  # type: ignore[arg-type]  # as much of a client as it uses
    while True:
        yield meter.step()


def test_bytes_are_counted_against_the_leaders_log_and_partitions_as_they_arrive() -> None:
    moves = Moves()
    shown = steps(moves)
    assert next(shown) == Step(0, 2, 0, 1500)
    moves.copied = {FIRST: 600, SECOND: 500}
    assert next(shown).text == "0 of 2 partitions, 1.1 KiB of 1.5 KiB"
    moves.under_way = [FIRST]
    assert next(shown) == Step(1, 2, 1100, 1500)
    moves.under_way = []
    assert next(shown) == Step(2, 2, 1500, 1500)


def test_a_broker_that_does_not_run_is_named_and_one_that_is_silent_is_no_error() -> None:
    moves = Moves()
    moves.is_fenced = True
    assert next(steps(moves)).text.endswith("waiting for broker 2")
    moves.is_fenced, moves.is_silent = False, True
    assert next(steps(moves)) == Step(0, 2, 0, 0)


def test_what_has_arrived_already_is_not_waited_for() -> None:
    moves = Moves()
    moves.under_way = []
    cluster_progress.follow(moves, [FIRST])  # type: ignore[arg-type]


def test_the_rate_of_late_says_how_long_it_will_take() -> None:
    pace = Pace()
    assert pace.after(0, 0.0) == 0.0
    assert pace.after(1000, 1.0) == 1000.0
    assert [pace.after(1000 + 100 * n, 1.0 + n) for n in range(1, 31)][-1] == 100.0, (
        "what was fast is long past"
    )
    step = Step(0, 1, 4096, 10240, bytes_per_s=1024.0)
    assert step.text == "0 of 1 partition, 4.0 KiB of 10.0 KiB, 1.0 KiB/s, about 6 s left"
    assert Step(0, 1, 4096, 10240).text == "0 of 1 partition, 4.0 KiB of 10.0 KiB"
