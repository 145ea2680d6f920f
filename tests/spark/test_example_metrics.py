"""The monitoring pipeline as its page says: generated, run until it has caught up, checked in plain Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.server import Server
from spark.example_page import ExamplePage

BEGIN = "--begin 1794000000"


@pytest.mark.timeout(1500)
def test_what_its_page_shows_is_so_under_both_runners(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("metrics_monitoring", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        alerts = page.run("moldau message consume alerts").splitlines()
        assert {without_times(line) for line in page.printed(1).splitlines()} <= set(
            map(without_times, alerts)
        )
        assert page.run_block(1) == page.printed(0), "under Spark's own runner"


def without_times(alert: str) -> tuple[str, str, float | None]:
    found = json.loads(alert)
    return found["host"], found["rule"], found.get("value")


@pytest.mark.timeout(900)
def test_a_second_run_goes_on_where_the_first_one_ended(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("metrics_monitoring", tmp_path, server.bootstrap_servers)
        page.run("moldau topic create host-metrics --partitions 3")
        page.run("moldau topic create alerts host-metrics-rejected")
        page.run(f"python generate.py {BEGIN} --records 1500")
        page.run("moldau pipeline run --once")
        page.run(f"python generate.py {BEGIN} --skip 1500 --records 1500")
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
    assert checked.count("as expected") == checked.count("\n") == 9
