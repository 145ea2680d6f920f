"""The routing pipeline as its page says: generated, run until it has caught up, checked in plain Python."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bench.server import Server
from spark.example_page import ExamplePage

BEGIN = "--begin 1794000000"
CREATE = 3
"""Commands of the page that create topics."""


@pytest.mark.timeout(1500)
def test_what_its_page_shows_is_so_under_both_runners(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("routing_enriching", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        assert page.run_block(1) == page.printed(0), "under Spark's own runner"


@pytest.mark.timeout(900)
def test_a_second_run_goes_on_with_customers_as_they_are_then(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("routing_enriching", tmp_path, server.bootstrap_servers)
        for command in page.commands(0)[:CREATE]:
            page.run(command)
        page.run(f"python generate.py {BEGIN} --records 3000")
        page.run("moldau pipeline run --once")
        page.run(f"python generate.py {BEGIN} --skip 3000 --records 2000")
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
    assert checked.count("as expected") == checked.count("\n") == 9
