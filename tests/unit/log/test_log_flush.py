"""Flushing: one sync under way, everyone who waits shares the next, and a failed one never counts."""

from __future__ import annotations

import asyncio
import errno
import traceback

import pytest
from log_world import NOW_MS, PARTITION, World, append, batch, config, settle

from moldau.log.log import Log

LOG_FILE = "00000000000000000000.log"


async def new_log(world: World) -> Log:
    """A log whose creation is already on the disk."""
    log = await world.new_log()
    append(log, batch(b"first"))
    await log.flush()
    world.disk.calls.clear()
    return log


async def test_one_sync_is_under_way_and_later_requests_share_the_next() -> None:
    world = World()
    log = await new_log(world)
    world.tasks.held = True
    done: list[str] = []
    append(log, batch(b"a"))
    log.flush_then(lambda error: done.append("a"))
    await settle()
    append(log, batch(b"b"))
    log.flush_then(lambda error: done.append("b"))
    append(log, batch(b"c"))
    log.flush_then(lambda error: done.append("c"))
    await settle()
    assert len(world.tasks.waiting) == 1
    world.tasks.release()
    await settle()
    assert done == ["a"], "what came after the sync began must wait for the next"
    assert log.last_flushed_offset == 2
    world.tasks.release()
    await settle()
    assert done == ["a", "b", "c"]
    assert log.last_flushed_offset == 4
    assert world.disk.calls["sync", LOG_FILE] == 2


async def test_flush_messages_says_when_an_answer_must_wait() -> None:
    log = await new_log(World(config(flush_messages="3")))
    assert [append(log, batch(b"x")).flush_due for _ in range(3)] == [False, False, True]
    await log.flush()
    assert append(log, batch(b"x", b"y", b"z")).flush_due


async def test_a_retry_waits_for_the_sync_of_the_first_attempt() -> None:
    log = await new_log(World(config(flush_messages="1")))
    data = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    assert append(log, data).flush_due
    assert append(log, data).flush_due
    await log.flush()
    assert not append(log, data).flush_due


async def test_flush_ms_syncs_without_anyone_asking() -> None:
    world = World(config(flush_ms="1000"))
    log = await new_log(world)
    append(log, batch(b"a"))
    await world.tasks.advance(0.9)
    assert log.last_flushed_offset == 1
    await world.tasks.advance(0.1)
    assert log.last_flushed_offset == 2


async def test_without_a_policy_the_operating_system_decides() -> None:
    world = World()
    log = await new_log(world)
    assert not append(log, batch(b"a")).flush_due
    await settle()
    assert world.disk.calls["sync", LOG_FILE] == 0


async def test_a_failed_sync_fails_the_log_for_good() -> None:
    world = World()
    log = await new_log(world)
    append(log, batch(b"a"))
    world.disk.failing["sync", ".log"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        await log.flush()
    world.disk.failing.clear()
    assert log.last_flushed_offset == 1
    for _ in range(2):
        with pytest.raises(OSError, match="injected"):
            await log.flush()
        with pytest.raises(OSError, match="injected"):
            append(log, batch(b"b"))
        with pytest.raises(OSError, match="injected"):
            log.read(0, 100, below_offset=2, whole_first_batch=True)
    assert [failed for failed, _ in world.failures] == [log]


async def test_a_failed_log_does_not_grow_with_those_who_ask_for_it() -> None:
    world = World()
    log = await new_log(world)
    log.fail(OSError(errno.EIO, "injected"))
    for _ in range(20):
        with pytest.raises(OSError, match="injected") as caught:
            log.read(0, 100, below_offset=2, whole_first_batch=True)
        assert len(list(traceback.walk_tb(caught.value.__traceback__))) < 5


async def test_everyone_who_waits_for_a_failing_sync_gets_the_error() -> None:
    world = World()
    log = await new_log(world)
    world.tasks.held = True
    world.disk.failing["sync", ".log"] = errno.EIO
    results: list[OSError | None] = []
    append(log, batch(b"a"))
    log.flush_then(results.append)
    await settle()
    log.flush_then(results.append)
    world.tasks.release()
    await settle()
    assert [error and error.errno for error in results] == [errno.EIO, errno.EIO]


async def test_a_rolled_segment_is_synced_with_its_indexes_before_the_recovery_point_passes_it() -> None:
    world = World(config(segment_bytes=str(2 * len(batch(b"x"))), index_interval_bytes="1"))
    log = await world.new_log()
    append(log, batch(b"x"))
    append(log, batch(b"x"))
    world.tasks.held = True
    append(log, batch(b"x"))
    await settle()
    assert log.last_flushed_offset == 0
    world.tasks.held = False
    world.tasks.release()
    await settle()
    assert log.last_flushed_offset == 2
    for suffix in (".log", ".index", ".timeindex"):
        assert world.disk.calls["sync", "0" * 20 + suffix] == 1
    assert world.disk.calls["sync", f"{2:020d}.log"] == 0, "the active segment is left to the system"


async def test_leader_epochs_are_on_the_disk_before_the_records_count_as_flushed() -> None:
    world = World()
    log = await new_log(world)
    order: list[str] = []
    happens = world.disk.happens

    def note(operation: str, path: str) -> None:
        if operation in ("sync", "write_atomic"):
            order.append(path.rsplit("/", 1)[-1])
        happens(operation, path)

    world.disk.happens = note  # type: ignore[method-assign]
    world.tasks.held = True
    append(log, batch(b"a"), epoch=5)
    log.flush_then(lambda error: None)
    await settle()
    world.tasks.held = False
    world.tasks.release()
    await settle()
    assert order == ["leader-epoch-checkpoint", LOG_FILE]
    assert world.disk.files[f"{log.folder}/leader-epoch-checkpoint"] == b"0\n2\n0 0\n5 1\n"


async def test_closing_leaves_complete_indexes_a_snapshot_and_nothing_unsynced() -> None:
    world = World()
    log = await new_log(world)
    append(log, batch(b"a", timestamp=NOW_MS + 5, producer_id=3, producer_epoch=0, base_sequence=0))
    await log.close()
    for name in world.disk.list(log.folder):
        path = f"{log.folder}/{name}"
        assert world.disk.durable.get(path, b"") == bytes(world.disk.files[path]), name
    assert world.disk.exists(f"{log.folder}/{2:020d}.snapshot")
    assert log.last_flushed_offset == 2
    with pytest.raises(OSError, match="closed"):
        append(log, batch(b"b"))


async def test_nothing_is_appended_behind_what_a_close_has_begun_to_write() -> None:
    """The next start would take the end of the snapshot for the end of the log."""
    world = World()
    log = await world.new_log()
    append(log, batch(b"before"))
    world.tasks.held = True
    closing = asyncio.ensure_future(world.manager.close())
    await settle()
    with pytest.raises(OSError, match="closed"):
        append(log, batch(b"late"))
    world.tasks.held = False
    world.tasks.release()
    await closing
    log = (await world.open()).logs[PARTITION]
    assert log.next_offset == 1
    assert append(log, batch(b"after")).base_offset == 1
