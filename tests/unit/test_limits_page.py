"""docs/limits.md names every limit with the default that it has."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from moldau.base import limits
from moldau.config.table import BROKER_KEYS, TOPIC_KEYS

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
CONSTANTS = {name: value for name, value in vars(limits).items() if name.isupper()}
UNITS = {1 << 30: "GB", 1 << 20: "MB", 1 << 10: "KB"}


def rows() -> list[tuple[str, str]]:
    """Each name in a table of the page, with the default beside it."""
    found: list[tuple[str, str]] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if len(cells) == 5 and (names := re.findall(r"`([^`]+)`", cells[1])):
            assert cells[1] == ", ".join(f"`{name}`" for name in names), cells[1]
            found += zip(names, cells[2].split(", "), strict=True)
    return found


def default_of(name: str) -> int | float:
    if name in CONSTANTS:
        return CONSTANTS[name]
    if name.rpartition(".")[2].isupper():
        module, _, constant = name.rpartition(".")
        value: int | float = getattr(import_module(f"moldau.{module}"), constant)
        return value
    key = BROKER_KEYS.get(name) or TOPIC_KEYS[name]
    return int(key.default)


def shown(name: str, value: int | float) -> str:
    """As the page shows it."""
    words = re.split(r"[._]", name.lower())
    if "s" in words or words[-1] == "ms":
        seconds = value / 1000 if words[-1] == "ms" else value
        if value >= 2**62:
            return "2^63-1"
        return f"{seconds:,.0f} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
    if "bytes" in words:
        for size, unit in UNITS.items():
            if value >= size and value % size == 0:
                return f"{value // size:g} {unit}"
    return "2^31-1" if value == 2**31 - 1 else f"{value:,}"


@pytest.mark.parametrize(("name", "default"), rows())
def test_the_page_shows_the_default_that_a_limit_has(name: str, default: str) -> None:
    assert default == shown(name, default_of(name))


def test_every_constant_is_on_the_page_once() -> None:
    assert sorted(name for name, _ in rows() if name in CONSTANTS) == sorted(CONSTANTS)
