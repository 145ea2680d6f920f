"""A project runs: until caught up, for ever, over failures, and stops cleanly; its tables are right and stay so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.pipeline.progress import FlowProgress, State
from spark.pipelines import READ_ORDERS, add_orders, run_once, run_until, table, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = (
    READ_ORDERS
    + """\
dp.create_streaming_table("kept", partition_cols=["kind"])

@dp.append_flow(target="kept")
def cheap():
    return spark.readStream.table("orders").where("price < 10").withColumn("kind", F.lit("cheap"))

@dp.append_flow(target="kept")
def dear():
    return spark.sql("SELECT *, 'dear' AS kind FROM STREAM orders WHERE price >= 10")

dp.create_sink("files", "parquet", {"path": FOLDER + "/out"})

@dp.append_flow(target="files")
def to_files():
    return spark.readStream.table("kept").select("id", "kind")
"""
)
SHOP_SQL = """\
CREATE MATERIALIZED VIEW by_kind AS SELECT kind, count(*) AS orders, sum(price) AS revenue FROM kept GROUP BY kind;
CREATE STREAMING TABLE teas AS SELECT id FROM STREAM kept WHERE item = 'tea';
"""
FIRST = [(1, "tea", 3.5), (2, "pot", 30.0), (3, "tea", 4.0)]


def ids(rows: Sequence[dict[str, object]]) -> list[object]:
    return [row["id"] for row in rows]


def test_a_run_until_caught_up_fills_tables_sinks_and_views_and_the_next_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    project = write(tmp_path, {"a.py": SHOP, "b.sql": SHOP_SQL})
    add_orders(tmp_path, "1", FIRST)
    runner, watching = run_once(spark, project)
    assert runner.all_went_well, "\n".join(watching.events)
    assert table(project, "kept") == [
        {"id": 1, "item": "tea", "price": 3.5, "kind": "cheap"},
        {"id": 2, "item": "pot", "price": 30.0, "kind": "dear"},
        {"id": 3, "item": "tea", "price": 4.0, "kind": "cheap"},
    ]
    assert ids(table(project, "teas")) == [1, 3]
    assert table(project, "by_kind") == [
        {"kind": "cheap", "orders": 2, "revenue": 7.5},
        {"kind": "dear", "orders": 1, "revenue": 30.0},
    ]
    started = [event.split()[0] for event in watching.events if event.endswith("is started")]
    assert started.index("to_files") > started.index("dear")

    add_orders(tmp_path, "2", [(4, "tea", 5.0)])
    runner, watching = run_once(spark, project)
    assert runner.all_went_well, "\n".join(watching.events)
    assert ids(table(project, "kept")) == [1, 2, 3, 4]
    assert table(project, "by_kind")[0] == {"kind": "cheap", "orders": 3, "revenue": 12.5}
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "out")).collect()) == [1, 2, 3, 4]


def test_for_ever_a_failed_flow_is_restarted_and_the_others_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    python = (
        READ_ORDERS
        + f"""\
@dp.table
def good():
    return spark.readStream.table("orders")

@F.udf("int")
def fails_at_first(id):
    import os
    if not os.path.exists({str(mended)!r}):
        raise ValueError("the price list is missing")
    return id

@dp.table
def bad():
    return spark.readStream.table("orders").select(fails_at_first("id").alias("id"))
"""
    )
    project = write(tmp_path, {"a.py": python})
    add_orders(tmp_path, "1", FIRST)
    seen: list[str] = []

    def enough(flows: Sequence[FlowProgress]) -> bool:
        good, bad = flows
        if bad.restarts >= 2 and good.batches == 1 and not mended.exists():
            seen.extend([bad.error or "", bad.state.value])
            add_orders(tmp_path, "2", [(4, "tea", 5.0)])
            mended.touch()
        return mended.exists() and good.rows == 4 and bad.rows == 4

    runner, watching = run_until(spark, project, enough)
    assert runner.all_went_well, "\n".join(watching.events)
    assert seen[0] == "ValueError: the price list is missing."
    assert any("bad failed, and is started again in 2 s" in event for event in watching.events)
    assert ids(table(project, "good")) == ids(table(project, "bad")) == [1, 2, 3, 4]
    assert [flow.state for flow in runner.flows] == [State.STOPPED, State.STOPPED]
    assert spark.streams.active == []


def test_once_a_flow_that_keeps_failing_is_given_up_and_what_reads_it_is_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    python = (
        READ_ORDERS
        + """\
@dp.table
def bad():
    return spark.readStream.table("orders").select(F.expr("CAST(raise_error('no') AS INT)").alias("id"))

@dp.table
def after():
    return spark.readStream.table("bad")

@dp.table
def good():
    return spark.readStream.table("orders")
"""
    )
    project = write(tmp_path, {"a.py": python})
    add_orders(tmp_path, "1", FIRST)
    runner, watching = run_once(spark, project)
    assert not runner.all_went_well
    states = {flow.flow: flow.state for flow in runner.flows}
    assert states == {"bad": State.FAILED, "after": State.SKIPPED, "good": State.DONE}, watching.events
    assert ids(table(project, "good")) == [1, 2, 3]


def test_for_ever_tables_feed_each_other_and_views_follow(spark: SparkSession, tmp_path: Path) -> None:
    python = (
        READ_ORDERS
        + """\
@dp.table
def kept():
    return spark.readStream.table("orders")

@dp.table(spark_conf={"pipelines.trigger.interval": "200 ms"})
def teas():
    return spark.readStream.table("kept").where("item = 'tea'")

@dp.materialized_view(spark_conf={"pipelines.trigger.interval": "500 ms"})
def counted():
    return spark.read.table("teas").groupBy("item").count()
"""
    )
    project = write(tmp_path, {"a.py": python})
    add_orders(tmp_path, "1", FIRST)

    def enough(flows: Sequence[FlowProgress]) -> bool:
        teas = next(flow for flow in flows if flow.flow == "teas")
        if teas.rows == 3 and not (tmp_path / "incoming/2.json").exists():
            add_orders(tmp_path, "2", [(4, "tea", 5.0), (5, "pot", 31.0)])
        return table(project, "counted") == [{"item": "tea", "count": 3}]

    runner, watching = run_until(spark, project, enough)
    assert runner.all_went_well, "\n".join(watching.events)
    assert ids(table(project, "teas")) == [1, 3, 4]


def test_a_rate_and_a_window_show_rows_and_state(spark: SparkSession, tmp_path: Path) -> None:
    sql = """\
CREATE TEMPORARY VIEW ticks AS SELECT * FROM STREAM ticks_read;
CREATE STREAMING TABLE minutes AS
SELECT window(timestamp, '1 minute').start AS minute, count(*) AS n
FROM STREAM ticks WATERMARK timestamp DELAY OF INTERVAL 1 MINUTE GROUP BY window(timestamp, '1 minute')
"""
    python = (
        READ_ORDERS
        + """\
@dp.temporary_view
def ticks_read():
    return spark.readStream.format("rate").option("rowsPerSecond", "100").load()
"""
    )
    project = write(tmp_path, {"a.py": python, "b.sql": sql})
    runner, _ = run_until(spark, project, lambda flows: flows[0].rows > 0 and flows[0].state_rows > 0)
    (minutes,) = runner.flows
    assert runner.all_went_well and minutes.rows >= 100 and minutes.state_bytes > 0
