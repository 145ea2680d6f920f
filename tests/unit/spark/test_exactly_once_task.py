"""A task of the exactly-once sink writes its rows once: tried again, twice at a time, killed, late, or replayed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from confluent_kafka import Producer
from sink_attempts import STEPS, Reached, Sink, values

from moldau.spark.topic_sink.exactly_once import (
    KEPT,
    MARKERS,
    ExactlyOnceTask,
    ReplayDiffers,
    TaskFailed,
    TaskIdentity,
    Transactions,
    Written,
    in_time,
)
from moldau.spark.topic_sink.markers import Marker, MarkerGroup, MarkerUnreadable, ensure_topic
from moldau.spark.topic_sink.rows import Cells, Rows
from moldau.testing import Cluster

TEN = values(1, 10)
NUMBERS = itertools.count()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200}) as cluster:
        yield cluster
        KEPT.close()
        MARKERS.close()


@pytest.fixture
def sink(cluster: Cluster) -> Sink:
    topic = f"out-{next(NUMBERS)}"
    cluster.create_topic(topic, 2)
    return Sink(cluster.bootstrap_servers, topic)


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


def fail_at(wanted: str) -> Reached:
    def reached(step: str) -> None:
        if step == wanted:
            raise Stopped(step)

    return reached


def test_rows_are_written_once_and_a_replay_writes_nothing(sink: Sink) -> None:
    assert sink.attempt(0, TEN) == Written(10, replayed=False)
    KEPT.close()
    assert sink.attempt(0, TEN) == Written(10, replayed=True)
    assert sink.attempt(1, values(11, 20)) == Written(10, replayed=False)
    assert sink.committed() == sorted(values(1, 20))


def test_a_replay_in_another_order_and_other_batches_is_the_same(sink: Sink) -> None:
    sink.attempt(0, values(1, 25))
    assert sink.attempt(0, values(1, 25)[::-1]).replayed


def test_tasks_topics_and_applications_do_not_know_each_others_markers(sink: Sink) -> None:
    sink.attempt(3, values(1, 1))
    assert not sink.attempt(3, values(2, 2), partition=1).replayed
    assert not sink.attempt(3, values(3, 3), application="another").replayed
    assert not sink.attempt(3, values(4, 4), options=sink.options(topic="elsewhere")).replayed


def test_a_replay_with_other_rows_fails_and_says_so(sink: Sink) -> None:
    sink.attempt(0, TEN)
    with pytest.raises(ReplayDiffers, match=r"was written with 10 rows .* is now replayed with 9 rows"):
        sink.attempt(0, values(1, 9))
    with pytest.raises(ReplayDiffers, match="replayed with 10 rows"):
        sink.attempt(0, values(2, 11))
    assert sink.committed() == sorted(TEN)


def test_how_much_of_a_replay_is_compared_is_an_option(sink: Sink) -> None:
    sink.attempt(0, TEN)
    assert sink.attempt(0, values(2, 11), options=sink.options(replayCheck="rows")).replayed
    with pytest.raises(ReplayDiffers):
        sink.attempt(0, values(1, 9), options=sink.options(replayCheck="rows"))
    assert sink.attempt(0, values(1, 9), options=sink.options(replayCheck="none")).replayed
    assert sink.committed() == sorted(TEN)


def test_a_version_below_the_marker_is_done(sink: Sink) -> None:
    sink.attempt(5, TEN)
    assert sink.attempt(4, values(1, 3)).replayed
    assert sink.committed() == sorted(TEN)


def test_a_task_without_rows_writes_nothing(sink: Sink) -> None:
    assert sink.attempt(0, []) == Written(0, replayed=False)
    sink.attempt(1, TEN)
    assert sink.attempt(2, []) == Written(0, replayed=False)
    assert sink.attempt(0, []) == Written(0, replayed=True), "it has been written meanwhile"
    assert sink.committed() == sorted(TEN)


def test_a_replay_whose_rows_have_gone_to_another_task_fails_and_says_so(sink: Sink) -> None:
    """The driver died when task 1 had committed; split anew, task 0 has its rows, and would double them silently."""
    sink.attempt(0, TEN, partition=1, run="first")
    sink.attempt(0, values(1, 20), partition=0, run="second")
    with pytest.raises(ReplayDiffers, match=r"was written with 10 rows .* is now replayed with 0 rows"):
        sink.attempt(0, [], partition=1, run="second")


def test_a_task_without_rows_looks_once_in_a_run_of_its_query(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    read = MarkerGroup.read
    monkeypatch.setattr(MarkerGroup, "read", lambda markers: asked.append(1) or read(markers))
    sink.attempt(0, [], run="first")
    for version in range(1, 5):
        sink.attempt(version, [], run="first")
    assert len(asked) == 1
    sink.attempt(5, [], run="second")
    sink.attempt(6, [], run="second", partition=1)
    sink.attempt(7, [], options=sink.options(replayCheck="none"), run="third")
    assert len(asked) == 3
    sink.attempt(8, TEN, run="fourth")
    sink.attempt(9, [], run="fourth")
    assert len(asked) == 4, "who writes has looked"
    sink.attempt(9, [])
    assert len(asked) == 5, "a second attempt looks"


def test_a_marker_is_read_as_it_was_written_whatever_was_in_memory_before(sink: Sink) -> None:
    group = MarkerGroup(sink.options().admin, "moldau_sink_markers", "round-trip")
    ensure_topic(tuple(sorted(sink.options().admin.items())), "moldau_sink_markers")
    transactions = Transactions(sink.options(), "round-trip", "round-trip")
    transactions.init()
    for version in range(40):
        marker = Marker(version, 1 << version, (1 << 63) >> (version * 3 % 61))
        transactions.begin()
        transactions.mark(marker, within_s=60)
        transactions.commit(marker)
        assert group.read_stable() == marker
    transactions.close()
    group.close()


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_fails_at_any_step_writes_once_when_it_is_tried_again(sink: Sink, step: str) -> None:
    with pytest.raises(Stopped):
        sink.attempt(0, TEN, fail_at(step))
    if step != "committed":
        assert sink.committed() == []
    assert sink.attempt(0, TEN).replayed == (step == "committed")
    sink.attempt(1, values(11, 20))
    assert sink.committed() == sorted(values(1, 20))


@pytest.mark.parametrize("step", STEPS)
def test_a_task_that_is_killed_at_any_step_writes_once_when_it_is_tried_again(sink: Sink, step: str) -> None:
    assert sink.in_a_process(0, 1, 10, step) == -9
    assert sink.attempt(0, TEN).replayed == (step == "committed")
    assert sink.in_a_process(1, 11, 20) == 0
    assert sink.committed() == sorted(values(1, 20))


def test_rows_that_fail_to_come_leave_nothing_behind(sink: Sink) -> None:
    def broken() -> Iterator[Rows]:
        yield Rows(sink.topic, None, Cells.of_values(TEN), None, None)
        raise Stopped

    task = ExactlyOnceTask(sink.options(), TaskIdentity("query", 0, 0))
    with pytest.raises(Stopped):
        task.write(broken())
    assert sink.committed() == []


def test_a_producer_is_kept_for_the_next_batch(sink: Sink) -> None:
    steps: list[str] = []
    sink.attempt(0, TEN)
    sink.attempt(1, values(11, 20), steps.append)
    assert "producer kept" in steps and "fenced the others" not in steps
    KEPT.close()
    assert sink.attempt(1, values(11, 20)).replayed  # the last marker of the transaction counts
    assert sink.committed() == sorted(values(1, 20))


@pytest.mark.parametrize("step", ["fenced the others", "marked", "committed"])
def test_a_kept_producer_that_was_fenced_is_replaced_before_a_row_is_read(sink: Sink, step: str) -> None:
    steps: list[str] = []
    sink.attempt(0, TEN)
    assert sink.in_a_process(1, 11, 20, step) == -9
    sink.attempt(1, values(11, 20), steps.append)
    assert "producer kept" not in steps
    assert sink.committed() == sorted(values(1, 20))


class Copies:
    """Two attempts of one task at a time, as with speculation: the first waits at a step while others go on."""

    def __init__(self, sink: Sink, version: int, step: str) -> None:
        self._gate = Gate(step)
        self._pool = ThreadPoolExecutor(1)
        self._first: Future[Written] = self._pool.submit(sink.attempt, version, TEN, self._gate)
        assert self._gate.is_there.wait(60)

    def let_the_first_go_on(self) -> Written:
        self._gate.open()
        result = self._first.result(120)
        self._pool.shutdown()
        return result


@pytest.mark.parametrize("step", STEPS)
def test_two_copies_of_a_task_write_once(sink: Sink, step: str) -> None:
    copies = Copies(sink, 0, step)
    second = sink.attempt(0, TEN)
    assert second.replayed == (step == "committed")
    assert copies.let_the_first_go_on().replayed == (step != "committed")
    assert sink.committed() == sorted(TEN)


@pytest.mark.parametrize("step", STEPS[:-1])
def test_an_attempt_that_comes_late_writes_nothing_after_later_batches(sink: Sink, step: str) -> None:
    late = Copies(sink, 0, step)
    sink.attempt(0, TEN)
    sink.attempt(1, values(11, 20))
    late.let_the_first_go_on()
    sink.attempt(2, values(21, 30))
    assert sink.committed() == sorted(values(1, 30))


def test_a_task_that_outlasts_its_transaction_fails_with_the_setting_to_change(sink: Sink) -> None:
    options = sink.options(kafka_transaction_timeout_ms="1000")

    def slowly(step: str) -> None:
        if step == "rows delivered":
            assert not threading.Event().wait(2.5)

    with pytest.raises(TaskFailed, match=r"longer than kafka\.transaction\.timeout\.ms \(1 s\)"):
        sink.attempt(0, TEN, slowly, options=options)
    assert sink.committed() == []
    sink.attempt(0, TEN, options=options)
    assert sink.committed() == sorted(TEN)


def test_a_fenced_attempt_gives_up_when_nobody_writes_in_its_place(sink: Sink) -> None:
    options = sink.options(kafka_transaction_timeout_ms="1500")

    def fence(step: str) -> None:
        if step == "rows sent":
            other = Producer(
                {"bootstrap.servers": sink.servers, "transactional.id": f"moldau-sink-query-{sink.topic}-0"}
            )
            other.init_transactions(30)

    with pytest.raises(TaskFailed, match="another attempt has taken over and has written nothing since"):
        sink.attempt(0, TEN, fence, options=options)
    sink.attempt(0, TEN)
    assert sink.committed() == sorted(TEN)


def test_a_call_is_waited_for_as_long_as_is_said() -> None:
    ended = threading.Event()

    def fail() -> None:
        raise Stopped("said")

    assert in_time(lambda: None, 60)
    with pytest.raises(Stopped, match="said"):
        in_time(fail, 60)
    assert not in_time(lambda: ended.wait(60) and None, 0.05)
    ended.set()


def test_a_marker_that_nobody_answers_fails_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        ended = threading.Event()

        def send_offsets_to_transaction(self, *_arguments: object) -> None:
            self.ended.wait(60)

    monkeypatch.setattr("moldau.spark.topic_sink.exactly_once.CALL_S", 0.05)
    transactions = Transactions(Sink("127.0.0.1:1", "t").options(), "id", "id")
    transactions.outlet.producer = Hanging()  # type: ignore[assignment]
    with pytest.raises(TaskFailed, match=r"send_offsets_to_transaction has no answer after 0\.1 s"):
        transactions.mark(Marker(0, 0, 0), within_s=0.05)
    Hanging.ended.set()


@pytest.mark.parametrize(
    ("servers", "cause"),
    [
        ("127.0.0.1:1", r"127\.0\.0\.1:1.*Connection refused"),
        ("nowhere.invalid:9092", r"Failed to resolve 'nowhere\.invalid:9092'"),
    ],
)
def test_a_task_that_reaches_no_broker_says_why_and_does_not_wait_for_long(
    monkeypatch: pytest.MonkeyPatch, servers: str, cause: str
) -> None:
    monkeypatch.setattr("moldau.spark.topic_sink.markers.UNREACHED_S_MAX", 1.0)
    with pytest.raises(MarkerUnreadable, match=f"topic moldau_sink_markers: .*{cause}"):
        Sink(servers, "t").attempt(0, TEN)
    group = MarkerGroup({"bootstrap.servers": servers}, "markers", "group")
    with pytest.raises(MarkerUnreadable, match=f"the marker of group: .*{cause}"):
        group.read()
    group.close()
