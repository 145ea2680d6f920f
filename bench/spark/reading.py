"""Rows a second of batch queries over a topic, from the call to the result: sum of lengths, count, windows over JSON.

Planning is in the time, as in every query. Results are compared with what is known to be in the topic, and windows with
those of the other sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bench.measure import WorkNotDone
from bench.spark.plan import Plan
from bench.spark.results import Found, Section
from bench.spark.sides import ALL, DEFAULT, OFFSET, PLAIN, TUNED, VALUE, Side, in_turn
from bench.spark.topics import Filled, events, filled, texts
from bench.spark.world import Taken, World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Say = Callable[[str], None]
Query = Callable[[Side, Filled], object]

ROWS = "rows a second"
CPU = "CPU"
OF_CPU = {"JVM": "jvm", "workers": "workers", "driver": "driver", "broker": "broker"}
"""What the parts are called in the report, and in `Cpu`."""
SIZES = {100: "100 B", 1000: "1 KB"}
EVENT_SCHEMA = "at timestamp, user string, page string, duration_ms int"
FROM_JSON = Side("Moldau, from_json", "moldau")
VALUE_FORMAT = Side("Moldau, `valueFormat=json`", "moldau")
WARM_UPS = 2


def sums(world: World, plan: Plan, section: Section, say: Say) -> None:
    """The sum of the values' lengths: the least that touches every value."""
    sides = (DEFAULT, TUNED, ALL, VALUE)
    _sums(world, plan, section, say, sides, plan.codecs, plan.partitions)


def without_numba(world: World, plan: Plan, section: Section, say: Say) -> None:
    codecs = (plan.codecs[0], plan.codecs[-1])
    _sums(world, plan, section, say, (TUNED, ALL, PLAIN), codecs, plan.partitions[-1:])


def counts(world: World, plan: Plan, section: Section, say: Say) -> None:
    def count(side: Side, topic: Filled) -> int:
        return int(_frame(world, side, topic).count())

    for size, name in SIZES.items():
        for partitions in plan.partitions:
            with filled(world.server, texts(size), plan.rows(size), "none", partitions) as topic:
                case = f"{name}, {_partitions(partitions)}"
                _measure(
                    world, plan, section, say, case, (DEFAULT, TUNED, ALL, OFFSET), topic, count, topic.rows
                )


def windows(world: World, plan: Plan, section: Section, say: Say) -> None:
    """Page views per minute and page."""
    seen: dict[str, object] = {}

    def query(side: Side, topic: Filled) -> object:
        found = [tuple(row) for row in _windows(_views(world, side, topic)).collect()]
        if sum(row[2] for row in found) != topic.rows:
            raise WorkNotDone(f"{side.name}: {sum(row[2] for row in found)} views of {topic.rows}")
        if seen.setdefault(topic.name, sorted(found)) != sorted(found):
            raise WorkNotDone(f"{side.name}: other windows than the side before it")
        return topic.rows

    sides = (DEFAULT, TUNED, FROM_JSON, VALUE_FORMAT)
    for partitions in plan.partitions:
        with filled(world.server, events(), plan.rows_json, "none", partitions) as topic:
            case = f"JSON, {_partitions(partitions)}"
            _measure(world, plan, section, say, case, sides, topic, query, topic.rows)


def _sums(
    world: World,
    plan: Plan,
    section: Section,
    say: Say,
    sides: tuple[Side, ...],
    codecs: Iterable[str],
    partitions_of: Iterable[int],
) -> None:
    from pyspark.sql import functions as F

    def query(side: Side, topic: Filled) -> object:
        (row,) = _frame(world, side, topic).agg(F.sum(F.length("value"))).collect()
        return row[0]

    for size, name in SIZES.items():
        for codec in codecs:
            for partitions in partitions_of:
                with filled(world.server, texts(size), plan.rows(size), codec, partitions) as topic:
                    case = f"{name}, {codec}, {_partitions(partitions)}"
                    _measure(world, plan, section, say, case, sides, topic, query, topic.value_bytes)


def _measure(
    world: World,
    plan: Plan,
    section: Section,
    say: Say,
    case: str,
    sides: tuple[Side, ...],
    topic: Filled,
    query: Query,
    expected: object,
) -> None:
    is_first = not section.metrics
    for number in range(-WARM_UPS if is_first else 0, plan.runs):
        say(f"{case}, " + ("warming up" if number < 0 else f"run {number + 1} of {plan.runs}"))
        for side in in_turn(sides, number):
            found, taken = world.taken(lambda side=side: query(side, topic))  # type: ignore[misc]
            if found != expected:
                raise WorkNotDone(f"{case}, {side.name}: {found} instead of {expected}")
            if number >= 0:
                section.add(case, side.name, readings(topic.rows, taken))


def readings(rows: int, taken: Taken) -> Iterator[Found]:
    yield Found(ROWS, rows / taken.seconds / 1e6, "M rows/s", more_is_better=True)
    cpu = taken.cpu.over(rows / 1e6)
    yield Found(CPU, cpu.total, "s/M rows")
    for name, part in OF_CPU.items():
        yield Found(f"{CPU}: {name}", getattr(cpu, part), "s/M rows")


def _frame(world: World, side: Side, topic: Filled) -> DataFrame:
    return side.read(world.spark, world.bootstrap, topic.name)


def _views(world: World, side: Side, topic: Filled) -> DataFrame:
    """The events as columns: parsed by Spark, or by our source."""
    from pyspark.sql import functions as F

    if side is VALUE_FORMAT:
        options = {"valueFormat": "json", "valueSchema": EVENT_SCHEMA, "columns": "value"}
        asked = Side(side.name, side.format, options)
        return _frame(world, asked, topic).select("value.*")
    text = F.col("value").cast("string")
    return _frame(world, side, topic).select(F.from_json(text, EVENT_SCHEMA).alias("value")).select("value.*")


def _windows(views: DataFrame) -> Any:
    from pyspark.sql import functions as F

    return (
        views.groupBy(F.window("at", "1 minute").start.alias("minute"), "page")
        .agg(F.count("*").alias("views"), F.avg("duration_ms").alias("duration_ms"))
        .select("minute", "page", "views", "duration_ms")
    )


def _partitions(count: int) -> str:
    return f"{count} partition" if count == 1 else f"{count} partitions"
