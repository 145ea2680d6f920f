"""The list of a log's segments: what it knows of those that are closed, over roll and removal."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, World, append, batch, config

from moldau.base.errors import ErrorCode
from moldau.log.index import read_waiting
from moldau.log.segment import Segment

SIZE = len(batch(b"0"))


@pytest.mark.parametrize("is_reopened", [False, True], ids=["as written", "after a restart"])
async def test_a_segment_that_becomes_the_active_one_again_knows_its_newest_record(is_reopened: bool) -> None:
    world = World(config(segment_bytes=str(SIZE)))
    log = await world.new_log()
    for number in range(2):
        assert append(log, batch(b"%d" % number, timestamp=NOW_MS + number)).error is ErrorCode.none
    if is_reopened:
        log = await world.reopen(clean=True)
    segments = log.segments
    assert segments.bases == [0, 1]
    assert segments.remove_last() == 1
    assert (segments.active.max_timestamp, segments.active.offset_of_max_timestamp) == (NOW_MS, 0)

    segments.begin(Segment.new(world.disk, log.folder, 1, NOW_MS))
    assert segments.max_timestamp_of(0, read_waiting) == NOW_MS


async def test_the_size_of_a_log_is_told_whatever_was_told_before_and_closed_segments_are_looked_at_once() -> (
    None
):
    world = World(config(segment_bytes=str(SIZE)))
    log = await world.new_log()
    looked_at: list[str] = []
    world.disk.size = lambda path, size=world.disk.size: looked_at.append(path) or size(path)  # type: ignore[method-assign, func-returns-value, assignment, misc]
    for number in range(4):
        append(log, batch(b"%d" % number, timestamp=NOW_MS + number))
        assert log.size_bytes() == (number + 1) * SIZE
    assert len(looked_at) == 3
    log.segments.remove_last()
    assert log.size_bytes() == 3 * SIZE
    log.segments.remove_first()
    assert log.size_bytes() == 2 * SIZE
    log.segments.begin(Segment.new(world.disk, log.folder, 3, NOW_MS))
    assert log.size_bytes() == 2 * SIZE
