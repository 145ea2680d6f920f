"""What a run knows of its flows: progress, lag, rates, restarts, and how others read it."""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from moldau.spark.pipeline.metrics import MetricsServer, exposition
from moldau.spark.pipeline.progress import RATE_S, FlowProgress, State, lag
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.restarts import ONCE_FAILURES_MAX, PAUSE_S_MAX, Restarts
from moldau.spark.pipeline.state import AlreadyRunning, RunNote


def report(rows: int = 0, *, sources: Any = (), batch: bool = True, **more: Any) -> dict[str, Any]:
    durations = {"addBatch": 5, "triggerExecution": 40} if batch else {"triggerExecution": 1}
    return {
        "numInputRows": rows,
        "durationMs": durations,
        "sources": list(sources),
        "batchDuration": 40,
        **more,
    }


def topic(end: Any, latest: Any) -> dict[str, Any]:
    return {"endOffset": end, "latestOffset": latest}


def progress(name: str = "kept") -> FlowProgress:
    return FlowProgress(name, "orders_kept", "streaming table", "t/a.py:8")


def test_batches_and_rows_add_up_and_an_idle_report_counts_nothing() -> None:
    flow = progress()
    flow.take(report(10), now=0.0)
    flow.take(report(5), now=1.0)
    flow.take(report(batch=False), now=2.0)
    assert (flow.batches, flow.rows, flow.batch_ms) == (2, 15, 40)


def test_the_rate_is_counted_over_the_last_seconds_and_falls_to_nothing() -> None:
    flow = progress()
    flow.take(report(100), now=0.0)
    flow.take(report(50), now=5.0)
    flow.count_rate(6.0)
    assert flow.rows_per_s == 150 / RATE_S
    flow.count_rate(12.0)
    assert flow.rows_per_s == 50 / RATE_S
    flow.count_rate(60.0)
    assert flow.rows_per_s == 0.0


def test_a_batch_that_is_done_clears_the_error() -> None:
    flow = progress()
    flow.error = "no leader."
    flow.take(report(batch=False), now=0.0)
    assert flow.error == "no leader."
    flow.take(report(1), now=0.0)
    assert flow.error is None


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([topic({"a": {"0": 5, "1": 7}}, {"a": {"0": 9, "1": 7}})], 4),
        ([topic('{"a": {"0": 5}}', '{"a": {"0": 6}, "b": {"0": 3}}')], 4),
        ([topic(None, {"a": {"0": 6}})], 6),
        ([topic({"a": {"0": 9}}, {"a": {"0": 6}})], 0),
        ([topic({"version": 3}, {"version": 9})], None),
        ([topic("17", "18")], None),
        ([], None),
    ],
)
def test_lag_is_what_the_topics_have_and_the_flow_has_not_read(sources: Any, expected: int | None) -> None:
    assert lag(sources) == expected


def test_state_is_summed_over_operators() -> None:
    flow = progress()
    operators = [{"numRowsTotal": 2, "memoryUsedBytes": 100}, {"numRowsTotal": 3, "memoryUsedBytes": 50}]
    flow.take(report(1, stateOperators=operators), now=0.0)
    assert (flow.state_rows, flow.state_bytes) == (5, 150)


def test_the_document_is_json() -> None:
    flow = progress()
    flow.take(report(1), now=0.0)
    document = json.loads(json.dumps(flow.document()))
    assert document["state"] == "waiting" and document["rows"] == 1 and "_recent" not in document


def test_pauses_grow_to_a_bound_and_start_over_after_a_batch() -> None:
    restarts = Restarts()
    pauses = [restarts.failed() for _ in range(10)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses == sorted(pauses) and pauses[-1] == PAUSE_S_MAX
    restarts.batch_done()
    assert restarts.failed() == 1.0
    assert restarts.total == 11


def test_a_run_for_ever_never_gives_up_and_one_until_caught_up_does() -> None:
    restarts = Restarts()
    for _ in range(ONCE_FAILURES_MAX):
        assert not restarts.has_given_up(once=True)
        restarts.failed()
    assert restarts.has_given_up(once=True)
    assert not restarts.has_given_up(once=False)


def test_metrics_have_help_types_labels_and_no_value_that_is_not_known() -> None:
    flow = progress('a"b')
    flow.state = State.RUNNING
    flow.take(report(3), now=0.0)
    text = exposition("shop", [flow])
    assert "# TYPE moldau_pipeline_flow_rows_total counter\n" in text
    assert 'moldau_pipeline_flow_rows_total{pipeline="shop",flow="a\\"b",target="orders_kept"} 3\n' in text
    assert 'flow_running{pipeline="shop",flow="a\\"b",target="orders_kept"} 1\n' in text
    assert "flow_lag_records{" not in text


def test_metrics_are_served_over_http_and_nothing_else_is() -> None:
    server = MetricsServer("127.0.0.1", 0, lambda: "up 1\n")
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=30) as answer:
            assert (answer.read(), answer.headers["Content-Type"].split(";")[0]) == (b"up 1\n", "text/plain")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=30)
        assert refused.value.code == 404
    finally:
        server.close()


def note_in(folder: Path) -> RunNote:
    return RunNote(Project(folder, "spark-pipeline.yml", "shop", str(folder / "storage")))


def test_a_second_run_of_a_project_is_refused_with_the_note_of_the_first(tmp_path: Path) -> None:
    with note_in(tmp_path).held():
        note_in(tmp_path).write({"name": "shop"})
        assert note_in(tmp_path).is_held()
        with pytest.raises(AlreadyRunning) as refused, note_in(tmp_path).held():
            pass
    assert refused.value.note is not None and refused.value.note["name"] == "shop"
    assert not note_in(tmp_path).is_held()


def test_a_note_outlives_its_run_and_its_lock_does_not(tmp_path: Path) -> None:
    assert note_in(tmp_path).read() is None and not note_in(tmp_path).is_held()
    with note_in(tmp_path).held():
        note_in(tmp_path).write({"flows": [], "started": math.pi})
    note = note_in(tmp_path).read()
    assert note is not None and note["started"] == math.pi and note["pid"] > 0


def test_a_storage_elsewhere_keeps_the_note_with_the_project(tmp_path: Path) -> None:
    note = RunNote(Project(tmp_path, "spark-pipeline.yml", "shop", "s3a://bucket/shop"))
    assert note.folder == tmp_path / ".moldau"
