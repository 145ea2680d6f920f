"""A swap is not decided for segments that are not there: the old ones would go without any in their place."""

from __future__ import annotations

import pytest
from log_world import MemoryDisk

from moldau.log import names
from moldau.log.swap import SUFFIXES, decide_swap, undo_swap

FOLDER = "/data/topic-0"


@pytest.mark.parametrize("missing", [0, 40])
def test_a_swap_without_the_data_of_a_new_segment_is_given_up(missing: int) -> None:
    disk = MemoryDisk()
    for base_offset in (0, 40):
        for suffix in SUFFIXES:
            disk.open(f"{FOLDER}/{names.file_name(base_offset, suffix + names.CLEANED)}", create=True)
    disk.remove(f"{FOLDER}/{names.file_name(missing, names.LOG + names.CLEANED)}")

    with pytest.raises(FileNotFoundError):
        decide_swap(disk, FOLDER, [0, 40])  # type: ignore[arg-type]
    undo_swap(disk, FOLDER, [0, 40])  # type: ignore[arg-type]
    assert disk.list(FOLDER) == []
