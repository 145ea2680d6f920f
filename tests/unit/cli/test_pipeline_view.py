"""How a pipeline looks in a terminal and in a pipe."""

from __future__ import annotations

import json

import pytest

from moldau.cli import pipeline_view
from moldau.cli.pipeline_view import Lines, drawing, summary, table_lines
from moldau.spark.pipeline.progress import FlowProgress, State


def flows() -> list[FlowProgress]:
    kept = FlowProgress("orders_kept", "orders_kept", "streaming table", "t/a.py:8", State.RUNNING)
    kept.batches, kept.rows, kept.rows_per_s, kept.batch_ms, kept.lag = 3, 12345, 61.7, 210, 7
    counted = FlowProgress("counted", "per_minute", "sink", "t/a.py:20", State.RESTARTING)
    counted.state_rows, counted.state_bytes, counted.restarts, counted.restart_in_s = 1, 2048, 2, 3.6
    counted.error = "there is no topic 'x'."
    view = FlowProgress(
        "by_item", "by_item", "materialized view", "t/b.sql:2", State.RUNNING, batches=1, batch_ms=95
    )
    return [kept, counted, view]


def test_a_table_has_a_line_for_each_flow_and_the_errors_below() -> None:
    assert table_lines([flow.document() for flow in flows()]) == [
        "FLOW         INTO         STATE              ROWS  ROWS/S  LAG  BATCHES     LAST           KEEPS  RESTARTS",
        "orders_kept  orders_kept  running          12,345      62    7        3   210 ms",
        "counted      per_minute   restarts in 4 s       0       0             0           1 row, 2.0 KiB         2",
        "by_item      by_item      running                                     1  95.0 ms",
        "counted (t/a.py:20): there is no topic 'x'.",
    ]


def test_columns_that_nobody_fills_are_left_out() -> None:
    (line, _) = table_lines([flows()[2].document()])
    assert line.split() == ["FLOW", "INTO", "STATE", "ROWS", "ROWS/S", "BATCHES", "LAST"]


def test_a_drawing_shows_the_same_and_fits_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=100, record=True, force_terminal=True, color_system=None)
    console.print(drawing("shop", [flow.document() for flow in flows()], "Ctrl-C stops it"))
    text = console.export_text()
    assert "orders_kept" in text and "there is no topic 'x'." in text and "Ctrl-C stops it" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_summary_is_a_sentence_about_a_flow() -> None:
    kept, counted, view = (flow.document() for flow in flows())
    assert summary(kept) == "12,345 rows in 3 batches, 62 rows/s, lag 7"
    assert summary(counted) == "0 rows in 0 batches, 0 rows/s, keeps 1 row in 2.0 KiB"
    assert summary(view) == "computed 1 time"


def test_events_are_lines_or_json_documents(capsys: pytest.CaptureFixture[str]) -> None:
    (kept, *_) = flows()
    Lines(as_json=False).happened(kept, "is started")
    Lines(as_json=True).happened(kept, "is started")
    plain, document = capsys.readouterr().out.splitlines()
    assert plain.endswith(" orders_kept is started")
    assert json.loads(document)["event"] == "is started" and json.loads(document)["lag"] == 7


def test_only_flows_that_have_gone_on_get_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_view, "SUMMARY_S", 0.0)
    lines = Lines(as_json=False)
    kept, counted, _ = flows()
    lines.look([kept, counted])
    lines.look([kept, counted])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(" orders_kept: 12,345 rows in 3 batches, 62 rows/s, lag 7")
