"""docs/benchmarks.md from the results: what a user wants to know first, then versions, machine, and every table with
medians, spread and ratios. The budgets that are set for those who change Moldau go to docs/performance.md.
"""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import confluent_kafka

from bench import apache_kafka, fixture, groups, raw_load, replicated, secure, starting
from bench.measure import CLUSTER, FIXTURE, GROUPS, MANY_PARTITIONS, SECURITY, Series, Summary
from bench.runner import Plan, Results, machine
from moldau.runtime.real.java import find_java

LIBRDKAFKA_PRODUCE = "broker CPU to produce, 1000 B, 1 partition"
MOLDAU, KAFKA, PROTOTYPE = "Moldau", "Apache Kafka", "Prototype"


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of the table that the page begins with: one reading, or several of one unit."""

    question: str
    readings: tuple[str, ...]


ANSWERS = (
    Answer("writing messages of 1 KB, one producer", ("produce, 1000 B, 1 partition",)),
    Answer("reading messages of 1 KB, one consumer", ("consume, 1000 B, 1 partition",)),
    Answer("writing messages of 100 B, one producer", ("produce, 100 B, 1 partition",)),
    Answer("reading messages of 100 B, one consumer", ("consume, 100 B, 1 partition",)),
    Answer(
        "one write after the other: median, 99 %", ("synchronous produce, p50", "synchronous produce, p99")
    ),
    Answer(
        "from producer to consumer, 500 a second: median, 99 %",
        ("end to end, 500/s, p50", "end to end, 500/s, p99"),
    ),
    Answer("CPU of the broker to write a MB, 1 KB messages", (LIBRDKAFKA_PRODUCE,)),
    Answer("CPU of the broker to read a MB, 1 KB messages", ("broker CPU to consume, 1000 B, 1 partition",)),
    Answer("memory: idle, after all of these", (starting.IDLE_MEMORY, "memory after all of it")),
    Answer("from its start to the first acknowledged message", ("start to first acknowledged message",)),
    Answer(
        "three brokers, three copies, acks=all: writing messages of 1 KB", ("replicated produce, 1000 B",)
    ),
    Answer("the same: CPU of all brokers to write a MB", ("CPU of all brokers, replicated produce, 1000 B",)),
    Answer(
        "the same: one write after the other: median, 99 %",
        ("replicated synchronous produce, p50", "replicated synchronous produce, p99"),
    ),
    Answer(
        "a leader's broker is killed: until another takes writes",
        ("kill -9 of the leader to the next write",),
    ),
    Answer(
        "10,000 partitions on 5 brokers: memory of all, for each 1,000",
        ("10,000 partitions on 5 brokers, memory per 1,000",),
    ),
)


@dataclass(frozen=True, slots=True)
class Budget:
    """What Moldau may need at most of something; a change that breaks one needs a reason."""

    name: str
    reading: str
    most: float
    unit: str
    prototype: float | None = None
    """What the prototype of the hot path needed where the budget was set: `most / prototype` is what Moldau may add."""


BUDGETS = (
    Budget(
        "produce request with one 1 KB message, answered one by one",
        raw_load.PRODUCE_ONE_BY_ONE,
        16,
        "us",
        10.5,
    ),
    Budget("the same, 5 in flight", raw_load.PRODUCE_PIPELINED, 13, "us", 7.5),
    Budget("produce, 1 MB requests of 1 KB messages", raw_load.PRODUCE_LARGE, 0.8, "ms/MB"),
    Budget(
        "produce with librdkafka, 1 KB messages, linger 5 ms",
        "broker CPU to produce, 1000 B, 1 partition",
        0.8,
        "ms/MB",
    ),
    Budget("fetch, 1 MB answers", raw_load.FETCH_LARGE, 0.4, "ms/MB"),
    Budget("one small fetch", raw_load.FETCH_SMALL, 25, "us", 15),
    Budget("an empty long poll", raw_load.FETCH_EMPTY, 25, "us", 22),
    Budget("CPU from start to ready", starting.START_CPU, 0.4, "s"),
    Budget("memory, idle", starting.IDLE_MEMORY, 50, "MiB"),
    Budget("memory per idle connection", starting.CONNECTION_MEMORY, 3, "KB"),
    Budget("fixture for tests, first run", fixture.COLD, 0.35, "s"),
    Budget("fixture for tests, later runs", fixture.WARM, 0.35, "s"),
    Budget(
        "three brokers: acks=all, 1 KB, linger 5 ms",
        "CPU of all brokers, replicated produce, 1000 B",
        5,
        "ms/MB",
    ),
    Budget("three brokers: the same, 100 B", "CPU of all brokers, replicated produce, 100 B", 9, "ms/MB"),
    Budget(
        "three brokers: kill -9 of the leader to the next write",
        "kill -9 of the leader to the next write",
        0.3,
        "s",
    ),
    Budget(
        "three brokers: the same, of the leader that is the controller",
        "kill -9 of the leader that is the controller to the next write",
        0.3,
        "s",
    ),
    Budget(
        "three brokers: killed broker back in all sets",
        "killed broker started again to all in-sync sets",
        2,
        "s",
    ),
    Budget("three brokers: idle CPU", "idle CPU of three brokers", 15, "ms/s"),
    Budget("three brokers: memory of one, idle", "memory of a broker, idle", 50, "MiB"),
)

TITLE = """# Benchmarks

Moldau and Apache Kafka beside each other on one machine with {cores} cores, which the clients use too. *CPU* is the
number to size by: throughput tells as much about the client, and about what else the machine did. Rows on one broker
and on several are of different runs; below, each says how busy the machine was besides.
"""
HEAD = """
## How it was measured

Made by `make bench` (`python -m bench`), not by hand: both brokers are driven by the same clients in turn, each with a
fresh data folder. A number is the median of {runs} runs after a warm-up of {warm_up:.1f} GB each; in brackets the
smallest and the largest run. *Ratio* is Moldau's number divided by Apache Kafka's: **bold** where Moldau is the better
one. [performance.md](performance.md) explains what lies behind the numbers.

- Moldau {moldau} on Python {python}; Apache Kafka {kafka} on Java {java}, with its start script's flags and 1 GB heap
- confluent-kafka {confluent} (librdkafka {librdkafka}); acks=all, one replica, no compression
- {cores} cores, {memory} memory, {kernel}; other processes took {others:.0%} of the cores meanwhile
"""

BUDGETS_HEAD = """\
The budgets for single requests were set on a machine where a prototype of the hot path (receive, parse, CRC, append or
read, answer, and nothing else) needed 10.5, 7.5, 15 and 22 us. Time per request depends on the machine and its
neighbours: the same steps are measured here in the same run (`bench.prototype`), and a budget that this machine
does not allow is *met, as a multiple* where Moldau needs no more than the allowed multiple of the prototype's time.
"""
NOTES = {
    GROUPS: groups.NOTE,
    CLUSTER: replicated.NOTE,
    MANY_PARTITIONS: replicated.MANY_NOTE,
    FIXTURE: fixture.NOTE,
    SECURITY: secure.NOTE,
}
"""What a section's numbers are, before its table."""
ANSWERS_HEAD = "| | Moldau | Apache Kafka |\n|---|---:|---:|"
WHOLE_RUN = "a whole run"
BEHIND_SECTIONS = ("\n## Not measured\n", "\n## Plots\n")


def markdown(results: Results, plan: Plan, plots: Sequence[str]) -> str:
    parts = [TITLE.format(**machine()), _answers(_every(results)), _head(plan, results)]
    for section, series in results.sections.items():
        parts += [f"\n## {section}\n", *_notes(section), *_table(series)]
    if results.failures:
        parts += ["\n## Not measured\n", *(f"- {failure}" for failure in results.failures)]
    if plots:
        parts += ["\n## Plots\n", *(f"![{name}]({name})" for name in plots)]
    return "\n".join(parts) + "\n"


def with_section(page: str, section: str, results: Results) -> str:
    """The page with this section as it was just measured, alone, also in its first table; all others keep their
    figures."""
    alone = f"Measured alone, while other processes took {results.others_share:.0%} of the cores.\n"
    series = results.sections.get(section, {})
    parts = [f"\n## {section}\n", *_notes(section), alone, *_table(series)]
    if results.failures:
        parts.append(f"\nNot measured, as it failed: {'; '.join(results.failures)}.")
    text = "\n".join(parts) + "\n"
    page = _with_answers(page, series)
    start = page.find(f"\n## {section}\n")
    if start >= 0:
        stop = page.find("\n## ", start + 1)
        return page[:start] + text + (page[stop:] if stop >= 0 else "")
    places = [place for place in map(page.find, BEHIND_SECTIONS) if place >= 0]
    place = min(places, default=len(page))
    return page[:place] + text + page[place:]


def with_budgets(page: str, results: Results, section: str | None = None) -> str:
    """docs/performance.md with the budgets of what was just measured: a whole run, or one section alone."""
    name = section or WHOLE_RUN
    every = _every(results)
    if not any(budget.reading in every for budget in BUDGETS):
        return page
    begin, end = f"<!-- budgets: {name} -->\n", "<!-- end of budgets -->\n"
    told = f"Of {name if section is None else f'*{section}*, measured alone'}"
    others = f"while other processes took {results.others_share:.0%} of the cores"
    text = "\n".join([f"{begin}{told}, {others}:\n", *_budgets_table(every), ""]) + end
    start = page.find(begin)
    if start >= 0:
        return page[:start] + text + page[page.index(end, start) + len(end) :]
    last = page.rfind(end)
    if last < 0:
        return f"{page}\n## Budgets\n\n{BUDGETS_HEAD}\n{text}"
    last += len(end)
    return f"{page[:last]}\n{text}{page[last:]}"


def _every(results: Results) -> dict[str, Series]:
    return {name: series for section in results.sections.values() for name, series in section.items()}


def _answers(every: Mapping[str, Series]) -> str:
    """Of what was measured: other rows are left out."""
    rows = [row for answer in ANSWERS if (row := _answer(answer, every))]
    return "\n".join([ANSWERS_HEAD, *rows])


def _answer(answer: Answer, every: Mapping[str, Series]) -> str | None:
    found = [every[name] for name in answer.readings if name in every]
    if len(found) < len(answer.readings):
        return None
    cells = [", ".join(_number(series.summary(side)) for series in found) for side in (MOLDAU, KAFKA)]
    return f"| {answer.question} | " + " | ".join(f"{cell} {found[0].unit}" for cell in cells) + " |"


def _with_answers(page: str, series: Mapping[str, Series]) -> str:
    """The page with the rows of its first table that a section, measured alone, has something to say to."""
    before, head, rest = page.partition(ANSWERS_HEAD)
    table, _, after = rest.partition("\n\n")
    known = {row.split(" | ")[0].removeprefix("| "): row for row in table.splitlines() if row}
    rows = [_answer(answer, series) or known.get(answer.question) for answer in ANSWERS]
    return "\n".join([before + head, *filter(None, rows), "", after]) if head else page


def _notes(section: str) -> Sequence[str]:
    return (NOTES[section],) if section in NOTES else ()


def _head(plan: Plan, results: Results) -> str:
    return HEAD.format(
        runs=plan.runs,
        warm_up=plan.warm_up_bytes / 1e9,
        moldau=version("moldau"),
        python=platform.python_version(),
        kafka=apache_kafka.VERSION,
        java=java_version(),
        confluent=confluent_kafka.__version__,
        librdkafka=confluent_kafka.libversion()[0],
        others=results.others_share,
        **machine(),
    )


def java_version() -> str:
    java = find_java("Apache Kafka")
    printed = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    found = re.search(r'version "([^"]+)"', printed)
    return found[1] if found else "?"


def _budgets_table(every: Mapping[str, Series]) -> Iterator[str]:
    yield "| broker CPU or memory for | budget | Moldau | | Apache Kafka | prototype here | times prototype (allowed) |"
    yield "|---|---:|---:|---|---:|---:|---:|"
    for budget in BUDGETS:
        series = every.get(budget.reading)
        if series is None:
            continue
        own, peer, floor = (series.summary(name) for name in (MOLDAU, KAFKA, PROTOTYPE))
        times, allowed = _times_prototype(budget, own, floor)
        met = "" if own is None else _verdict(own.median / budget.most, times / allowed)
        shown = f"{times:.2f} ({allowed:.2f})" if times else ""
        yield (
            f"| {budget.name} | {budget.most:g} {budget.unit} | {_number(own)} | {met} | {_number(peer)} "
            f"| {_number(floor)} | {shown} |"
        )


def _times_prototype(budget: Budget, own: Summary | None, floor: Summary | None) -> tuple[float, float]:
    """How often Moldau needs the prototype's time in this run, and how often it may; 0 where there is no prototype."""
    if own is None or floor is None or budget.prototype is None:
        return 0.0, 1.0
    return own.median / floor.median, budget.most / budget.prototype


def _verdict(of_budget: float, of_allowance: float) -> str:
    if of_budget <= 1:
        return "met"
    return "met, as a multiple" if 0 < of_allowance <= 1 else "**missed**"


def _table(every: dict[str, Series]) -> Iterator[str]:
    yield "| what | unit | Moldau | Apache Kafka | ratio |"
    yield "|---|---|---:|---:|---:|"
    for name, series in every.items():
        own, peer = series.summary(MOLDAU), series.summary(KAFKA)
        yield f"| {name} | {series.unit} | {spread(own)} | {spread(peer)} | {_ratio(series, own, peer)} |"


def spread(summary: Summary | None) -> str:
    if summary is None:
        return "-"
    if summary.least == summary.most:
        return rounded(summary.median)
    return f"{rounded(summary.median)} ({rounded(summary.least)} – {rounded(summary.most)})"


def _ratio(series: Series, own: Summary | None, peer: Summary | None) -> str:
    if own is None or peer is None or not peer.median:
        return "-"
    ratio = own.median / peer.median
    better = ratio > 1 if series.more_is_better else ratio < 1
    return f"**{ratio:.2f}**" if better else f"{ratio:.2f}"


def _number(summary: Summary | None) -> str:
    return "-" if summary is None else rounded(summary.median)


def rounded(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
