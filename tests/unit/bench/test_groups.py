"""Members of the benchmark behave as clients do, and a group that has not come together has no reading."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import groups
from bench.group_members import Roll, evenly_dealt, in_one_generation
from bench.measure import WorkNotDone
from bench.server import MoldauServer

linux_only = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="It reads the kernel's CPU clocks."
)


class Caller:
    """A member, as far as the roll sees it."""

    standing: Any = None


def calls(agrees: Any, wanted: int, *standings: tuple[str, Any]) -> bool:
    """Whether the roll is complete once these members have called, one after the other."""

    async def called() -> bool:
        roll = Roll(agrees)
        complete = roll.complete(wanted)
        members: dict[str, Any] = {}
        for name, standing in standings:
            member = members.setdefault(name, Caller())
            member.standing = standing
            roll.heard(member)
        return complete.done()

    return asyncio.run(called())


def test_a_classic_group_is_complete_when_all_are_in_one_generation() -> None:
    assert calls(in_one_generation, 2, ("a", 1), ("b", 1))
    assert calls(in_one_generation, 2, ("a", 1), ("b", 2), ("a", 2))


def test_a_classic_group_is_not_complete_before() -> None:
    assert not calls(in_one_generation, 2, ("a", 1))
    assert not calls(in_one_generation, 2, ("a", 1), ("b", 2))


@pytest.mark.parametrize(
    ("standings", "complete"),
    [
        (((3, 2), (3, 1)), True),
        (((3, 2), (2, 1)), False),  # in two epochs
        (((3, 2), (3, 0)), False),  # a partition is not given out
        (((3, 3), (3, 0)), False),  # not evenly
    ],
)
def test_a_consumer_group_is_complete_when_all_partitions_are_dealt_out_evenly(
    standings: tuple[tuple[int, int], tuple[int, int]], complete: bool
) -> None:
    assert calls(evenly_dealt(3), 2, *zip("ab", standings, strict=True)) is complete


@linux_only
def test_both_kinds_of_group_come_together_and_many_groups_commit(tmp_path: Path) -> None:
    with MoldauServer(tmp_path, groups.GATHERING) as server:
        for load in (groups.classic_group, groups.consumer_group):
            readings = {reading.name: reading.value for reading in load(server, 3)}
            assert len(readings) == 5
            assert all(value > 0 for value in readings.values())
        assert len(list(groups.many_groups(server, 5))) == 8


@linux_only
def test_a_group_that_may_not_grow_has_no_reading(tmp_path: Path) -> None:
    with (
        MoldauServer(tmp_path, {**groups.GATHERING, "group.max.size": 3}) as server,
        pytest.raises(WorkNotDone, match="group_max_size_reached"),
    ):
        list(groups.classic_group(server, 3))
