"""Positions as users write them, and where they lie in a partition."""

from __future__ import annotations

from datetime import datetime

import pytest

from moldau.cli.errors import CliError, Exit
from moldau.cli.offsets import Bounds, Kind, Position, parse_position, place

NOW_MS = 1_785_492_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Position(Kind.BEGINNING)),
        ("Earliest", Position(Kind.BEGINNING)),
        ("end", Position(Kind.END)),
        ("latest", Position(Kind.END)),
        ("0", Position(Kind.OFFSET, 0)),
        ("1500", Position(Kind.OFFSET, 1500)),
        ("-10", Position(Kind.BEFORE_END, 10)),
        ("@1785492000000", Position(Kind.TIME, 1_785_492_000_000)),
        ("-90s", Position(Kind.TIME, NOW_MS - 90_000)),
        ("-1h30m", Position(Kind.TIME, NOW_MS - 5_400_000)),
        ("-250ms", Position(Kind.TIME, NOW_MS - 250)),
        ("-7d", Position(Kind.TIME, NOW_MS - 604_800_000)),
        ("-1w", Position(Kind.TIME, NOW_MS - 604_800_000)),
        ("2026-07-31T10:00:00+00:00", Position(Kind.TIME, 1_785_492_000_000)),
        ("2026-07-31T12:00:00.250+02:00", Position(Kind.TIME, 1_785_492_000_250)),
    ],
)
def test_a_position_is_a_word_an_offset_or_a_time(text: str, expected: Position) -> None:
    assert parse_position(text, NOW_MS) == expected


def test_a_time_without_a_zone_is_local() -> None:
    expected = round(datetime(2026, 7, 31, 10, 0).timestamp() * 1000)
    assert parse_position("2026-07-31T10:00") == Position(Kind.TIME, expected)


@pytest.mark.parametrize("text", ["", "now", "1h", "-1y", "-", "1.5", "--1", "31.7.2026", "@x"])
def test_anything_else_is_refused_with_what_can_be_written(text: str) -> None:
    with pytest.raises(CliError) as error:
        parse_position(text)
    assert error.value.code is Exit.USAGE
    assert "beginning" in error.value.hint


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(Kind.BEGINNING), 100),
        (Position(Kind.END), 150),
        (Position(Kind.OFFSET, 120), 120),
        (Position(Kind.OFFSET, 3), 100),
        (Position(Kind.OFFSET, 999), 150),
    ],
)
def test_a_position_is_kept_within_what_is_there(position: Position, expected: int) -> None:
    assert place(position, Bounds(100, 150)) == expected
