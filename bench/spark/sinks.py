"""Writing to a topic: rows that Spark makes, by the connector's sink, and by ours at least once and exactly once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bench.measure import WorkNotDone
from bench.spark.plan import Plan
from bench.spark.reading import SIZES, WARM_UPS, readings
from bench.spark.results import Section
from bench.spark.sides import Side, in_turn
from bench.spark.world import World
from bench.topics import fresh_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Say = Callable[[str], None]

CONNECTOR = Side("connector", "kafka")
ONCE = Side("Moldau", "moldau")
EXACTLY_ONCE = Side("Moldau, `exactlyOnce=true`", "moldau", {"exactlyOnce": "true"})
SIDES = (CONNECTOR, ONCE, EXACTLY_ONCE)
PARTITIONS = 4


def sinks(world: World, plan: Plan, section: Section, say: Say) -> None:
    for size, name in SIZES.items():
        rows = plan.sink_rows(size)
        for number in range(0 if section.metrics else -WARM_UPS, plan.runs):
            say(f"sink, {name}, " + ("warming up" if number < 0 else f"run {number + 1} of {plan.runs}"))
            for side in in_turn(SIDES, number):
                with fresh_topic(world.server, PARTITIONS) as topic:
                    frame = _rows(world, rows, size)
                    _, taken = world.taken(lambda: _write(world, side, frame, topic))  # noqa: B023
                    written = _count(world, topic)
                if written != rows:
                    raise WorkNotDone(f"{side.name}: {written} records of {rows}")
                if number >= 0:
                    section.add(name, side.name, readings(rows, taken))


def _rows(world: World, rows: int, size: int) -> DataFrame:
    """Values that cost Spark little to make."""
    from pyspark.sql import functions as F

    return world.spark.range(0, rows, 1, PARTITIONS).select(
        F.rpad(F.col("id").cast("string"), size, "moldau ").cast("binary").alias("value")
    )


def _write(world: World, side: Side, frame: DataFrame, topic: str) -> None:
    options = {"kafka.bootstrap.servers": world.bootstrap, "topic": topic, **side.options}
    frame.write.format(side.format).options(**options).mode("append").save()


def _count(world: World, topic: str) -> int:
    """What a reader of committed records sees: a sink that loses or doubles rows is no sink."""
    options = {
        "kafka.bootstrap.servers": world.bootstrap,
        "subscribe": topic,
        "kafka.isolation.level": "read_committed",
        "columns": "offset",
    }
    return int(world.spark.read.format("moldau").options(**options).load().count())
