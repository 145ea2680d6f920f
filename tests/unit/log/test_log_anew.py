"""Logs of which a crash, or a deletion, has left nothing: they go on at their start, and close whole."""

from __future__ import annotations

import random

from log_world import NOW_MS, PARTITION, World, append, batch, config

from moldau.base.errors import ErrorCode
from moldau.log import names
from moldau.log.inspect.files import FolderState
from moldau.log.inspect.findings import Seen, Severity
from moldau.log.inspect.folder import verify_log


class LoseAll(random.Random):
    """A crash after which nothing is left that was not synced."""

    def randrange(self, *_: object) -> int:  # type: ignore[override]
        return 0


async def test_a_log_that_lost_all_its_records_begins_anew_at_its_start() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"))
    log.delete_records_before(1)
    await world.manager.write_checkpoints()
    world.disk.remove(f"{log.folder}/leader-epoch-checkpoint")  # or never came to be
    again = await world.reopen(clean=False, rng=LoseAll())
    assert (again.failure, again.log_start_offset, again.next_offset) == (None, 1, 1)
    assert append(again, batch(b"b")).error is ErrorCode.none


async def test_a_log_whose_records_were_all_deleted_closes_with_whole_indexes() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"))
    await log.flush()
    log.delete_records_before(1)
    await world.manager.close()
    standing = FolderState.of(world.disk, "/data").standing(PARTITION)  # type: ignore[arg-type]
    found = verify_log(world.disk, log.folder, standing, Seen())  # type: ignore[arg-type]
    assert [finding for finding in found if finding.severity is Severity.DAMAGE] == []


async def test_old_entries_of_indexes_without_their_segment_do_not_show_behind_new_ones() -> None:
    world = World(config(index_interval_bytes="0"))
    log = await world.new_log()
    for number in range(9):
        append(log, batch(b"v", timestamp=NOW_MS + 1000 + number))
    await world.manager.close()
    world.disk.remove(f"{log.folder}/{names.file_name(0, names.LOG)}")
    log = await world.reopen(clean=True)
    assert log.next_offset == 0
    for number in range(3):
        append(log, batch(b"v", timestamp=NOW_MS + number))
    log = await world.reopen(clean=True)
    assert log.segments.active.max_timestamp == NOW_MS + 2
    assert log.segments.active.offsets.count == 2
