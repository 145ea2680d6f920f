"""Tables: drawn on terminals of any width, plain in pipes."""

from __future__ import annotations

import click
import pytest

from moldau.cli.output import Column, print_table

COLUMNS = [
    Column("topic", style="bold"),
    Column("partitions", right=True),
    Column("first offset", right=True),
    Column("oldest", fold=False),
    Column("messages", right=True),
]
ROWS = [["orders", "12", "1234567890", "2026-11-16 02:51", "987,654"], ["a" * 40, "1", "0", "-", "7"]]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def drawn(capsys: pytest.CaptureFixture[str]) -> str:
    print_table(COLUMNS, ROWS)
    return click.unstyle(capsys.readouterr().out)


@pytest.mark.parametrize("width", [20, 40, 60, 64, 68, 72, 76, 80])
def test_titles_and_numbers_stay_whole_on_narrow_terminals(
    width: int, terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.setenv("COLUMNS", str(width))
    words = drawn(capsys).split()
    for word in (
        "TOPIC",
        "PARTITIONS",
        "OFFSET",
        "OLDEST",
        "MESSAGES",
        "orders",
        "1234567890",
        "02:51",
        "987,654",
    ):
        assert word in words, (width, words)


def test_long_names_are_folded_where_the_rest_fits(
    terminal: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.setenv("COLUMNS", "76")
    assert max(map(len, drawn(capsys).splitlines())) <= 76


def test_a_pipe_gets_aligned_columns_uncut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(COLUMNS, ROWS)
    header, first, second = capsys.readouterr().out.splitlines()
    assert header.index("PARTITIONS") + len("PARTITIONS") == first.index("12") + 2
    assert second.startswith("a" * 40)
