"""The data source `faulty`: moldau's, whose exactly-once sink fails where a test wants it to.

A test puts an order into a folder: a file `STEP.ACTION.NUMBER`. Who reaches that step next takes it and carries it out:
  fail          the task raises
  kill-worker   the task's process ends with -9
  kill-driver   the driver (Spark's JVM, whose pid is in the folder) ends with -9; the task goes on, if it can
  hang          the task waits for some seconds, as a slow one does that gets a copy
Steps are those of `ExactlyOnceTask`, and two of the driver: `planned`, before a batch's tasks, and `all written`, when
they have ended and Spark has not noted it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.spark.data_source import MoldauDataSource
from moldau.spark.topic_sink.writers import TopicStreamWriter, task_context

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FOLDER_OPTION = "faults"
PID_FILE = "driver.pid"
HANG_S = 8.0
DRIVER_STEPS = ("planned", "all written")


class Struck(Exception):
    """A task that a test lets fail."""


def order(folder: Path, step: str, action: str, number: int = 0) -> None:
    (folder / f"{step}.{action}.{number}").touch()


def orders(folder: Path) -> list[str]:
    """Those that nobody has carried out."""
    return sorted(path.name for path in folder.glob("*.*.[0-9]*"))


def taken(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "taken").glob("*"))


def strike(folder: Path, step: str) -> None:
    for action in _take(folder, step):
        match action:
            case "fail":
                raise Struck(step)
            case "kill-worker":
                os.kill(os.getpid(), signal.SIGKILL)
            case "kill-driver":
                os.kill(int((folder / PID_FILE).read_text()), signal.SIGKILL)
            case "hang":
                time.sleep(HANG_S)


def _take(folder: Path, step: str) -> Iterator[str]:
    """An order is for one: renaming it succeeds once."""
    (folder / "taken").mkdir(exist_ok=True)
    for path in sorted(folder.glob(f"{step}.*.[0-9]*")):
        try:
            path.rename(folder / "taken" / path.name)
        except FileNotFoundError:
            continue
        yield path.name.split(".")[1]
        return


def note_attempt(folder: Path) -> None:
    context = task_context()
    (folder / "attempts").mkdir(exist_ok=True)
    (folder / f"attempts/{context.stageId()}-{context.partitionId()}-{context.attemptNumber()}").touch()


def second_attempts(folder: Path) -> list[str]:
    """Where no task fails, they are copies that speculation has started."""
    return sorted(path.name for path in (folder / "attempts").glob("*-[1-9]"))


class FaultyWriter(TopicStreamWriter):
    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options, overwrite)
        self.folder = Path(options[FOLDER_OPTION])

    def reached(self, step: str) -> None:
        if step == "begin":
            note_attempt(self.folder)
        strike(self.folder, step)

    def commit(self, messages: list[Any], batchId: int) -> None:
        strike(self.folder, "all written")


class FaultySource(MoldauDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyWriter:
        strike(Path(self.options[FOLDER_OPTION]), "planned")
        return FaultyWriter(schema, self.options, overwrite)
