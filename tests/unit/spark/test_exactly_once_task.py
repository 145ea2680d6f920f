"""A task of the exactly-once sink writes its rows once: tried again, twice at a time, killed, late, or replayed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

from moldau.spark.topic_sink import exactly_once
from moldau.spark.topic_sink.columns import Rows
from moldau.spark.topic_sink.exactly_once import (
    KEPT,
    ExactlyOnceTask,
    ReplayDiffers,
    TaskFailed,
    TaskIdentity,
    Written,
)
from moldau.testing import Cluster

from .sink_attempts import STEPS, attempt, committed, in_a_process, sink_options, values

TEN = values(1, 10)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(
        topics={"out": 2}, config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}
    ) as cluster:
        yield cluster
    KEPT.close()
    exactly_once.MARKERS.close()


@pytest.fixture
def servers(cluster: Cluster) -> str:
    return cluster.bootstrap_servers


class Stopped(Exception):
    pass


class Gate:
    """Stops an attempt at a step until it is opened."""

    def __init__(self, step: str) -> None:
        self._step = step
        self.is_there = threading.Event()
        self._may_go = threading.Event()

    def __call__(self, step: str) -> None:
        if step == self._step:
            self.is_there.set()
            assert self._may_go.wait(60)

    def open(self) -> None:
        self._may_go.set()


def fail_at(wanted: str) -> object:
    def reached(step: str) -> None:
        if step == wanted:
            raise Stopped(step)

    return reached


def test_rows_are_written_once_and_a_replay_writes_nothing(servers: str) -> None:
    options = sink_options(servers)
    assert attempt(options, 0, TEN) == Written(10, replayed=False)
    KEPT.close()
    assert attempt(options, 0, TEN) == Written(10, replayed=True)
    assert attempt(options, 1, values(11, 20)) == Written(10, replayed=False)
    assert sorted(committed(servers)) == sorted(values(1, 20))


def test_a_replay_in_another_order_and_other_batches_is_the_same(servers: str) -> None:
    options = sink_options(servers)
    attempt(options, 0, values(1, 25))
    assert attempt(options, 0, values(1, 25)[::-1]).replayed


def test_tasks_topics_and_applications_do_not_know_each_others_markers(servers: str) -> None:
    options = sink_options(servers)
    attempt(options, 3, values(1, 1))
    assert not attempt(options, 3, values(2, 2), partition=1).replayed
    assert not attempt(options, 3, values(3, 3), application="another").replayed
    assert not attempt(sink_options(servers, topic="elsewhere"), 3, values(4, 4)).replayed


def test_a_replay_with_other_rows_fails_and_says_so(servers: str) -> None:
    attempt(sink_options(servers), 0, TEN)
    with pytest.raises(ReplayDiffers, match=r"was written with 10 rows .* is now replayed with 9 rows"):
        attempt(sink_options(servers), 0, values(1, 9))
    with pytest.raises(ReplayDiffers, match="replayed with 10 rows"):
        attempt(sink_options(servers), 0, values(2, 11))
    assert sorted(committed(servers)) == sorted(TEN)


def test_how_much_of_a_replay_is_compared_is_an_option(servers: str) -> None:
    attempt(sink_options(servers), 0, TEN)
    assert attempt(sink_options(servers, replayCheck="rows"), 0, values(2, 11)).replayed
    with pytest.raises(ReplayDiffers):
        attempt(sink_options(servers, replayCheck="rows"), 0, values(1, 9))
    assert attempt(sink_options(servers, replayCheck="none"), 0, values(1, 9)).replayed
    assert sorted(committed(servers)) == sorted(TEN)


def test_a_version_below_the_marker_is_done(servers: str) -> None:
    attempt(sink_options(servers), 5, TEN)
    assert attempt(sink_options(servers), 4, values(1, 3)).replayed
    assert sorted(committed(servers)) == sorted(TEN)


def test_a_task_without_rows_does_nothing() -> None:
    nowhere = sink_options("127.0.0.1:1")
    assert attempt(nowhere, 0, []) == Written(0, replayed=False)


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_fails_at_any_step_writes_once_when_it_is_tried_again(servers: str, step: str) -> None:
    options = sink_options(servers)
    with pytest.raises(Stopped):
        attempt(options, 0, TEN, fail_at(step))  # type: ignore[arg-type]
    if step != "committed":
        assert committed(servers) == []
    assert attempt(options, 0, TEN).replayed == (step == "committed")
    attempt(options, 1, values(11, 20))
    assert sorted(committed(servers)) == sorted(values(1, 20))


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_is_killed_at_any_step_writes_once_when_it_is_tried_again(
    servers: str, step: str
) -> None:
    assert in_a_process(servers, 0, 1, 10, step) == -9
    assert attempt(sink_options(servers), 0, TEN).replayed == (step == "committed")
    assert in_a_process(servers, 1, 11, 20) == 0
    assert sorted(committed(servers)) == sorted(values(1, 20))


def test_rows_that_fail_to_come_leave_nothing_behind(servers: str) -> None:
    def broken() -> Iterator[Rows]:
        yield Rows("out", None, list(TEN), None, None)
        raise Stopped

    task = ExactlyOnceTask(sink_options(servers), TaskIdentity("query", 0, 0))
    with pytest.raises(Stopped):
        task.write(broken())
    assert committed(servers) == []


def test_a_producer_is_kept_for_the_next_batch(servers: str) -> None:
    options, steps = sink_options(servers), []
    attempt(options, 0, TEN)
    attempt(options, 1, values(11, 20), steps.append)
    assert "producer kept" in steps and "fenced the others" not in steps
    assert sorted(committed(servers)) == sorted(values(1, 20))


@pytest.mark.parametrize("step", ["fenced the others", "marked", "committed"])
def test_a_kept_producer_that_was_fenced_is_replaced_before_a_row_is_read(servers: str, step: str) -> None:
    options, steps = sink_options(servers), []
    attempt(options, 0, TEN)
    assert in_a_process(servers, 1, 11, 20, step) == -9
    attempt(options, 1, values(11, 20), steps.append)
    assert "producer kept" not in steps
    assert sorted(committed(servers)) == sorted(values(1, 20))


class Copies:
    """Two attempts of one task at a time, as with speculation: the first waits at a step while others go on."""

    def __init__(self, servers: str, version: int, step: str) -> None:
        self._gate = Gate(step)
        self._pool = ThreadPoolExecutor(1)
        options = sink_options(servers)
        self._first: Future[Written] = self._pool.submit(attempt, options, version, TEN, self._gate)
        assert self._gate.is_there.wait(60)

    def let_the_first_go_on(self) -> Written:
        self._gate.open()
        result = self._first.result(120)
        self._pool.shutdown()
        return result


@pytest.mark.parametrize("step", STEPS)
def test_two_copies_of_a_task_write_once(servers: str, step: str) -> None:
    copies = Copies(servers, 0, step)
    second = attempt(sink_options(servers), 0, TEN)
    assert second.replayed == (step == "committed")
    assert copies.let_the_first_go_on().replayed == (step != "committed")
    assert sorted(committed(servers)) == sorted(TEN)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_an_attempt_that_comes_late_writes_nothing_after_later_batches(servers: str, step: str) -> None:
    late = Copies(servers, 0, step)
    options = sink_options(servers)
    attempt(options, 0, TEN)
    attempt(options, 1, values(11, 20))
    late.let_the_first_go_on()
    attempt(options, 2, values(21, 30))
    assert sorted(committed(servers)) == sorted(values(1, 30))


def test_a_task_that_outlasts_its_transaction_fails_with_the_setting_to_change(servers: str) -> None:
    options = sink_options(servers, kafka_transaction_timeout_ms="1000")

    def slowly(step: str) -> None:
        if step == "rows delivered":
            assert not threading.Event().wait(2.5)

    with pytest.raises(TaskFailed, match=r"longer than kafka\.transaction\.timeout\.ms \(1 s\)"):
        attempt(options, 0, TEN, slowly)
    assert committed(servers) == []
    attempt(options, 0, TEN)
    assert sorted(committed(servers)) == sorted(TEN)


def test_a_fenced_attempt_gives_up_when_nobody_writes_in_its_place(servers: str) -> None:
    options = sink_options(servers, kafka_transaction_timeout_ms="1500")

    def fence(step: str) -> None:
        if step == "rows sent":
            other = Producer({"bootstrap.servers": servers, "transactional.id": "moldau-sink-query-out-0"})
            other.init_transactions(30)

    with pytest.raises(TaskFailed, match="another attempt has taken over and has written nothing since"):
        attempt(options, 0, TEN, fence)
    attempt(options, 0, TEN)
    assert sorted(committed(servers)) == sorted(TEN)
