"""Leader epochs: what a follower or a consumer is told about where an epoch ended."""

from __future__ import annotations

import errno

import pytest
from log_world import NOW_MS, World, append, batch

from moldau.log import names
from moldau.log.epochs import EpochEnd, LeaderEpochs

UNKNOWN = EpochEnd(-1, -1)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


def test_an_epoch_is_assigned_once() -> None:
    known = LeaderEpochs()
    known.assign(1, 0)
    known.assign(1, 5)
    known.assign(4, 10)
    assert known.entries == [(1, 0), (4, 10)]
    assert known.latest == 4
    assert known.changed


def test_a_new_epoch_removes_those_that_contradict_it() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.assign(6, 15)
    assert known.entries == [(1, 0), (3, 10), (6, 15)]
    known.assign(2, 30)
    assert known.entries == [(1, 0), (2, 30)]


def test_an_epoch_without_records_is_replaced_by_the_next() -> None:
    known = epochs((1, 0), (2, 7))
    known.assign(3, 7)
    assert known.entries == [(1, 0), (3, 7)]


def test_an_epoch_ends_where_the_next_begins() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    assert known.end_offset_for(1, 99) == EpochEnd(1, 10)
    assert known.end_offset_for(2, 99) == EpochEnd(1, 10)
    assert known.end_offset_for(3, 99) == EpochEnd(3, 20)
    assert known.end_offset_for(5, 99) == EpochEnd(5, 99)


def test_epochs_that_nobody_knows_have_no_end() -> None:
    known = epochs((1, 0), (3, 10))
    assert known.end_offset_for(4, 99) == UNKNOWN
    assert known.end_offset_for(-1, 99) == UNKNOWN
    assert LeaderEpochs().end_offset_for(0, 99) == UNKNOWN


def test_an_epoch_older_than_the_log_ends_where_the_log_begins() -> None:
    assert epochs((5, 30), (7, 40)).end_offset_for(2, 99) == EpochEnd(2, 30)


def test_truncation_forgets_the_epochs_it_cut_off() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.truncate_from_end(10)
    assert known.entries == [(1, 0)]
    assert known.latest == 1


def test_a_new_start_moves_the_epoch_it_lies_in() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.truncate_from_start(15)
    assert known.entries == [(3, 15), (5, 20)]
    known.note_written()
    known.truncate_from_start(15)
    assert not known.changed


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 5), (3, 10))
    assert [known.epoch_of(offset) for offset in (0, 5, 9, 10, 50)] == [-1, 1, 1, 3, 3]


async def test_epochs_that_a_recovery_has_found_are_not_lost_with_the_next_crash() -> None:
    """The recovery point is the log's end from then on: the batches are not gone through again."""
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"), epoch=0)
    await log.flush()
    world.tasks.held = True  # the checkpoint of the second epoch is never written
    append(log, batch(b"b"), epoch=1)
    world.disk.open(f"{log.folder}/{0:020d}.log").sync()
    log = await world.reopen(clean=False)
    assert log.epochs.entries == [(0, 0), (1, 1)]
    await world.manager.write_checkpoints()
    world.tasks.held = True
    log.roll(NOW_MS)
    log = await world.reopen(clean=False)
    assert log.segments.bases == [0, 2]
    assert log.epochs.entries == [(0, 0), (1, 1)]


async def test_without_room_for_the_epochs_that_it_found_a_recovery_is_not_believed() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"), epoch=0)
    await log.flush()
    world.tasks.held = True
    append(log, batch(b"b"), epoch=1)
    world.disk.open(f"{log.folder}/{0:020d}.log").sync()
    world.disk.failing["write_atomic", "leader-epoch-checkpoint"] = errno.ENOSPC
    log = await world.reopen(clean=False)
    assert (log.next_offset, log.last_flushed_offset) == (2, 0)
    world.disk.failing.clear()
    await log.flush()
    assert log.last_flushed_offset == 2


@pytest.mark.parametrize("trimmed_to", [1, 2, 3])
async def test_epochs_come_back_with_a_start_that_was_not_checkpointed(trimmed_to: int) -> None:
    world = World()
    log = await world.new_log()
    await world.manager.write_checkpoints()
    for epoch in range(3):
        append(log, batch(b"a"), epoch=epoch)
    log.delete_records_before(trimmed_to)
    await log.flush()
    log = await world.reopen(clean=False)
    assert log.log_start_offset == 0
    assert [log.epochs.epoch_of(offset) for offset in range(3)] == [0, 1, 2]


async def test_a_clean_stop_writes_nothing_of_an_epoch_in_which_nothing_was_written() -> None:
    world = World()
    log = await world.new_log()
    await log.flush()
    log.epochs.assign(3, 0)
    world.disk.calls.clear()
    await log.close()
    assert not [call for call in world.disk.calls if names.LEADER_EPOCHS in str(call)]

    log = await World().new_log()
    append(log, batch(b"one"), epoch=4)
    log.epochs.assign(5, log.next_offset)
    append(log, batch(b"two"), epoch=5)
    log.epochs.assign(6, log.next_offset)
    await log.close()
    assert log.epochs.entries == [(4, 0), (5, 1), (6, 2)]
    content = log.segments.active._disk.read(f"{log.folder}/{names.LEADER_EPOCHS}").decode()
    assert content.split("\n")[2:4] == ["4 0", "5 1"]


def test_the_lowest_change_since_the_last_writing_is_known() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    assert not known.changed
    known.assign(6, 30)
    assert known.changed_from == 30
    known.truncate_from_end(20)
    assert known.changed_from == 20
    known.assign(4, 15)
    assert known.changed_from == 15
    known.truncate_from_start(12)
    assert known.changed_from == 0
    known.note_written()
    assert not known.changed
