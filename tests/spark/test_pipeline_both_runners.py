"""The same project under Spark's own `spark-pipelines run` and under `moldau pipeline run --once`: the same results.

The examples' own tests show the same of each example.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.server import MoldauServer
from moldau.spark.pipeline.project import load_project
from moldau.spark.pipeline.template import write_project
from spark import delta_reader
from spark.pipelines import READ_ORDERS, add_orders, table, write
from spark.source_topics import Topics
from spark.sparks_runner import alone, home

DEADLINE_S = 280.0
SQL = """\
CREATE STREAMING TABLE kept AS SELECT id, item, price FROM STREAM orders WHERE price > 0;
CREATE MATERIALIZED VIEW by_item AS SELECT item, count(*) AS orders, sum(price) AS revenue FROM kept GROUP BY item;
"""
PYTHON = (
    READ_ORDERS
    + """\
@dp.table
def teas():
    return spark.readStream.table("kept").where(F.col("item") == "tea").select("id")

dp.create_sink("lake", "moldau_lake", {"path": FOLDER + "/lake"})

@dp.append_flow(target="lake")
def to_lake():
    return spark.readStream.table("kept").select("id", "price")
"""
)


def project_in(folder: Path) -> Any:
    folder.mkdir()
    storage = folder / "storage"
    spec = f"name: both\nstorage: {storage.as_uri()}\nlibraries:\n  - glob:\n      include: t/**\n"
    project = write(folder, {"a.py": PYTHON, "b.sql": SQL}, spec)
    add_orders(folder, "1", [(1, "tea", 3.5), (2, "pot", 30.0), (3, "tea", 4.0), (4, "cup", -1.0)])
    return project


def run(folder: Path, *command: str) -> None:
    environment = os.environ | {
        "SPARK_HOME": home(),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_ours(folder: Path) -> None:
    run(folder, sys.executable, "-c", "from moldau.cli import main; main()", "pipeline", "run", "--once")


def run_sparks(folder: Path) -> None:
    settings = ("--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false")
    with alone():
        run(folder, "spark-pipelines", "run", *settings)


def warehouse_table(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / "spark-warehouse" / name).to_pylist()
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.mark.timeout(900)
def test_both_runners_give_the_same(requires_spark: None, tmp_path: Path) -> None:
    ours = project_in(tmp_path / "ours")
    run_ours(ours.folder)
    sparks = project_in(tmp_path / "sparks")
    run_sparks(sparks.folder)
    for name in ("kept", "teas", "by_item"):
        assert table(ours, name) == warehouse_table(sparks.folder, name) != []
    rows = [sorted(delta_reader.rows_of(project.folder / "lake"), key=str) for project in (ours, sparks)]
    assert rows[0] == rows[1] == [{"id": 1, "price": 3.5}, {"id": 2, "price": 30.0}, {"id": 3, "price": 4.0}]


@pytest.mark.timeout(900)
def test_a_new_project_runs_under_both(requires_spark: None, tmp_path: Path) -> None:
    orders = [("tea", 3.5, 0), ("pot", 30.0, 0), ("tea", 4.0, 0), ("tea", 4.5, 9)]
    with MoldauServer(tmp_path / "broker") as server:
        topics = Topics(server.bootstrap_servers)
        topics.create("orders")
        values = [
            {"item": item, "price": price, "time": f"2026-11-18T10:0{minute}:00Z"}
            for item, price, minute in orders
        ]
        topics.fill("orders", map(json.dumps, values))
        folder = tmp_path / "shop"
        write_project(folder, "orders", server.bootstrap_servers)
        topics.create("orders-per-minute")
        run_ours(folder)
        told = sorted(values_of(topics, "orders-per-minute"))
        assert [json.loads(value)["revenue"] for value in told] == [30.0, 7.5]
        topics.delete("orders-per-minute")
        topics.create("orders-per-minute")
        run_sparks(folder)
        assert sorted(values_of(topics, "orders-per-minute")) == told
    for name in ("orders_kept", "orders_by_item"):
        assert in_utc(table(load_project(folder), name)) == in_utc(warehouse_table(folder, name)) != []


def values_of(topics: Topics, topic: str) -> list[bytes]:
    """Of a topic's only partition."""
    consumer = Consumer(
        {"bootstrap.servers": topics.bootstrap_servers, "group.id": "test", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    assert message is not None, "no answer"
    return found


def in_utc(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spark's Parquet leaves the zone to the reader."""
    return [{name: str(value).removesuffix("+00:00") for name, value in row.items()} for row in rows]
