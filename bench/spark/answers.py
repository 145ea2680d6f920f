"""What docs/benchmarks-spark.md begins with: a user's questions, each answered by one figure of a section.

And what it leaves to docs/performance.md: the goals that are set for those who change the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bench.report import rounded
from bench.spark import plan as names
from bench.spark import reading, sinks, streaming
from bench.spark.results import Section
from bench.spark.sides import ALL, DEFAULT, TUNED

HEAD: Final = "| | Moldau | Spark's connector |\n|---|---:|---:|"
END_OF_GOALS: Final = "<!-- end of goals -->\n"
_SMALL, _LARGE = "100 B, none, 4 partitions", "1 KB, lz4, 4 partitions"


@dataclass(frozen=True, slots=True)
class Answer:
    question: str
    section: str
    metric: str
    case: str
    own: str
    peer: str

    def row(self, section: Section) -> str | None:
        """None where it was not measured."""
        series = section.metrics.get(self.metric, {}).get(self.case)
        if series is None:
            return None
        found = [series.summary(side) for side in (self.own, self.peer)]
        cells = ["-" if each is None else f"{rounded(each.median)} {series.unit}" for each in found]
        return f"| {self.question} | {cells[0]} | {cells[1]} |"


def _of_reading(question: str, metric: str, case: str) -> Answer:
    return Answer(question, names.READING, metric, case, ALL.name, TUNED.name)


def _of_latency(question: str, case: str) -> Answer:
    return Answer(question, names.LATENCY, f"{streaming.LATENCY}, p50", case, ALL.name, DEFAULT.name)


def _of_sink(question: str, side: str) -> Answer:
    return Answer(question, names.SINK, reading.ROWS, "100 B", side, sinks.CONNECTOR.name)


ANSWERS: Final = (
    _of_reading("reading records of 100 B", reading.ROWS, _SMALL),
    _of_reading("the same: CPU of all processes", reading.CPU, _SMALL),
    _of_reading("reading records of 1 KB, lz4", reading.ROWS, _LARGE),
    _of_reading("the same of 1 KB: CPU of all processes", reading.CPU, _LARGE),
    Answer(
        "JSON into columns (the connector: with `from_json`)",
        names.JSON,
        reading.ROWS,
        "JSON, 4 partitions",
        reading.VALUE_FORMAT.name,
        TUNED.name,
    ),
    _of_latency("latency with 200 records a second, median", streaming.PACED),
    _of_latency("latency of one record into an idle query, median", streaming.SINGLE),
    Answer(
        "CPU of a query that has nothing to read",
        names.IDLE,
        streaming.IDLE_CPU,
        "idle",
        ALL.name,
        DEFAULT.name,
    ),
    _of_sink("writing rows of 100 B to a topic", sinks.ONCE.name),
    _of_sink("the same, exactly once (the connector: at least once)", sinks.EXACTLY_ONCE.name),
)


def table(sections: Mapping[str, Section], before: str = "") -> str:
    """Of what was measured; rows of the table as it was are kept for all else."""
    known = {row.split(" | ")[0].removeprefix("| "): row for row in before.splitlines()}
    rows = []
    for answer in ANSWERS:
        section = sections.get(answer.section)
        row = None if section is None else answer.row(section)
        rows.append(row or known.get(answer.question))
    return "\n".join([HEAD, *filter(None, rows)])


def renewed(page: str, sections: Mapping[str, Section]) -> str:
    """The page with the answers of these sections."""
    before, head, rest = page.partition(HEAD)
    old, _, after = rest.partition("\n\n")
    return f"{before}{table(sections, old)}\n\n{after}" if head else page


def with_goals(page: str, name: str, lines: Iterable[str]) -> str:
    """docs/performance.md with the goals of a section as they were just reached, or missed."""
    told = "\n".join(lines)
    if not told:
        return page
    begin = f"<!-- goals on Spark: {name} -->\n"
    text = f"{begin}Of *{name}*:\n{told}\n{END_OF_GOALS}"
    start = page.find(begin)
    if start >= 0:
        return page[:start] + text + page[page.index(END_OF_GOALS, start) + len(END_OF_GOALS) :]
    last = page.rfind(END_OF_GOALS)
    if last < 0:
        return f"{page}\n## Goals on Spark\n\n{text}"
    last += len(END_OF_GOALS)
    return f"{page[:last]}\n{text}{page[last:]}"
