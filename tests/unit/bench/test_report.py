"""The report shows medians, spread and ratios, and which budgets are met."""

from __future__ import annotations

import pytest

from bench import raw_load, report
from bench.measure import GROUPS, Reading, Series, percentiles
from bench.runner import Results


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
    _, _, _, met, missed = report._budgets(results)
    assert met.endswith("| 16 us | 15.9 | met | 60 | - |  |")
    assert missed.endswith("| 13 us | 13.8 | **missed** | - | - |  |")


@pytest.mark.parametrize(("own", "shown"), [(30.0, "met, as a multiple"), (32.0, "**missed**")])
def test_on_a_slow_machine_the_prototype_is_the_measure(own: float, shown: str) -> None:
    results = Results()
    for name, value in ((report.MOLDAU, own), (report.PROTOTYPE, 20.0)):
        results.add("any", name, [Reading(raw_load.PRODUCE_ONE_BY_ONE, value, "us")])
    *_, row = report._budgets(results)
    assert f"| {own:g} | {shown} | - | 20 | {own / 20:.2f} (1.52) |" in row


def test_percentiles_of_a_thousand() -> None:
    assert percentiles(range(1000)) == {"p50": 500, "p95": 950, "p99": 990, "p99.9": 999}


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
