"""`run --full-refresh`: a table is computed anew from what its sources hold, whatever was killed on the way."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.spark.pipeline.declared import Mistakes
from moldau.spark.pipeline.opening import open_project
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.refresh import chosen, finish, remove
from spark.pipelines import READ_ORDERS, Watching, add_orders, new_runner, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = (
    READ_ORDERS
    + """\
@dp.table
def kept():
    return spark.readStream.table("orders")
@dp.table
def other():
    return spark.readStream.table("orders").select("id")
@dp.table
def teas():
    return spark.readStream.table("kept").where("item = 'tea'").join(spark.read.table("other"), "id")
@dp.materialized_view
def by_item():
    return spark.read.table("kept").groupBy("item").count()
"""
)


def run(spark: SparkSession, project: Project, *names: str) -> None:
    finish(project)
    opened = open_project(spark, project)
    if names:
        remove(project, chosen(project, opened.built, names, everything=False))
        opened = open_project(spark, project)
    watching = Watching()
    runner = new_runner(opened, watching, once=True)
    runner.run(watching.stopping, threading.Event())
    assert runner.all_went_well, "\n".join(watching.events)


def ids(project: Project, name: str) -> list[int]:
    import pyarrow.dataset
    from deltalake import DeltaTable

    assert project.local_storage is not None
    files = DeltaTable(project.local_storage / name).file_uris()
    return sorted(pyarrow.dataset.dataset(files).to_table()["id"].to_pylist()) if files else []


def test_a_refreshed_table_has_what_its_sources_hold_now_and_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    project = write(tmp_path, {"a.py": SHOP})
    add_orders(tmp_path, "1", [(1, "tea", 1.0), (2, "pot", 2.0)])
    run(spark, project)
    (tmp_path / "incoming" / "1.json").unlink()
    add_orders(tmp_path, "2", [(3, "tea", 3.0)])
    run(spark, project)
    assert (ids(project, "kept"), ids(project, "other"), ids(project, "teas")) == (
        [1, 2, 3],
        [1, 2, 3],
        [1, 3],
    )

    built = open_project(spark, project).built
    with pytest.raises(
        Mistakes, match="'teas' reads 'kept' as a stream, so 'teas' must be refreshed with it"
    ):
        chosen(project, built, ["kept"], everything=False)
    with pytest.raises(Mistakes, match="there is no 'kep' to refresh"):
        chosen(project, built, ["kep"], everything=False)
    assert chosen(project, built, ["other"], everything=False) == ["other"], "it is only looked up"
    assert sorted(chosen(project, built, [], everything=True)) == ["by_item", "kept", "other", "teas"]

    run(spark, project, "kept", "teas")
    assert (ids(project, "kept"), ids(project, "other"), ids(project, "teas")) == ([3], [1, 2, 3], [3])


def test_a_removal_that_was_broken_off_is_finished_by_the_next_run(tmp_path: Path) -> None:
    project = write(tmp_path, {"a.py": ""})
    storage = tmp_path / "storage"
    for folder in ("kept", "_moldau/checkpoints/kept", "_moldau/checkpoints/other", "other"):
        (storage / folder).mkdir(parents=True)
    (storage / "_moldau" / "refresh.json").write_text(json.dumps(["kept"]))
    (storage / "_moldau" / "checkpoints" / "kept").rmdir()
    finish(project)
    assert sorted(str(path.relative_to(storage)) for path in storage.rglob("*")) == [
        "_moldau",
        "_moldau/checkpoints",
        "_moldau/checkpoints/other",
        "other",
    ]
    finish(project)
