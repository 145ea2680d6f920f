"""A topic is copied exactly once, whatever dies: tasks, workers and the driver at any step, brokers, leaders,
coordinators; and with speculation on. Another client counts, and reads what is committed.

`make spark-faults ROUNDS=20 SEED=...` does more of it.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from moldau.testing import Cluster
from spark.faulty_sink import DRIVER_STEPS, order, orders, second_attempts, taken
from spark.quick_drivers import QuickDrivers
from spark.sink_driver import SOURCE, TARGET
from spark.sink_readers import committed
from spark.standalone import standalone_cluster

TESTS = Path(__file__).parent.parent
ROUNDS = int(os.environ.get("ROUNDS", "1"))
STARTS_MORE = 3
"""How often a driver may end by itself: a query fails whose brokers are too long away."""
ROWS = 1000
TASK_STEPS = (
    "begin",
    "marker read",
    "fenced the others",
    "marker read again",
    "rows sent",
    "rows delivered",
    "marked",
)
AFTER_COMMIT = "committed"

Fault = tuple[str, str]


class Copying:
    """A driver that copies a topic until it has caught up, and is started again whenever it dies."""

    def __init__(
        self, cluster: Cluster, folder: Path, drivers: QuickDrivers, master: str = "local[2,4]"
    ) -> None:
        self._servers = cluster.bootstrap_servers
        self._drivers = drivers
        self._producer = Producer({"bootstrap.servers": self._servers, "acks": "all"})
        self._folder = folder
        self._master = master
        self._added = 0
        self.starts = 0
        self.leaves_archive = False

    def add_rows(self) -> None:
        for number in range(self._added, self._added + ROWS):
            self._producer.produce(SOURCE, b"%d" % number)
        assert self._producer.flush(60) == 0
        self._added += ROWS

    def run(self, faults: list[Fault]) -> None:
        """One fault after the other, each when the last has happened; then until all is copied."""
        waiting = list(enumerate(faults))
        starts_max = 1 + sum(action == "kill-driver" for _, action in faults) + STARTS_MORE
        while waiting or orders(self._folder) or self.starts == 0:
            self.add_rows()
            while self._run_driver(waiting) != 0:
                assert self.starts < starts_max, f"{self.starts} starts of the driver"
            assert self.starts < starts_max + STARTS_MORE, f"{orders(self._folder)} does not happen"
        assert len(taken(self._folder)) == len(faults)

    def _run_driver(self, waiting: list[tuple[int, Fault]]) -> int:
        self.starts += 1
        command = [
            sys.executable,
            str(TESTS / "spark/sink_driver.py"),
            self._servers,
            str(self._folder),
            self._master,
        ]
        environment = self._drivers.environment(leaves_archive=self.leaves_archive)
        environment["PYTHONPATH"] = str(TESTS)
        with (self._folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
            try:
                deadline_s = time.monotonic() + 240
                is_doomed = any(".kill-driver." in name for name in orders(self._folder))
                while driver.poll() is None:
                    assert time.monotonic() < deadline_s, "the driver neither ends nor dies"
                    if waiting and not orders(self._folder) and not is_doomed:
                        number, (step, action) = waiting.pop(0)
                        order(self._folder, step, action, number)
                        is_doomed = action == "kill-driver"  # the next fault is for the next one
                    time.sleep(0.02)
            finally:
                with_its_jvm(driver)
        return driver.returncode

    def check(self) -> None:
        found = committed(self._servers, TARGET)
        expected = [b"%d" % number for number in range(self._added)]
        assert len(found) == len(set(found)), f"{len(found) - len(set(found))} rows are doubled"
        assert sorted(found) == sorted(expected)

    @property
    def log(self) -> str:
        return (self._folder / "driver.log").read_text(errors="replace")[-4000:]


def with_its_jvm(driver: subprocess.Popen[bytes]) -> None:
    """Nothing of the driver's own group is left; workers have one of their own, and go when their JVM has gone."""
    try:
        os.killpg(driver.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    driver.wait(30)


class Troubles:
    """What happens to the brokers meanwhile: one is killed and comes back, leaders and coordinators move."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster, self._random = cluster, random.Random(seed)
        self._done = threading.Event()
        self.happened: list[str] = []
        self.failure: BaseException | None = None

    @contextmanager
    def while_running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._done.set()
            thread.join(120)
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._done.wait(self._random.uniform(0.5, 3)):
                self._random.choice([self._kill, self._move, self._move, self._move])()
        except BaseException as failure:
            self.failure = failure

    def _kill(self) -> None:
        broker = self._random.choice(self._cluster.brokers)
        self.happened.append(f"kill {broker}")
        self._cluster.kill(broker)
        self._done.wait(self._random.uniform(0.2, 2))
        self._cluster.start(broker)
        self._cluster.wait_in_sync(timeout_s=60)

    def _move(self) -> None:
        topic = self._random.choice([TARGET, SOURCE, "__consumer_offsets", "__transaction_state"])
        partition = self._random.randrange(2 if topic in (TARGET, SOURCE) else 5)
        try:
            broker = self._random.choice(self._cluster.in_sync(topic, partition))
            self._cluster.elect(topic, partition, broker)
        except KeyError:
            return  # nobody has used it yet
        except RuntimeError:
            return  # it has fallen out of sync meanwhile
        self.happened.append(f"{topic}-{partition} to {broker}")


def three_brokers() -> Cluster:
    config = {"transaction.state.log.num.partitions": 5, "offsets.topic.num.partitions": 5}
    return Cluster(brokers=3, topics={SOURCE: 2, TARGET: 2}, config=config)


def some_faults(chosen: random.Random, drivers: int, workers: int, tasks: int) -> list[Fault]:
    every = (*TASK_STEPS, AFTER_COMMIT)
    found = [(chosen.choice(every + DRIVER_STEPS), "kill-driver") for _ in range(drivers)]
    found += [(chosen.choice(every), "kill-worker") for _ in range(workers)]
    found += [(chosen.choice(every), "fail") for _ in range(tasks)]
    chosen.shuffle(found)
    return found


@pytest.fixture(scope="module")
def drivers(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> QuickDrivers:
    """Where there are many of them, one goes before and meets no fault."""
    made = QuickDrivers(tmp_path_factory.mktemp("drivers"))
    if ROUNDS > 1:
        with Cluster(topics={SOURCE: 2, TARGET: 2}) as cluster:
            first = Copying(cluster, tmp_path_factory.mktemp("first"), made)
            first.leaves_archive = True
            first.run([])
            first.check()
    return made


def one_round(folder: Path, seed: int, faults: list[Fault], drivers: QuickDrivers) -> int:
    """How often the driver was started."""
    began_s = time.monotonic()
    with three_brokers() as cluster:
        copying, troubles = Copying(cluster, folder, drivers), Troubles(cluster, seed)
        try:
            with troubles.while_running():
                copying.run(faults)
            copying.check()
        except BaseException:
            print(f"{faults=}\n{troubles.happened=}\n{copying.log}")
            raise
        took = f"{time.monotonic() - began_s:.0f} s, {copying.starts} starts of the driver"
        print(f"seed {seed}: {took}, {faults}, brokers: {troubles.happened}")
        return copying.starts


@pytest.mark.timeout(0)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_topic_is_copied_exactly_once_whatever_dies(
    drivers: QuickDrivers, tmp_path: Path, seed: Callable[[int], int], number: int
) -> None:
    chosen = seed(11) + number
    more = ROUNDS > 1
    faults = some_faults(
        random.Random(chosen), drivers=4 if more else 2, workers=3 if more else 2, tasks=3 if more else 2
    )
    one_round(tmp_path, chosen, faults, drivers)


@pytest.mark.skipif(
    ROUNDS == 1, reason="make spark-faults: a driver killed between any two steps takes a minute"
)
@pytest.mark.timeout(0)
def test_the_driver_is_killed_between_any_two_steps_of_a_batch(drivers: QuickDrivers, tmp_path: Path) -> None:
    steps = (DRIVER_STEPS[0], *TASK_STEPS, AFTER_COMMIT, DRIVER_STEPS[1])
    starts = one_round(tmp_path, 1, [(step, "kill-driver") for step in steps], drivers)
    assert starts > len(steps), "each fault had a driver of its own"


@pytest.mark.skipif(ROUNDS == 1, reason="make spark-faults: a cluster of Spark's takes a minute")
@pytest.mark.timeout(0)
def test_a_task_that_hangs_and_its_speculative_copy_write_once(drivers: QuickDrivers, tmp_path: Path) -> None:
    """On a cluster of two hosts: a copy starts while the first attempt is in the middle of its transaction."""
    with Cluster(topics={SOURCE: 2, TARGET: 2}) as cluster, standalone_cluster(tmp_path) as spark:
        copying = Copying(cluster, tmp_path, drivers, spark.url)
        copying.run([("rows sent", "hang"), ("marked", "hang"), ("marker read again", "hang")])
        copying.check()
        assert second_attempts(tmp_path), "no copy was started"
        print(f"copies: {second_attempts(tmp_path)}")
