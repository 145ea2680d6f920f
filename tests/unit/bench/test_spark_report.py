"""The page of the benchmarks on Spark: tables, goals, sections that stand for themselves; plots of the same results."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.spark import plan as names
from bench.spark import reading, report, streaming
from bench.spark.__main__ import main, write
from bench.spark.answers import ANSWERS
from bench.spark.plan import FULL, QUICK, SECTIONS
from bench.spark.plots import colours, draw
from bench.spark.results import Found, Results, Section
from bench.spark.runner import WORK
from bench.spark.sides import ALL, DEFAULT, TUNED, VALUE, in_turn
from bench.spark.world import Cpu, Taken


def taken(seconds: float, cpu_s: float) -> Taken:
    return Taken(seconds, Cpu(cpu_s / 2, cpu_s / 4, 0, cpu_s / 4))


def section_of_reading(own_s: float = 1.0, own_cpu_s: float = 1.0) -> Section:
    section = Section(others_share=0.07)
    for case in ("100 B, none, 1 partition", "1 KB, none, 1 partition"):
        for side in (DEFAULT, TUNED):
            for seconds in (3.0, 1.0, 2.0):
                section.add(case, side.name, reading.readings(1_000_000, taken(seconds, 2.0)))
        for side in (ALL, VALUE):
            section.add(case, side.name, reading.readings(1_000_000, taken(own_s, own_cpu_s)))
        own_s *= 2
    return section


def test_a_reading_is_rows_a_second_and_cpu_of_each_process_for_a_million_rows() -> None:
    found = {each.metric: each.value for each in reading.readings(500_000, taken(2.0, 1.0))}
    assert found == {
        "rows a second": 0.25,
        "CPU": 2.0,
        "CPU: JVM": 1.0,
        "CPU: workers": 0.5,
        "CPU: driver": 0.0,
        "CPU: broker": 0.5,
    }


def test_a_table_has_every_side_with_its_spread_and_the_ratios() -> None:
    text = report.section_text(names.READING, section_of_reading(), FULL, None)
    assert "Other processes took 7% of the cores meanwhile." in text
    assert (
        "| rows a second, M rows/s | connector | connector, tuned | Moldau | Moldau, `columns=value` "
        "| Moldau : connector, tuned | Moldau, `columns=value` : connector, tuned | Moldau : connector |"
    ) in text
    assert (
        "| 100 B, none, 1 partition | 0.5 (0.333 – 1) | 0.5 (0.333 – 1) | 1 | 1 | **2.00** | **2.00** | **2.00** |"
    ) in text
    assert "| 100 B, none, 1 partition | 2 | 2 | 1 | 1 | **0.50** | **0.50** | **0.50** |" in text


def test_the_cpu_of_each_process_stands_in_one_table() -> None:
    text = report.section_text(names.READING, section_of_reading(), FULL, None)
    assert "| of it JVM + workers + driver + broker | connector |" in text
    assert (
        "| 1 KB, none, 1 partition | 1 + 0.5 + 0 + 0.5 | 1 + 0.5 + 0 + 0.5 | 0.5 + 0.25 + 0 + 0.25 |" in text
    )


def test_a_goal_that_is_missed_is_named_with_the_cases() -> None:
    results = Results({names.READING: section_of_reading(), names.IDLE: Section()})
    text = report.with_goals("# Where the time goes\n", results)
    assert text.startswith(
        "# Where the time goes\n\n## Goals on Spark\n\n<!-- goals on Spark: Reading -->\nOf *Reading*:\n\n|"
    )
    assert "| 1.00 – 2.00 | **missed** in 1 of 2: 1 KB, none, 1 partition |" in text
    assert "| at no more than 0.9 of its CPU | 0.50 – 0.50 | met |" in text
    assert report.with_goals(text, results) == text, "each run in place of the last"
    assert "missed" not in report.section_text(names.READING, section_of_reading(), FULL, None)


def section_of_4_partitions(own_s: float) -> Section:
    section = Section()
    for side, seconds in ((TUNED, 2.0), (ALL, own_s)):
        section.add("100 B, none, 4 partitions", side.name, reading.readings(1_000_000, taken(seconds, 1.0)))
    return section


def test_the_page_begins_with_answers_and_a_section_measured_alone_answers_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "_head", lambda _plan: "\n## How it was measured\n")
    idle = Section()
    for side in streaming.OF_SOURCES:
        idle.add("idle", side.name, [Found(streaming.IDLE_CPU, 3.0, "ms/s")])
    page = report.markdown(Results({names.READING: section_of_4_partitions(1.0), names.IDLE: idle}), FULL, {})
    head, _, _ = page.partition("\n## How it was measured\n")
    assert head.splitlines()[-3:] == [
        "| reading records of 100 B | 1 M rows/s | 0.5 M rows/s |",
        "| the same: CPU of all processes | 1 s/M rows | 1 s/M rows |",
        "| CPU of a query that has nothing to read | 3 ms/s | 3 ms/s |",
    ]
    page = report.with_section(page, names.READING, section_of_4_partitions(0.5), FULL, None)
    head, _, _ = page.partition("\n## How it was measured\n")
    assert head.splitlines()[-3] == "| reading records of 100 B | 2 M rows/s | 0.5 M rows/s |"
    assert head.splitlines()[-1] == "| CPU of a query that has nothing to read | 3 ms/s | 3 ms/s |"


def test_the_page_as_it_stands_begins_with_all_answers_and_leaves_goals_to_the_other() -> None:
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "benchmarks-spark.md").read_text(encoding="utf-8")
    head, _, _ = page.partition("\n## How it was measured\n")
    assert [answer.question for answer in ANSWERS] == re.findall(r"^\| ([^|]+?) \| \d", head, re.M)
    assert "| goal |" not in page
    performance = (docs / "performance.md").read_text(encoding="utf-8")
    assert performance.count("<!-- goals on Spark: ") == 2


@pytest.mark.parametrize(("ratio", "is_met"), [(1.895, True), (1.894, False), (3.0, True)])
def test_a_goal_is_met_by_the_ratio_as_it_is_shown(ratio: float, is_met: bool) -> None:
    assert report.Goal("", "", "", "", least=1.9).is_met(ratio) is is_met
    assert report.Goal("", "", "", "", most=1.9).is_met(-ratio + 3.8) is is_met


def test_a_section_that_failed_says_so_in_the_page() -> None:
    text = report.section_text(names.SINK, Section(failures=["3 records of 4"]), FULL, None)
    assert "**Not measured, as it failed:** 3 records of 4." in text


def test_latency_has_a_row_for_each_percentile_of_each_load() -> None:
    section = Section()
    for side in streaming.OF_LATENCY:
        streaming._add_ages(section, streaming.PACED, side, [number / 1000 for number in range(1, 201)])
        streaming._add_ages(section, streaming.SINGLE, side, [0.1, 0.3, 0.2])
    rows = report.section_text(names.LATENCY, section, FULL, None).splitlines()
    assert [row.split(" | ")[:2] for row in rows if row.startswith("| ") and "latency" not in row] == [
        ["| 200 records/s, p50", "101"],
        ["| 200 records/s, p95", "191"],
        ["| 200 records/s, p99", "199"],
        ["| 200 records/s, largest", "200"],
        ["| one record into an idle query, p50", "200"],
        ["| one record into an idle query, largest", "300"],
    ]


def test_one_section_is_put_into_the_page_and_the_others_keep_their_figures() -> None:
    page = "# Page\n\n## Reading\n\nfrom before\n\n## JSON\n\nkept\n"
    text = report.with_section(page, names.READING, section_of_reading(), FULL, "plot.png")
    assert text.startswith("# Page\n\n## Reading\n\nA batch query")
    assert text.endswith("![Reading](plot.png)\n\n## JSON\n\nkept\n")
    assert "from before" not in text
    assert report.with_section(page, names.IDLE, Section(), FULL, None).startswith(page + "\n## Idle\n")


def test_every_section_has_its_work_its_note_and_its_tables() -> None:
    assert tuple(WORK) == tuple(report.NOTES) == tuple(report.TABLES) == SECTIONS
    for name in SECTIONS:
        for plan in (QUICK, FULL):
            assert "{" not in report.section_text(name, Section(), plan, None)


def test_a_page_is_written_with_its_plots_and_a_section_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_head", lambda _plan: "# Page\n")
    results = Results({names.READING: section_of_reading(), names.IDLE: Section()})
    write(results, FULL, tmp_path, None)
    page = tmp_path / "benchmarks-spark.md"
    assert "![Reading](benchmarks-spark-reading.png)" in page.read_text()
    assert (tmp_path / "benchmarks-spark-reading.png").stat().st_size > 1000
    write(Results({names.READING: section_of_reading(own_s=0.1)}), FULL, tmp_path, names.READING)
    assert "| **20.00** |" in page.read_text()
    assert page.read_text().count("## Idle") == 1


def test_plots_are_drawn_for_the_sections_that_have_something_to_see(tmp_path: Path) -> None:
    of_partitions = Section()
    for side in streaming.OF_SOURCES:
        for case in ("1 partition", "64 partitions"):
            found = [Found(metric, 3.0, "ms") for metric in (streaming.BATCH_TIME, streaming.BATCH_CPU)]
            of_partitions.add(case, side.name, found)
    of_latency = Section()
    streaming._add_ages(of_latency, streaming.PACED, ALL, [0.1] * 200)
    assert draw(names.PARTITIONS, of_partitions, tmp_path) == "benchmarks-spark-partitions.png"
    assert draw(names.LATENCY, of_latency, tmp_path) == "benchmarks-spark-latency.png"
    assert draw(names.IDLE, Section(), tmp_path) is None
    assert draw(names.SINK, Section(), tmp_path) is None


def test_ours_are_blue_and_the_connectors_grey() -> None:
    found = colours(["connector", "Moldau", "connector, tuned", "Moldau, `columns=value`"])
    assert len(set(found.values())) == 4
    assert found["connector"] == "#adb5bd"
    assert found["Moldau"] == "#2a6f97"


def test_another_side_begins_in_each_run() -> None:
    sides = (DEFAULT, TUNED, ALL)
    assert [next(iter(in_turn(sides, number))) for number in (-1, 0, 1, 2, 3)] == [
        ALL,
        DEFAULT,
        TUNED,
        ALL,
        DEFAULT,
    ]
    assert all(set(in_turn(sides, number)) == set(sides) for number in range(3))


def test_every_reading_can_be_kept() -> None:
    results = Results({names.READING: section_of_reading()})
    kept = json.loads(results.as_json())["Reading"]
    assert kept["others_share"] == 0.07
    assert kept["readings"]["rows a second"]["1 KB, none, 1 partition"]["Moldau"] == [0.5]


def test_an_unknown_section_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "Nothing"])
    assert "invalid choice" in capsys.readouterr().err
