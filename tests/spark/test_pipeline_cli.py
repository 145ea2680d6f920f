"""`moldau pipeline` as a person uses it: a new project over real topics, checked, run, watched, stopped, replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.server import MoldauServer
from spark.pipelines import table
from spark.source_topics import Topics

DEADLINE_S = 180.0
MOLDAU = (sys.executable, "-c", "from moldau.cli import main; main()")
ORDERS = [{"item": item, "price": price, "time": f"2026-11-18T10:0{minute}:00Z"} for item, price, minute in [
    ("tea", 3.5, 0), ("pot", 30.0, 0), ("tea", 4.0, 1), ("tea", 4.5, 9)
]]  # fmt: skip


@pytest.fixture(scope="module")
def topics(requires_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topics]:
    with MoldauServer(tmp_path_factory.mktemp("broker")) as server:
        yield Topics(server.bootstrap_servers)


def moldau(*arguments: str, timeout_s: float = DEADLINE_S) -> subprocess.CompletedProcess[str]:
    command = [*MOLDAU, "pipeline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_new_project_is_checked_run_watched_stopped_and_replayed(topics: Topics, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    made = moldau("new", str(folder), "--bootstrap", topics.bootstrap_servers)
    assert made.returncode == 0, made.stderr

    checked = moldau("check", str(folder))
    assert checked.returncode == 1
    assert checked.stdout.splitlines()[0] == "transformations/orders.py:30: there is no topic 'orders'."
    assert "`moldau topic create orders` makes it." in checked.stdout
    assert not (folder / "storage").exists()

    topics.create("orders", 2)
    topics.create("orders-per-minute")
    topics.fill("orders", map(json.dumps, ORDERS[:3]))
    topics.fill("orders", ["no json", json.dumps(ORDERS[3])], 1)
    run_and_stop(folder)
    assert_replays(folder, topics)


def run_and_stop(folder: Path) -> None:
    arguments = [*MOLDAU, "pipeline", "run", str(folder), "--metrics-port", "0"]
    log = folder / "run.log"
    with log.open("w") as out:
        run = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    try:
        status = wait_for_status(folder, run, log)
        metrics = urllib.request.urlopen(status["metrics"], timeout=30).read().decode()
        assert (
            'moldau_pipeline_flow_rows_total{pipeline="shop",flow="orders_kept",target="orders_kept"} 5'
            in metrics
        )
        assert 'flow_lag_records{pipeline="shop",flow="orders_kept",target="orders_kept"} 0' in metrics
        second = moldau("run", str(folder))
        assert second.returncode == 5 and f"is running already as process {run.pid}." in second.stderr
        stopped = moldau("stop", str(folder), "--timeout", str(DEADLINE_S))
        assert (stopped.returncode, stopped.stdout) == (0, "shop is stopped.\n"), log.read_text()
        assert run.wait(DEADLINE_S) == 0
    finally:
        run.kill()
        run.wait()
    text = log.read_text()
    assert "Traceback" not in text and "WARN" not in text, text
    assert "orders_kept is started" in text and "count_by_minute is stopped" in text
    after = moldau("status", str(folder))
    assert after.returncode == 0 and "shop is not running: it ended at" in after.stdout
    assert moldau("stop", str(folder)).returncode == 4


def wait_for_status(folder: Path, run: subprocess.Popen[Any], log: Path) -> dict[str, Any]:
    """Once both flows have done their work."""
    deadline = time.monotonic() + DEADLINE_S
    path = folder / "storage/_moldau/run.json"
    while time.monotonic() < deadline and run.poll() is None:
        if path.exists():
            note: dict[str, Any] = json.loads(path.read_text())
            flows = {flow["flow"]: flow for flow in note["flows"]}
            is_counted = flows["count_by_minute"]["rows"] >= 4 and flows["orders_by_item"]["batches"] > 0
            if flows["orders_kept"]["rows"] == 5 and is_counted:
                shown = moldau("status", str(folder), "--json")
                assert shown.returncode == 0, shown.stdout
                status: dict[str, Any] = json.loads(shown.stdout)
                assert status["state"] == "running" and status["pid"] == run.pid
                return status
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def assert_replays(folder: Path, topics: Topics) -> None:
    from moldau.spark.pipeline.project import load_project

    project = load_project(folder)
    assert [row["price"] for row in table(project, "orders_kept")] == [30.0, 3.5, 4.0, 4.5]
    before = os.listdir(folder / "storage/orders_kept")
    replayed = moldau(
        "replay", str(folder), "--output", "orders_kept", "--into", "again", "--from-offset", "1"
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert [row["price"] for row in table(project, "again")] == [30.0, 4.0, 4.5]
    assert os.listdir(folder / "storage/orders_kept") == before
    twice = moldau("replay", str(folder), "--output", "orders_kept", "--into", "again")
    assert twice.returncode == 1 and "exists already." in twice.stdout


def test_ctrl_c_ends_a_run_without_a_traceback_and_a_killed_one_is_told_apart(
    requires_spark: None, tmp_path: Path
) -> None:
    (tmp_path / "t.py").write_text(
        "from pyspark import pipelines as dp\n"
        "@dp.table\ndef ticks():\n    return spark.readStream.format('rate').load()\n"
    )
    spec = "name: ticks\nstorage: storage\nlibraries: [{glob: {include: t.py}}]\n"
    (tmp_path / "spark-pipeline.yml").write_text(spec)
    for number, code, words in (
        (signal.SIGINT, 0, "ticks is not running: it ended at"),
        (signal.SIGKILL, -9, "was killed"),
    ):
        arguments = [*MOLDAU, "pipeline", "run", str(tmp_path), "--json"]
        with subprocess.Popen(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        ) as run:
            assert run.stdout is not None and run.stderr is not None
            assert json.loads(run.stdout.readline())["event"] == "is started"
            os.kill(run.pid, number)
            _, errors = run.communicate(timeout=DEADLINE_S)
        assert (run.returncode, errors) == (code, "")
        status = moldau("status", str(tmp_path))
        assert words in status.stdout and status.returncode == (0 if code == 0 else 1)
