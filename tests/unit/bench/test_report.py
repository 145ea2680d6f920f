"""The report shows medians, spread and ratios, and which budgets are met."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench import raw_load, report
from bench.measure import CLUSTER, GROUPS, Reading, Series, percentiles
from bench.runner import FULL, Results

DOCS = Path(__file__).parents[3] / "docs"


def table(**readings: tuple[list[float], list[float], bool]) -> list[str]:
    every = {
        name: Series("ms", more, {report.MOLDAU: own, report.KAFKA: peer})
        for name, (own, peer, more) in readings.items()
    }
    return list(report._table(every))[2:]


def test_a_row_has_the_median_the_spread_and_the_ratio() -> None:
    assert table(latency=([3.0, 1.0, 2.0], [8.0, 4.0, 5.0], False)) == [
        "| latency | ms | 2 (1 – 3) | 5 (4 – 8) | **0.40** |"
    ]


@pytest.mark.parametrize(
    ("own", "more_is_better", "shown"),
    [(20.0, True, "**2.00**"), (20.0, False, "2.00"), (5.0, True, "0.50"), (5.0, False, "**0.50**")],
)
def test_the_ratio_is_bold_where_moldau_is_better(own: float, more_is_better: bool, shown: str) -> None:
    (row,) = table(what=([own], [10.0], more_is_better))
    assert row == f"| what | ms | {own:g} | 10 | {shown} |"


def test_a_budget_is_met_or_missed_by_the_median() -> None:
    results = Results()
    for broker, value in (
        (report.MOLDAU, 15.9),
        (report.MOLDAU, 99),
        (report.MOLDAU, 12),
        (report.KAFKA, 60),
    ):
        results.add("any", broker, [Reading(raw_load.PRODUCE_ONE_BY_ONE, value, "us")])
    for value in (13.5, 14.0):
        results.add("any", report.MOLDAU, [Reading(raw_load.PRODUCE_PIPELINED, value, "us")])
    _, _, met, missed = report._budgets_table(report._every(results))
    assert met.endswith("| 16 us | 15.9 | met | 60 | - |  |")
    assert missed.endswith("| 13 us | 13.8 | **missed** | - | - |  |")


@pytest.mark.parametrize(("own", "shown"), [(30.0, "met, as a multiple"), (32.0, "**missed**")])
def test_on_a_slow_machine_the_prototype_is_the_measure(own: float, shown: str) -> None:
    results = Results()
    for name, value in ((report.MOLDAU, own), (report.PROTOTYPE, 20.0)):
        results.add("any", name, [Reading(raw_load.PRODUCE_ONE_BY_ONE, value, "us")])
    *_, row = report._budgets_table(report._every(results))
    assert f"| {own:g} | {shown} | - | 20 | {own / 20:.2f} (1.52) |" in row


def test_percentiles_of_a_thousand() -> None:
    assert percentiles(range(1000)) == {"p50": 500, "p95": 950, "p99": 990, "p99.9": 999}


def results_of(name: str, section: str = "any", unit: str = "s") -> Results:
    results = Results(others_share=0.25)
    results.add(section, report.MOLDAU, [Reading(name, 2.0, unit)])
    results.add(section, report.KAFKA, [Reading(name, 3.0, unit)])
    return results


LEADER_GONE = "kill -9 of the leader to the next write"
"""A user's question, and a budget."""


def test_the_page_begins_with_what_a_user_wants_to_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "_head", lambda *_: "\n## How it was measured\n")
    results = results_of("synchronous produce, p50", unit="ms")
    for side, value in ((report.MOLDAU, 1.5), (report.KAFKA, 2.5)):
        results.add("any", side, [Reading("synchronous produce, p99", value, "ms")])
    page = report.markdown(results, FULL, [])
    assert page.index(report.ANSWERS_HEAD) < page.index("## How it was measured")
    assert "| one write after the other: median, 99 % | 2, 1.5 ms | 3, 2.5 ms |\n" in page
    assert "budget" not in page


def test_a_section_measured_alone_answers_its_questions_anew_and_leaves_the_others() -> None:
    old = f"| {report.ANSWERS[0].question} | 9 MB/s | 8 MB/s |"
    page = f"# Benchmarks\n\n{report.ANSWERS_HEAD}\n{old}\n\n## How it was measured\n"
    for _ in range(2):
        page = report.with_section(page, CLUSTER, results_of(LEADER_GONE, CLUSTER))
    table, _, _ = page.partition("\n## How it was measured\n")
    assert table.splitlines()[-2:] == [
        old,
        "| a leader's broker is killed: until another takes writes | 2 s | 3 s |",
    ]


def test_budgets_go_to_the_page_on_performance_each_run_in_place_of_the_last() -> None:
    page = report.with_budgets("# Where the time goes\n", results_of(LEADER_GONE))
    page = report.with_budgets(page, results_of(LEADER_GONE, CLUSTER), CLUSTER) + "\n## What follows\n"
    again = report.with_budgets(page, results_of(LEADER_GONE))
    assert again == page
    assert page.startswith("# Where the time goes\n\n## Budgets\n")
    assert page.endswith("<!-- end of budgets -->\n\n## What follows\n")
    assert page.count("| 0.3 s | 2 | **missed** | 3 |") == 2
    assert "Of *Three brokers*, measured alone, while other processes took 25% of the cores:" in page
    assert report.with_budgets(page, results_of("nothing of a budget")) == page


def test_the_page_as_it_stands_begins_with_all_answers_of_the_figures_below_and_leaves_budgets_to_the_other() -> (
    None
):
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    head, _, tables = page.partition("\n## How it was measured\n")
    figures = dict(re.findall(r"^\| ([^|]+) \| [^|]+ \| (\S+)", tables, re.M))
    for answer in report.ANSWERS:
        own = ", ".join(figures[name] for name in answer.readings)
        assert f"| {answer.question} | {own} " in head
    assert "budget" not in page
    assert (DOCS / "performance.md").read_text(encoding="utf-8").count("<!-- budgets: ") == 2


PAGE = """# Benchmarks

## Latency

| old | 1 |
{between}
## Plots

![a](a)
"""


@pytest.mark.parametrize("between", ["", "\n## Groups\n\n| older | 2 |\n"])
def test_a_section_measured_alone_leaves_the_others_as_they_are(between: str) -> None:
    results = Results(others_share=0.25)
    results.add(GROUPS, report.MOLDAU, [Reading("join", 2.0, "s")])
    page = report.with_section(PAGE.format(between=between), GROUPS, results)
    before, _, rest = page.partition("\n## Groups\n")
    own, _, after = rest.partition("\n## Plots\n")
    assert before == "# Benchmarks\n\n## Latency\n\n| old | 1 |\n"
    assert after == "\n![a](a)\n"
    assert "| join | s | 2 | - | - |" in own
    assert "took 25% of the cores" in own
    assert "older" not in page
