"""Truncation: a log is cut off at an offset, with its indexes, producers and epochs, and stays so after a crash."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest
from log_world import NOW_MS, PARTITION, World, append, batch, config, read_all

from moldau.base.errors import ErrorCode
from moldau.log.inspect.files import FolderState
from moldau.log.inspect.findings import Finding, Seen, Severity
from moldau.log.inspect.folder import verify_log
from moldau.log.log import Log

SIZE = len(batch(b"00"))


async def filled(world: World, count: int, *, producer_id: int = 7) -> Log:
    """So many batches of one record each, of one idempotent producer."""
    log = await world.new_log()
    for number in range(count):
        write(log, number, producer_id)
    await log.flush()
    return log


def write(log: Log, sequence: int, producer_id: int = 7, *, epoch: int = 0) -> None:
    data = batch(
        f"{sequence:02d}".encode(),
        timestamp=NOW_MS + sequence,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )
    assert append(log, data, epoch=epoch).error is ErrorCode.none


def three_segments() -> World:
    return World(config(segment_bytes=str(3 * SIZE), index_interval_bytes="1"))


async def truncate(world: World, log: Log, offset: int) -> None:
    await log.truncate_to(offset, world.manager.write_checkpoints_of)


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log, max_bytes=SIZE)]


def names(*numbers: int) -> list[bytes | None]:
    return [f"{number:02d}".encode() for number in numbers]


def damage(world: World, log: Log) -> list[Finding]:
    standing = FolderState.of(world.disk, "/data").standing(PARTITION)  # type: ignore[arg-type]
    found = verify_log(world.disk, log.folder, standing, Seen())  # type: ignore[arg-type]
    return [finding for finding in found if finding.severity is not Severity.NOTE]


@pytest.mark.parametrize("offset", range(10))
async def test_what_lies_behind_the_offset_is_gone_and_the_log_goes_on_there(offset: int) -> None:
    world = three_segments()
    log = await filled(world, 9)
    await truncate(world, log, offset)
    assert (log.log_start_offset, log.next_offset) == (0, offset)
    assert values(log) == names(*range(offset))
    write(log, offset)
    assert values(log) == names(*range(offset + 1))
    assert (await log.find_max_timestamp() or (0, 0))[:2] == (NOW_MS + offset, offset)
    again = await world.reopen(clean=True)
    assert values(again) == names(*range(offset + 1))
    assert damage(world, again) == []


@pytest.mark.parametrize("offset", range(9))
async def test_a_cut_survives_a_power_cut_right_after_it(offset: int) -> None:
    world = three_segments()
    log = await filled(world, 9)
    await truncate(world, log, offset)
    again = await world.reopen(clean=False, rng=random.Random(offset))
    assert values(again) == names(*range(offset))
    assert damage(world, again) == []


async def test_a_batch_that_reaches_over_the_offset_goes_whole() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a", b"b"))
    append(log, batch(b"c", b"d", b"e"))
    await truncate(world, log, 4)
    assert (log.next_offset, values(log)) == (2, [b"a", b"b"])
    assert world.manager.logs[PARTITION].last_flushed_offset == 2


async def test_the_recovery_point_is_checkpointed_before_anything_is_cut_off() -> None:
    world = three_segments()
    log = await filled(world, 9)
    await world.manager.write_checkpoints()
    seen = []

    async def checkpoint(of: Log) -> None:
        await world.manager.write_checkpoints_of(of)
        seen.append((values(log), world.disk.read("/data/recovery-point-offset-checkpoint").split()[-1]))

    await log.truncate_to(4, checkpoint)
    assert seen == [(names(*range(9)), b"4")]


async def test_no_flush_raises_the_recovery_point_while_a_cut_is_under_way() -> None:
    world = three_segments()
    log = await filled(world, 9)

    async def checkpoint(of: Log) -> None:
        await log.flush()
        assert log.last_flushed_offset == 4

    await log.truncate_to(4, checkpoint)
    assert log.last_flushed_offset == 4


async def test_nothing_is_cut_off_where_the_checkpoint_cannot_be_written() -> None:
    world = three_segments()
    log = await filled(world, 9)
    world.disk.failing["write_atomic", "checkpoint"] = errno.ENOSPC
    with pytest.raises(OSError, match="injected"):
        await truncate(world, log, 4)
    assert values(log) == names(*range(9))
    world.disk.failing.clear()
    await log.flush()
    assert log.last_flushed_offset == 9
    await truncate(world, log, 4)
    assert values(log) == names(*range(4))


async def test_a_cut_that_fails_half_way_leaves_a_beginning_of_the_log() -> None:
    world = three_segments()
    log = await filled(world, 9)
    world.disk.failing["rename", "3.log"] = errno.EACCES
    with pytest.raises(OSError, match="injected"):
        await truncate(world, log, 1)
    assert values(log) == names(*range(6))
    world.disk.failing.clear()
    await truncate(world, log, 1)
    assert values(log) == names(0)


@pytest.mark.parametrize("offset", range(1, 9))
async def test_producers_are_what_they_were_at_the_cut(offset: int) -> None:
    world = three_segments()
    log = await filled(world, 9)
    await truncate(world, log, offset)
    (entry,) = log.producers()
    assert (entry.next_sequence, entry.last_offset) == (offset, offset - 1)
    retried = batch(f"{offset - 1:02d}".encode(), producer_id=7, producer_epoch=0, base_sequence=offset - 1)
    assert append(log, retried).duplicate
    (after_crash,) = (await world.reopen(clean=False)).producers()
    assert after_crash.next_sequence == offset


async def test_a_producer_whose_batches_are_all_cut_off_is_forgotten() -> None:
    world = World()
    log = await filled(world, 2)
    write(log, 0, producer_id=8)
    await truncate(world, log, 2)
    assert [entry.producer_id for entry in log.producers()] == [7]


async def test_leader_epochs_behind_the_cut_are_forgotten() -> None:
    world = three_segments()
    log = await world.new_log()
    for number in range(9):
        write(log, number, epoch=number // 3)
    await truncate(world, log, 5)
    assert log.epochs.entries == [(0, 0), (1, 3)]
    again = await world.reopen(clean=False)
    assert again.epochs.entries == [(0, 0), (1, 3)]


async def test_an_epoch_without_records_at_the_end_is_forgotten_even_where_nothing_is_cut_off() -> None:
    world = World()
    log = await filled(world, 3)
    log.assign_epoch(5, 3)
    await truncate(world, log, 3)
    assert log.epochs.entries == [(0, 0)]
    assert values(log) == names(0, 1, 2)


async def test_below_its_start_a_log_is_empty_and_begins_there() -> None:
    world = three_segments()
    log = await filled(world, 9)
    log.delete_records_before(7)
    await world.manager.write_checkpoints()
    await truncate(world, log, 4)
    assert (log.log_start_offset, log.next_offset, values(log)) == (4, 4, [])
    write(log, 4)
    await log.flush()
    again = await world.reopen(clean=False)
    assert (again.log_start_offset, values(again)) == (4, names(4))


async def test_the_batch_in_which_a_log_begins_is_cut_off_whole() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a", b"b", b"c", b"d"))
    log.delete_records_before(1)
    await truncate(world, log, 3)
    assert (log.log_start_offset, log.next_offset) == (1, 1)


@pytest.mark.parametrize("offset", [2, 9, 50])
async def test_a_log_begins_anew_at_an_offset(offset: int) -> None:
    world = three_segments()
    log = await filled(world, 9)
    await log.truncate_fully_and_start_at(offset, world.manager.write_checkpoints_of)
    assert (log.log_start_offset, log.next_offset) == (offset, offset)
    assert (log.producers(), log.epochs.entries) == ([], [])
    again = await world.reopen(clean=False)
    assert (again.log_start_offset, again.next_offset) == (offset, offset)
    write(again, 0)
    assert [record.offset for record in read_all(again)] == [offset]


async def test_what_was_cut_off_is_removed_from_the_disk_later() -> None:
    world = three_segments()
    log = await filled(world, 9)
    await truncate(world, log, 1)
    await world.tasks.advance(61)
    left = [name for name in world.disk.list(log.folder) if name.endswith((".log", ".deleted", ".snapshot"))]
    assert left == ["00000000000000000000.log"]


async def test_a_cut_waits_for_the_sync_that_is_under_way() -> None:
    world = three_segments()
    log = await filled(world, 8)
    write(log, 8)
    world.tasks.held = True
    log.flush_then(lambda error: None)
    await asyncio.sleep(0)
    cutting = asyncio.get_running_loop().create_task(truncate(world, log, 2))
    for _ in range(5):
        await asyncio.sleep(0)
    assert values(log) == names(*range(9))
    world.tasks.held = False
    world.tasks.release()
    await cutting
    assert (values(log), log.last_flushed_offset) == (names(0, 1), 2)
