"""Searching an index finds what going through all of it finds, and reads little of a long one."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.index import GUESSED_ENTRIES_MIN, OFFSET_ENTRY, Index
from moldau.runtime.ports import File


class Entries:
    """The file of an index, with the reads counted."""

    path = "index"

    def __init__(self, entry: Struct, entries: list[tuple[int, int]]) -> None:
        self.content = b"".join(entry.pack(*one) for one in entries)
        self.reads = 0

    def read(self, file: File, length: int, position: int) -> bytes:
        self.reads += 1
        return self.content[position : position + length]


class Opened:
    def __init__(self, file: Entries) -> None:
        self.file = file

    def open(self, path: str, *, create: bool = False) -> Entries:
        return self.file


def index_of(entries: list[tuple[int, int]]) -> tuple[Index, Entries]:
    file = Entries(OFFSET_ENTRY, entries)
    return Index(Opened(file), "index", OFFSET_ENTRY, len(entries)), file  # type: ignore[arg-type]


def spread(steps: list[int], count: int) -> list[tuple[int, int]]:
    """Entries that ascend by steps which come again and again."""
    found = array("q", [0])
    for number in range(count - 1):
        found.append(found[-1] + steps[number % len(steps)])
    return [(offset, 3 * offset) for offset in found]


lengths = st.sampled_from([1, 511, 513, GUESSED_ENTRIES_MIN, GUESSED_ENTRIES_MIN + 1, 20_000])


@given(st.lists(st.integers(1, 5_000), min_size=1, max_size=40), lengths, st.data())
def test_a_search_finds_the_last_entry_that_is_not_above(
    steps: list[int], count: int, data: st.DataObject
) -> None:
    entries = spread(steps, count)
    index, file = index_of(entries)
    keys = [one[0] for one in entries]
    for field, scale in ((0, 1), (1, 3)):
        for key in data.draw(st.lists(st.integers(-1, keys[-1] + 2), min_size=1, max_size=5)):
            at = bisect_right(keys, key)
            expected = entries[at - 1] if at else None
            assert index.floor(key * scale, file.read, field) == expected


@pytest.mark.parametrize("shape", ["late", "early"])
def test_an_index_that_is_spread_very_unevenly_is_searched_as_well(shape: str) -> None:
    steps = [1] * 19_999 + [2**29]
    entries = spread(steps if shape == "late" else steps[::-1], 20_001)
    index, file = index_of(entries)
    for at in (0, 1, 9_000, 19_998, 19_999, 20_000):
        file.reads = 0
        assert index.floor(entries[at][0], file.read) == entries[at]
        assert file.reads <= 11


def test_a_long_index_that_is_spread_evenly_takes_three_reads() -> None:
    index, file = index_of(spread([16], 65_536))
    index.floor(5, file.read)
    for key in range(20_000, 1_000_000, 70_001):
        file.reads = 0
        assert index.floor(key, file.read) == (key // 16 * 16, key // 16 * 48)
        assert file.reads == 3


def test_what_is_cut_off_is_not_guessed_from(tmp_path: Path) -> None:
    entries = spread([7], 20_000)
    index, file = index_of(entries)
    assert index.floor(70, file.read) == entries[10]
    index._written = index.count = 10_000
    file.content = file.content[: 10_000 * OFFSET_ENTRY.size]
    assert index.floor(10**6, file.read) == entries[9_999]
    assert index.floor(7 * 9_000, file.read) == entries[9_000]
