"""The fleet pipeline as its page says: generated, run until it has caught up, checked in plain Python."""

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
        page = ExamplePage("fleet_positions", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        events = [json.loads(line) for line in page.run("moldau message consume fleet-events").splitlines()]
        shown = json.loads(page.printed(1))
        assert shown.keys() in [event.keys() for event in events]
        assert page.run_block(1) == page.printed(0), "under Spark's own runner"


@pytest.mark.timeout(900)
def test_a_second_run_goes_on_where_the_first_one_ended(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("fleet_positions", tmp_path, server.bootstrap_servers)
        page.run("moldau topic create positions --partitions 3")
        page.run("moldau topic create fleet-events")
        page.run(f"python generate.py {BEGIN} --records 3000")
        page.run("moldau pipeline run --once")
        page.run(f"python generate.py {BEGIN} --skip 3000 --records 3000")
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
    assert checked.count("as expected") == checked.count("\n") == 7
