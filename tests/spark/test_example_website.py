"""The website-activity pipeline as its page says: generated, run until it has caught up, checked in plain Python."""

from __future__ import annotations

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
        page = ExamplePage("website_activity", tmp_path, server.bootstrap_servers)
        assert page.run_block(0) == page.printed(0)
        drawn(page, "storage")
        assert page.run_block(1) == page.printed(0), "under Spark's own runner"
        drawn(page, "spark-warehouse")


def drawn(page: ExamplePage, tables: str) -> None:
    assert page.run(f"python plot.py {tables}.svg --tables {tables}") == f"drawn: {tables}.svg\n"
    picture = (page.folder / f"{tables}.svg").read_text()
    assert "<svg" in picture and "page views" in picture and "/checkout" in picture


@pytest.mark.timeout(900)
def test_a_second_run_goes_on_where_the_first_one_ended(
    requires_spark: None, new_server: Callable[..., Server], tmp_path: Path
) -> None:
    with new_server() as server:
        page = ExamplePage("website_activity", tmp_path, server.bootstrap_servers)
        page.run("moldau topic create page-views --partitions 3")
        page.run("moldau topic create page-views-per-minute")
        page.run(f"python generate.py {BEGIN} --views 3000")
        page.run("moldau pipeline run --once")
        page.run(f"python generate.py {BEGIN} --views 3000 --skip 3000")  # the next ten minutes
        page.run("moldau pipeline run --once")
        checked = page.run("python check.py")
    assert checked.count("as expected") == checked.count("\n") == 6
