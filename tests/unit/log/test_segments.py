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
