"""A log in the place of a deleted one of the same name: what the checkpoints say of the old one is not for it."""

from __future__ import annotations

import errno
import random
import uuid

import pytest
from log_world import FOLDER, PARTITION, World, append, batch, read_all

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import read_offsets, write_offsets
from moldau.log.log import Log


def write(log: Log, count: int) -> None:
    for number in range(count):
        assert append(log, batch(b"%d" % number)).error is ErrorCode.none


async def trimmed(world: World) -> Log:
    """A log that begins at 5, as its checkpoint says."""
    log = await world.new_log()
    write(log, 10)
    log.delete_records_before(5)
    await log.flush()
    await world.manager.write_checkpoints()
    return log


async def made_anew(world: World) -> Log:
    await world.manager.vacated(PARTITION)
    log = world.manager.create(PARTITION, uuid.UUID(int=8))
    write(log, 10)
    await log.flush()
    return log


@pytest.mark.parametrize("is_between", [False, True], ids=["at once", "after a crash"])
async def test_a_new_log_does_not_begin_where_the_deleted_one_did(is_between: bool) -> None:
    world = World()
    await trimmed(world)
    world.manager.delete(PARTITION)
    await world.manager.vacated(PARTITION)
    if is_between:
        for task in list(world.tasks.tasks):
            task.cancel()
        world.disk.crash(random.Random(0))
        await world.open()
    await made_anew(world)

    log = await world.reopen(clean=False)
    assert [record.value for record in read_all(log)] == [b"%d" % number for number in range(10)]


async def test_the_checkpoints_are_written_once_for_all_that_were_deleted() -> None:
    world = World()
    manager = await world.open()
    partitions = [TopicPartition("topic", number) for number in range(20)]
    for partition in partitions:
        manager.create(partition, uuid.UUID(int=7))
    await manager.write_checkpoints()
    for partition in partitions:
        manager.delete(partition)
    world.disk.calls.clear()
    for partition in partitions:
        await manager.vacated(partition)
    assert world.disk.calls["write_atomic", names.RECOVERY_POINTS] == 1


async def test_a_log_is_not_made_where_old_checkpoints_cannot_be_written_anew() -> None:
    """And made as soon as there is room for them."""
    world = World()
    await trimmed(world)
    world.manager.delete(PARTITION)
    world.disk.failing["write_atomic", names.RECOVERY_POINTS] = errno.ENOSPC
    await world.manager.vacated(PARTITION)
    assert world.manager.create(PARTITION, uuid.UUID(int=8)).failure is not None
    world.disk.failing.clear()
    await world.tasks.advance(2)
    log = world.manager.logs[PARTITION]
    assert log.failure is None
    write(log, 10)
    await log.flush()
    assert (await world.reopen(clean=False)).log_start_offset == 0


async def test_a_new_log_is_not_taken_for_compacted() -> None:
    world = World()
    await trimmed(world)
    path = f"{FOLDER}/{names.CLEANER_OFFSETS}"
    world.disk.write_atomic(path, write_offsets({PARTITION: 9}))
    log = await world.reopen(clean=True)
    assert log.reshaping.cleaned_to == 9
    world.manager.delete(PARTITION)
    log = await made_anew(world)
    assert log.reshaping.cleaned_to is None
    assert PARTITION not in read_offsets(world.disk.read(path))
    assert (await world.reopen(clean=False)).reshaping.cleaned_to is None


@pytest.mark.parametrize("offset", [0, 4])
async def test_a_log_that_is_cut_off_is_compacted_anew_from_there(offset: int) -> None:
    world = World()
    await trimmed(world)
    world.disk.write_atomic(f"{FOLDER}/{names.CLEANER_OFFSETS}", write_offsets({PARTITION: 9}))
    log = await world.reopen(clean=True)
    await log.truncate_fully_and_start_at(offset, world.manager.write_checkpoints_of)
    write(log, 10)
    assert (await world.reopen(clean=False)).reshaping.cleaned_to in (None, offset)


async def test_what_a_damaged_log_gets_in_the_place_of_its_lost_end_is_not_taken_for_compacted() -> None:
    world = World()
    log = await world.new_log()
    write(log, 10)
    await log.flush()
    await world.manager.write_checkpoints()
    world.disk.write_atomic(f"{FOLDER}/{names.CLEANER_OFFSETS}", write_offsets({PARTITION: 9}))
    world.disk.open(f"{log.folder}/{names.file_name(0, names.LOG)}").truncate(300)
    log = await world.reopen(clean=False)
    assert log.next_offset < 9
    write(log, 10)
    assert log.reshaping.cleaned_to is None
