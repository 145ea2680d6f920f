"""docs/benchmarks-spark.md from the results: each section stands for itself, so that one can be measured anew alone.

The page begins with the answers to a user's questions (`answers`). A section has what its numbers are, the share of the
cores that others took, its tables with medians, spread and ratios, and its plot. The goals that are set for it go to
docs/performance.md.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from bench import spark_connector
from bench.measure import Series
from bench.report import java_version, rounded, spread
from bench.runner import machine
from bench.spark import answers, reading, sinks, streaming
from bench.spark import plan as names
from bench.spark.plan import Plan
from bench.spark.results import Results, Section
from bench.spark.sides import ALL, DEFAULT, OFFSET, PLAIN, TUNED, TUNED_OPTIONS, VALUE

TITLE: Final = """# Benchmarks on Spark

Our data source `moldau` and Spark's own Kafka connector in one session of Spark on one machine with {cores} cores,
over the same topics. Where it reads, the connector is tuned for it (below).
"""
HEAD: Final = """
## How it was measured

Made by `make bench-spark` (`python -m bench.spark`), not by hand: both read and write topics of one Moldau broker on
the same machine, in one session of Spark (`local[{cores}]`). The sides take turns, and another one begins in each
run; a number is the median of {runs} runs (latency: of {latency_runs}), in brackets the smallest and the largest. A
*ratio* is the first side's number divided by the second's: **bold** where the first one is the better one. What a query
has read or written is compared with what is known to be there. CRCs are checked on both sides.
[performance.md](performance.md) explains what lies behind the numbers.

- Moldau {moldau} on Python {python}; PySpark {pyspark} on Java {java}, 2 GB heap; the connector is {connector}
- *tuned*: {tuned}
- {cores} cores, {memory} memory, {kernel}; broker, JVM and Python share them
"""
NOTES: Final = {
    names.READING: """\
A batch query over a whole topic, `sum(length(value))`, from the call to its result: {rows_100_b:,} records of 100
B, or {rows_1_kb:,} of 1 KB, that compress to about a third, in batches of 16 KB. *Moldau* hands out all columns, as
the connector does. CPU is that of all processes: the JVM, the Python workers of the tasks, the driver with its
planners, the broker.
""",
    names.COUNTING: """\
`count()` of the same records, uncompressed. The connector reads records whole, whatever a query asks for.
""",
    names.JSON: """\
Views per minute and page of {rows_json:,} page views in JSON of about 200 B, of whose six fields four are asked
for: parsed by Spark's `from_json`, or by our source with `valueFormat=json`.
""",
    names.FALLBACK: """\
The sum of lengths again, with the decoder that takes over where numba is not installed or does not work.
""",
    names.LATENCY: """\
From the call that sends a record to the moment when the query's result of it has been read from another topic. The
sink is the connector's, whichever source is measured; *source and sink* has ours on both ends. Spark lets a Python
worker go that was not used for a minute: the last case is the first record after that.
""",
    names.IDLE: """\
What a query takes that has nothing to read, in milliseconds of CPU a second, and the session without any query.
""",
    names.PARTITIONS: """\
Micro-batches with one record of every partition, into a sink that drops them: what a batch costs by itself. Time is
that of Spark's `triggerExecution`, CPU that of all processes between two batches, divided by their number. Two runs.
""",
    names.SINK: """\
A batch query writes {sink_rows_100_b:,} rows of 100 B, or {sink_rows_1_kb:,} of 1 KB, in four tasks to a topic of
four partitions, until all are acknowledged; acks=all, idempotent, on all sides.
""",
}
PARTS: Final = "JVM + workers + driver + broker"


@dataclass(frozen=True, slots=True)
class Table:
    caption: str
    metrics: tuple[str, ...]
    """With more than one, rows say which."""
    ratios: tuple[tuple[str, str], ...] = ()
    """Pairs of sides."""


@dataclass(frozen=True, slots=True)
class Goal:
    sentence: str
    metric: str
    own: str
    peer: str
    least: float | None = None
    most: float | None = None

    def is_met(self, ratio: float) -> bool:
        """As the page shows it, with two digits."""
        ratio = round(ratio, 2)
        return ratio >= self.least if self.least is not None else ratio <= (self.most or 0)


def _of_work(*ratios: tuple[str, str]) -> tuple[Table, ...]:
    return tuple(Table(metric, (metric,), ratios) for metric in (reading.ROWS, reading.CPU))


_LATENCIES: Final = tuple(
    f"{streaming.LATENCY}, {name}" for name in ("p50", "p95", "p99", "largest", "first")
)
TABLES: Final[Mapping[str, tuple[Table, ...]]] = {
    names.READING: _of_work((ALL.name, TUNED.name), (VALUE.name, TUNED.name), (ALL.name, DEFAULT.name)),
    names.COUNTING: _of_work((ALL.name, TUNED.name), (OFFSET.name, TUNED.name)),
    names.JSON: _of_work((reading.VALUE_FORMAT.name, TUNED.name), (reading.FROM_JSON.name, TUNED.name)),
    names.FALLBACK: _of_work((PLAIN.name, ALL.name), (PLAIN.name, TUNED.name)),
    names.LATENCY: (
        Table("latency", _LATENCIES, ((ALL.name, DEFAULT.name), (streaming.BOTH.name, DEFAULT.name))),
    ),
    names.IDLE: (Table("CPU", (streaming.IDLE_CPU,), ((ALL.name, DEFAULT.name),)),),
    names.PARTITIONS: tuple(
        Table(metric, (metric,), ((ALL.name, DEFAULT.name),))
        for metric in (streaming.BATCH_TIME, streaming.BATCH_CPU)
    ),
    names.SINK: _of_work(
        (sinks.ONCE.name, sinks.CONNECTOR.name), (sinks.EXACTLY_ONCE.name, sinks.CONNECTOR.name)
    ),
}
GOALS: Final[Mapping[str, tuple[Goal, ...]]] = {
    names.READING: (
        Goal(
            "all columns: at least 1.9 times the tuned connector's rows a second",
            reading.ROWS,
            ALL.name,
            TUNED.name,
            least=1.9,
        ),
        Goal("at no more than 0.9 of its CPU", reading.CPU, ALL.name, TUNED.name, most=0.9),
    ),
    names.JSON: (
        Goal(
            "`valueFormat=json`: at least 4 times the tuned connector's rows a second with `from_json`",
            reading.ROWS,
            reading.VALUE_FORMAT.name,
            TUNED.name,
            least=4.0,
        ),
    ),
}


def markdown(results: Results, plan: Plan, plots: Mapping[str, str]) -> str:
    """The whole page; `plots` are the sections' pictures."""
    parts = [f"{TITLE.format(**machine())}\n{answers.table(results.sections)}\n", _head(plan)]
    for name, section in results.sections.items():
        parts.append(section_text(name, section, plan, plots.get(name)))
    return "".join(parts)


def with_section(page: str, name: str, section: Section, plan: Plan, plot: str | None) -> str:
    """The page with this section as it was just measured, also in its first table; all others keep their figures."""
    page = answers.renewed(page, {name: section})
    text = section_text(name, section, plan, plot)
    start = page.find(f"\n## {name}\n")
    if start < 0:
        return page + text
    stop = page.find("\n## ", start + 1)
    return page[:start] + text + (page[stop:] if stop >= 0 else "")


def section_text(name: str, section: Section, plan: Plan, plot: str | None) -> str:
    lines = [f"\n## {name}\n", NOTES[name].format(**_amounts(plan))]
    lines.append(f"Other processes took {section.others_share:.0%} of the cores meanwhile.")
    if section.failures:
        lines.append(f"\n**Not measured, as it failed:** {'; '.join(section.failures)}.")
    for table in TABLES[name]:
        lines += _table(section, table)
        lines += _parts(section, table)
    if plot is not None:
        lines.append(f"\n![{name}]({plot})")
    return "\n".join(lines) + "\n"


def with_goals(page: str, results: Results) -> str:
    """docs/performance.md, with the goals of what was measured."""
    for name, section in results.sections.items():
        page = answers.with_goals(page, name, _goals(section, GOALS.get(name, ())))
    return page


def _amounts(plan: Plan) -> dict[str, object]:
    return {field: getattr(plan, field) for field in Plan.__slots__}


def _head(plan: Plan) -> str:
    return HEAD.format(
        runs=plan.runs,
        latency_runs=plan.latency_runs,
        moldau=version("moldau"),
        python=platform.python_version(),
        pyspark=version("pyspark"),
        java=java_version(),
        connector=spark_connector.VERSION,
        tuned=", ".join(f"`{key}={value}`" for key, value in TUNED_OPTIONS.items()),
        **machine(),
    )


def _table(section: Section, table: Table) -> Iterator[str]:
    metrics = [metric for metric in table.metrics if metric in section.metrics]
    if not metrics:
        return
    sides = section.sides(metrics[0])
    units = {series.unit for metric in metrics for series in section.metrics[metric].values()}
    ratios = [pair for pair in table.ratios if set(pair) <= set(sides)]
    yield ""
    heads = [f"{table.caption}, {' '.join(units)}", *sides, *(f"{own} : {peer}" for own, peer in ratios)]
    yield _row(heads)
    yield "|---|" + "---:|" * (len(heads) - 1)
    for case in dict.fromkeys(case for metric in metrics for case in section.metrics[metric]):
        for metric in metrics:
            series = section.metrics[metric].get(case)
            if series is not None:
                label = case if len(metrics) == 1 else f"{case}, {metric.rpartition(', ')[2]}"
                shown = [spread(series.summary(side)) for side in sides]
                yield _row([label, *shown, *(_ratio(series, *pair) for pair in ratios)])


def _parts(section: Section, table: Table) -> Iterator[str]:
    """Whose CPU it is, in one table."""
    (metric, *_) = table.metrics
    parts = [f"{metric}: {name}" for name in reading.OF_CPU]
    if not all(part in section.metrics for part in parts):
        return
    sides = section.sides(metric)
    yield ""
    yield _row([f"of it {PARTS}", *sides])
    yield "|---|" + "---:|" * len(sides)
    for case in section.metrics[metric]:
        found = [[section.median(part, case, side) for part in parts] for side in sides]
        yield _row([case, *(" + ".join("-" if n is None else rounded(n) for n in each) for each in found)])


def _goals(section: Section, goals: Sequence[Goal]) -> Iterator[str]:
    found = [(goal, ratios(section, goal)) for goal in goals]
    if not any(every for _, every in found):
        return
    yield "\n| goal | reached | |"
    yield "|---|---:|---|"
    for goal, every in found:
        missed = [case for case, ratio in every.items() if not goal.is_met(ratio)]
        reached = f"{min(every.values()):.2f} – {max(every.values()):.2f}" if every else "-"
        verdict = f"**missed** in {len(missed)} of {len(every)}: {'; '.join(missed)}" if missed else "met"
        yield _row([goal.sentence, reached, verdict])


def ratios(section: Section, goal: Goal) -> dict[str, float]:
    """Of every case."""
    found = {}
    for case in section.metrics.get(goal.metric, {}):
        own = section.median(goal.metric, case, goal.own)
        peer = section.median(goal.metric, case, goal.peer)
        if own is not None and peer:
            found[case] = own / peer
    return found


def _ratio(series: Series, own: str, peer: str) -> str:
    first, second = series.summary(own), series.summary(peer)
    if first is None or second is None or not second.median:
        return "-"
    ratio = first.median / second.median
    is_better = ratio > 1 if series.more_is_better else ratio < 1
    return f"**{ratio:.2f}**" if is_better else f"{ratio:.2f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
