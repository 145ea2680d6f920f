"""Projects for the tests of pipelines: written, opened, run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.opening import Opened, open_project
from moldau.spark.pipeline.progress import FlowProgress
from moldau.spark.pipeline.project import Project, load_project
from spark import delta_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.runner import Runner

DEADLINE_S = 120.0
SPEC = "name: shop\nstorage: storage\nlibraries:\n  - glob:\n      include: t/**\n"
READ_ORDERS = """\
import os
from pyspark import pipelines as dp
from pyspark.sql import functions as F
FOLDER = os.getcwd()
@dp.temporary_view
def orders():
    return spark.readStream.schema("id INT, item STRING, price DOUBLE").json(FOLDER + "/incoming")
"""
"""Rows from JSON files in the project's folder, which tests add to."""


def write(folder: Path, files: Mapping[str, str], spec: str = SPEC) -> Project:
    (folder / "incoming").mkdir(exist_ok=True)
    (folder / "spark-pipeline.yml").write_text(spec)
    for name, text in files.items():
        path = folder / "t" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return load_project(folder)


def add_orders(folder: Path, name: str, rows: Sequence[tuple[int, str, float]]) -> None:
    """One more file of orders, which appears in one step."""
    lines = [json.dumps({"id": id_, "item": item, "price": price}) for id_, item, price in rows]
    draft = folder / f"{name}.draft"
    draft.write_text("".join(line + "\n" for line in lines))
    draft.rename(folder / "incoming" / f"{name}.json")


class Watching:
    """A watcher that remembers what happened, and ends the run when it has seen enough."""

    def __init__(self, enough: Callable[[Sequence[FlowProgress]], bool] = lambda _flows: False) -> None:
        self.events: list[str] = []
        self.stopping = threading.Event()
        self._enough = enough

    def happened(self, flow: FlowProgress, text: str) -> None:
        self.events.append(f"{flow.flow} {text}")

    def look(self, flows: Sequence[FlowProgress]) -> None:
        if not self.stopping.is_set() and self._enough(flows):
            self.stopping.set()


def new_runner(opened: Opened, watching: Watching, once: bool) -> Runner:
    from moldau.spark.pipeline.runner import Runner

    return Runner(opened.spark, opened.graph, opened.built, opened.tables, once, watching)


def run_once(spark: SparkSession, project: Project) -> tuple[Runner, Watching]:
    watching = Watching()
    runner = new_runner(open_project(spark, project), watching, once=True)
    runner.run(watching.stopping, threading.Event())
    return runner, watching


def run_until(
    spark: SparkSession, project: Project, enough: Callable[[Sequence[FlowProgress]], bool]
) -> tuple[Runner, Watching]:
    watching = Watching(enough)
    late = threading.Timer(DEADLINE_S, watching.stopping.set)
    late.start()
    runner = new_runner(open_project(spark, project), watching, once=False)
    try:
        runner.run(watching.stopping, threading.Event())
    finally:
        late.cancel()
    return runner, watching


def table(project: Project, name: str) -> list[dict[str, Any]]:
    """The rows of a table in the storage, read without Spark."""
    assert project.local_storage is not None
    return sorted(
        delta_reader.rows_of(project.local_storage / name),
        key=lambda row: [str(value) for value in row.values()],
    )
