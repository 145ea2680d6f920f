"""Whatever dies between two steps of a batch, the lake holds every row once: seeded, without Spark's engine.

A small engine does to the lake what Spark does: tasks write, some of them twice, some too late; one message per task
reaches the commit; a batch whose commit died is run again, with its rows cut into tasks another way. `ROUNDS` and
`--seed` make it longer and other (`make lake-rounds`).
"""

from __future__ import annotations

import errno
import os
import random
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructType

from moldau.spark.lake import maintenance
from moldau.spark.lake.folder import HIDDEN, visible_files
from moldau.spark.lake.options import LakeOptions, Transaction
from moldau.spark.lake.sink import Lake, Written
from spark import delta_reader

ROUNDS = int(os.environ.get("ROUNDS", "12"))
BATCHES = 6
SCHEMA = StructType().add("id", LongType()).add("part", StringType())
WIDER = StructType().add("id", LongType()).add("part", StringType()).add("more", StringType())

both = pytest.mark.parametrize("table_format", ["delta", "parquet"])


class Crash(BaseException):
    """The process is dead: nothing that it would have done afterwards is done."""


class Breaking(Lake):
    """Dies at the step where `steps_left` runs out."""

    steps_left = -1
    reason: type[BaseException] = Crash

    def reached(self, step: str) -> None:
        if self.steps_left == 0:
            raise self.reason(step)
        self.steps_left -= 1


def rows(first: int, last: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, last, 7):
        numbers = range(start, min(start + 7, last))
        yield pa.RecordBatch.from_pydict({"id": list(numbers), "part": [str(at % 3) for at in numbers]})


def visible_rows(path: Path, table_format: str) -> Counter[int]:
    """How often a reader sees each row now."""
    if table_format == "delta":
        if not DeltaTable.is_deltatable(str(path)):
            return Counter()
        return Counter(delta_reader.table_of(path)["id"].to_pylist())
    seen: Counter[int] = Counter()
    for file in visible_files(str(path)):
        seen.update(pq.read_table(path / file, partitioning=None)["id"].to_pylist())
    return seen


class Engine:
    """Runs batches as Spark does: the same rows for a batch's number, in tasks that are cut by chance."""

    def __init__(self, path: Path, table_format: str, chance: random.Random) -> None:
        self.options = LakeOptions(str(path), table_format, partition_by=("part",), max_records_per_file=9)
        self.path, self.table_format, self.chance = path, table_format, chance
        self.late: list[tuple[Lake, Transaction, int, int]] = []

    def lake(self, steps_left: int = -1) -> Breaking:
        lake = Breaking(self.options, SCHEMA, overwrite=False)
        lake.steps_left = steps_left
        return lake

    def run(self, batch: int) -> None:
        """Until the batch is committed, however often its processes die."""
        for _ in range(20):
            steps_left = self.chance.choice([-1, self.chance.randrange(14)])
            try:
                self.attempt(batch, steps_left)
                return
            except Crash:
                self.check(batch)
        self.attempt(batch, -1)

    def attempt(self, batch: int, steps_left: int) -> None:
        transaction = Transaction("query", batch)
        first = batch * 50
        cuts = sorted(self.chance.sample(range(first + 1, first + 50), self.chance.randrange(4)))
        messages: list[Written] = []
        for task, (start, after) in enumerate(zip([first, *cuts], [*cuts, first + 50], strict=True)):
            copies = [
                self.task(transaction, task, start, after) for _ in range(self.chance.choice([1, 1, 2]))
            ]
            messages.append(self.chance.choice(copies))
        lake = self.lake(steps_left)
        lake.commit(messages, transaction, keep_once=True)

    def task(self, transaction: Transaction, task: int, start: int, after: int) -> Written:
        """A task that is tried again where an attempt of it dies."""
        if self.chance.random() < 0.3:
            with pytest.raises(Crash):
                self.lake(self.chance.randrange(2)).write(rows(start, after), transaction, task)
        if self.chance.random() < 0.2:
            self.late.append((self.lake(), transaction, start, after))
        return self.lake().write(rows(start, after), transaction, task)

    def check(self, batch: int) -> None:
        seen = visible_rows(self.path, self.table_format)
        assert set(seen.values()) <= {1}, "a row is seen twice"
        assert set(range(batch * 50)) <= set(seen) <= set(range(batch * 50 + 50))
        if self.table_format == "delta":
            assert len(seen) % 50 == 0, "a part of a batch is seen"


@both
@pytest.mark.parametrize("round_number", range(ROUNDS))
def test_a_batch_is_there_once_whatever_dies(
    tmp_path: Path, table_format: str, round_number: int, pytestconfig: pytest.Config
) -> None:
    seed = int(pytestconfig.getoption("--seed") or 0) + round_number
    engine = Engine(tmp_path / "lake", table_format, random.Random(seed))
    for batch in range(BATCHES):
        engine.run(batch)
        engine.check(batch)
        for lake, transaction, start, after in engine.late:
            lake.write(rows(start, after), transaction, 0)
        engine.late.clear()
    for batch in range(BATCHES):
        engine.attempt(batch, -1)
    assert visible_rows(engine.path, table_format) == Counter(range(BATCHES * 50))


@both
def test_every_step_of_a_commit_can_be_the_last(tmp_path: Path, table_format: str) -> None:
    reached = 0
    for step in range(100):
        path = tmp_path / str(step)
        engine = Engine(path, table_format, random.Random(step))
        engine.attempt(0, -1)
        try:
            engine.attempt(1, step)
        except Crash:
            reached += 1
            engine.check(1)
            engine.attempt(1, -1)
        engine.attempt(2, -1)
        assert visible_rows(path, table_format) == Counter(range(150))
        if reached <= step:
            break
    assert reached >= (5 if table_format == "delta" else 10)


@both
def test_a_failed_batch_is_cleaned_up_unless_it_was_committed(tmp_path: Path, table_format: str) -> None:
    engine = Engine(tmp_path / "lake", table_format, random.Random(1))
    for step in range(30):
        transaction = Transaction("query", step)
        lake = engine.lake()
        messages = [lake.write(rows(step * 50, step * 50 + 50), transaction, 0)]
        lake.steps_left = step
        try:
            lake.commit(messages, transaction, keep_once=True)
        except Crash:
            lake.steps_left = -1
            lake.abort(messages, transaction, keep_once=True)
            Breaking.commit(lake, [engine.task(transaction, 0, step * 50, step * 50 + 50)], transaction, True)
        assert visible_rows(engine.path, table_format) == Counter(range(step * 50 + 50))
    if table_format == "parquet":
        assert not os.listdir(engine.path / HIDDEN / "staging")


@both
def test_a_write_without_a_name_that_fails_after_its_commit_keeps_its_files(
    tmp_path: Path, table_format: str
) -> None:
    engine = Engine(tmp_path / "a lake at 100%", table_format, random.Random(1))
    lake, transaction = engine.lake(), Transaction("write", 0)
    messages = [lake.write(rows(0, 50), transaction, 0)]
    lake.reached = fail_at("commit ends")  # type: ignore[method-assign]
    with pytest.raises(Crash):
        lake.commit(messages, transaction, keep_once=False)
    lake.abort(messages, transaction, keep_once=False)
    assert visible_rows(engine.path, table_format) == Counter(range(50))


def fail_at(wanted: str) -> Any:
    def reached(step: str) -> None:
        if step == wanted:
            raise Crash(step)

    return reached


def test_the_last_of_a_dead_batch_write_is_finished_by_the_next_one(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "lake", "parquet", random.Random(1))
    dead = engine.lake()
    messages = [dead.write(rows(0, 50), Transaction("one", 0), 0)]
    dead.steps_left = 5
    with pytest.raises(Crash, match="after rename"):
        dead.commit(messages, Transaction("one", 0), keep_once=False)
    assert 0 < sum(visible_rows(engine.path, "parquet").values()) < 50
    other = engine.lake()
    other.commit(
        [other.write(rows(50, 60), Transaction("two", 0), 0)], Transaction("two", 0), keep_once=False
    )
    assert visible_rows(engine.path, "parquet") == Counter(range(60))


def test_a_table_remembers_its_batches_over_checkpoints_of_its_log(tmp_path: Path) -> None:
    engine = Engine(tmp_path / "lake", "delta", random.Random(1))
    for batch in range(3):
        engine.attempt(batch, -1)
    DeltaTable(str(engine.path)).create_checkpoint()
    for version in range(3):
        (engine.path / "_delta_log" / f"{version:020d}.json").unlink()
    for batch in range(3):
        engine.attempt(batch, -1)
    assert visible_rows(engine.path, "delta") == Counter(range(150))


@contextmanager
def full_disk(bytes_left: int) -> Iterator[None]:
    """No file may grow beyond this: what a full disk does to a write, done by the kernel."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@both
@pytest.mark.parametrize("bytes_left", [0, 100, 300])
def test_a_full_disk_fails_a_task_and_leaves_nothing(
    tmp_path: Path, table_format: str, bytes_left: int
) -> None:
    engine = Engine(tmp_path / "lake", table_format, random.Random(1))
    engine.attempt(0, -1)
    before = {file for file in Path(engine.path).rglob("*") if file.is_file()}
    with full_disk(bytes_left), pytest.raises(OSError) as failed:
        engine.lake().write(rows(50, 100), Transaction("query", 1), 0)
    assert failed.value.errno == errno.EFBIG
    assert {file for file in Path(engine.path).rglob("*") if file.is_file()} == before
    engine.attempt(1, -1)
    assert visible_rows(engine.path, table_format) == Counter(range(100))


@both
@pytest.mark.parametrize("bytes_left", [0, 20, 150])
def test_a_full_disk_fails_a_commit_and_the_next_one_succeeds(
    tmp_path: Path, table_format: str, bytes_left: int
) -> None:
    engine = Engine(tmp_path / "lake", table_format, random.Random(1))
    engine.attempt(0, -1)
    lake, transaction = engine.lake(), Transaction("query", 1)
    messages = [lake.write(rows(50, 100), transaction, 0)]
    with full_disk(bytes_left), pytest.raises(Exception, match=r"(?i)file too large|27"):
        lake.commit(messages, transaction, keep_once=True)
    assert visible_rows(engine.path, table_format) == Counter(range(50))
    lake.commit(messages, transaction, keep_once=True)
    assert visible_rows(engine.path, table_format) == Counter(range(100))


@both
def test_two_drivers_that_commit_one_batch_at_once_add_it_once(tmp_path: Path, table_format: str) -> None:
    engine = Engine(tmp_path / "lake", table_format, random.Random(1))
    engine.attempt(0, -1)
    for batch in range(1, 6):
        transaction = Transaction("query", batch)
        drivers = []
        for _ in range(3):
            lake = engine.lake()
            message = lake.write(rows(batch * 50, batch * 50 + 50), transaction, 0)
            drivers.append((lake, message))
        run_together(
            [lambda lake=lake, message=message: commit_or_lose(lake, message) for lake, message in drivers]
        )
        assert visible_rows(engine.path, table_format) == Counter(range(batch * 50 + 50))


def commit_or_lose(lake: Lake, message: Written) -> None:
    """A driver that comes second may find that its files were cleaned up: it fails, and adds nothing."""
    try:
        lake.commit([message], message.transaction, keep_once=True)
    except FileNotFoundError:
        pass


@both
def test_writers_to_one_table_wait_for_each_other(tmp_path: Path, table_format: str) -> None:
    path = tmp_path / "lake"

    def writer(number: int) -> None:
        options = LakeOptions(str(path), table_format)
        for batch in range(8):
            first = (number * 8 + batch) * 10
            wide = number == 1 and batch >= 4
            lake = Lake(options, WIDER if wide else SCHEMA, overwrite=False)
            batches = rows(first, first + 10)
            if wide:
                batches = (rows.append_column("more", rows.column("part")) for rows in batches)
            transaction = Transaction(f"writer-{number}", batch)
            lake.commit([lake.write(batches, transaction, 0)], transaction, keep_once=True)

    writer(0)
    threads: list[Any] = [lambda number=number: writer(number) for number in range(1, 4)]
    if table_format == "delta":
        threads.append(lambda: [maintenance.maintain(str(path), 1 << 20, 168) for _ in range(4)])
    run_together(threads)
    assert visible_rows(path, table_format) == Counter(range(4 * 8 * 10))


def run_together(tasks: list[Any]) -> None:
    errors: list[BaseException] = []

    def run(task: Any) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(task,)) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors, errors
