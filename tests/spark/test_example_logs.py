"""The log pipeline as its page says, and killed with -9 in the middle: every line is in the lake once."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.server import Server
from cluster.support import wait_until
from spark.example_page import ExamplePage

LINES = 6000
LINES_PER_BATCH = 200
KILLS = 2
DEADLINE_S = 180.0


@pytest.mark.timeout(1500)
def test_what_its_page_shows_is_so_under_both_runners(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("log_aggregation", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        by_spark, by_duckdb = (page.run(command) for command in page.commands(1))
        assert by_spark == by_duckdb
        assert without_dates(by_duckdb) == without_dates(page.printed(1))
        assert page.run_block(2) == page.printed(0), "under Spark's own runner"


def without_dates(text: str) -> list[list[str]]:
    return [
        [word for word in line.split() if "-" not in word and ":" not in word] for line in text.splitlines()
    ]


@pytest.mark.timeout(1200)
def test_a_run_that_is_killed_in_the_middle_and_started_again_keeps_every_line_once(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("log_aggregation", tmp_path, server.bootstrap_servers)
        page.run("moldau topic create service-logs --partitions 3")
        page.run(f"python generate.py --begin 1794000000 --lines {LINES}")
        page.environment["LINES_PER_BATCH"] = str(LINES_PER_BATCH)
        commits = 0
        for _ in range(KILLS):
            commits = kill_after_commit(page, commits + 1)
        assert commits * LINES_PER_BATCH < LINES, "it was killed in the middle"
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
    assert checked.count("as expected") == checked.count("\n") == 6


def kill_after_commit(page: ExamplePage, wanted: int) -> int:
    """Run for ever until the table of lines has so many commits, then kill all of it; how many it has then."""
    log = page.folder / "lake" / "lines" / "_delta_log"

    def commits() -> int:
        return len(list(log.glob("*.json"))) - 1 if log.is_dir() else 0  # the first one makes the table

    with open(page.folder / "killed.log", "wb") as output:
        run = subprocess.Popen(
            ["moldau", "pipeline", "run"],
            cwd=page.folder,
            env=page.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_until(lambda: run.poll() is not None or commits() >= wanted, DEADLINE_S)
        assert run.poll() is None, (page.folder / "killed.log").read_text()
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    return commits()
