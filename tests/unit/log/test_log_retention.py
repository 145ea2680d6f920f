"""What is old goes: by time, by size, by DeleteRecords; whole segments, their files, and what belongs to them."""

from __future__ import annotations

import asyncio
import errno
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_world import FOLDER, NOW_MS, PARTITION, World, append, batch, config, data_of, read_all, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.log import manager as manager_module
from moldau.log.checkpoints import read_epochs, read_offsets
from moldau.log.index import read_waiting
from moldau.log.log import Log
from moldau.log.retention import Candidate, Limits, remove_files, start_after_retention
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

LOG_FOLDER = f"{FOLDER}/{PARTITION}"
DAY_MS = 86_400_000


async def log_of(world: World, *timestamps: int, **producer: int) -> Log:
    """Each timestamp is a batch of one record, in a segment of its own; the last one is in the active one."""
    log = await world.new_log()
    for index, timestamp in enumerate(timestamps):
        if index:
            log.roll(NOW_MS)
        append(log, batch(b"%d" % index, timestamp=timestamp), epoch=index // 2)
    await settle()
    return log


def segments_on_disk(world: World) -> list[int]:
    return [int(name[:-4]) for name in world.disk.list(LOG_FOLDER) if name.endswith(".log")]


def names_on_disk(world: World, suffix: str) -> list[str]:
    return [name for name in world.disk.list(LOG_FOLDER) if name.endswith(suffix)]


# The decision

segments_of_any_kind = st.lists(
    st.builds(
        lambda count, size, ms: (count, size, ms), st.integers(1, 9), st.integers(1, 99), st.integers(0, 99)
    ),
    max_size=8,
)


@given(
    segments_of_any_kind,
    st.integers(-1, 99),
    st.integers(-1, 300),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_the_decision_is_kafkas_three_passes_one_after_the_other(
    shapes: list[tuple[int, int, int]],
    retention_ms: int,
    retention_bytes: int,
    start: int,
    high_watermark: int,
) -> None:
    candidates, offset = [], 0
    for count, size, newest_ms in shapes:
        offset += count
        candidates.append(Candidate(offset, size, newest_ms))
    start = min(start, offset)
    limits = Limits(retention_ms, retention_bytes, high_watermark, now_ms=100)
    left = list(candidates)
    gone_to = start
    while left and left[0].next_offset <= min(start, high_watermark):
        left.pop(0)
    while (
        left
        and left[0].next_offset <= high_watermark
        and 0 <= retention_bytes <= sum(s.size for s in left[1:])
    ):
        gone_to = left.pop(0).next_offset
    while left and left[0].next_offset <= high_watermark and 0 <= retention_ms < 100 - left[0].newest_ms:
        gone_to = left.pop(0).next_offset
    total = sum(segment.size for segment in candidates)
    assert start_after_retention(candidates, total, start, limits) == max(start, gone_to)


# Thousands of logs


async def test_a_look_at_thousands_of_logs_lets_others_run_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "LOGS_PER_TURN", 10)
    world = World(config())
    await world.new_log()
    for index in range(1, 40):
        world.manager.create(TopicPartition("topic", index), uuid.uuid4(), config())
    await settle()
    rounds = 3  # what is too old, the checkpoints, whole segments that go
    looking = asyncio.ensure_future(world.manager.enforce_retention())
    turns = 0
    while not looking.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= rounds * 40 // 10


# By time


async def test_segments_go_when_their_newest_record_is_too_old() -> None:
    world = World(config(retention_ms=str(DAY_MS)))
    log = await log_of(world, NOW_MS - DAY_MS - 1, NOW_MS - DAY_MS, NOW_MS)
    await world.manager.enforce_retention()
    assert (log.log_start_offset, segments_on_disk(world)) == (1, [1, 2])
    assert [record.offset for record in read_all(log)] == [1, 2]


async def test_an_old_segment_behind_a_young_one_stays() -> None:
    world = World(config(retention_ms=str(DAY_MS)))
    log = await log_of(world, NOW_MS, NOW_MS - 2 * DAY_MS, NOW_MS)
    await world.manager.enforce_retention()
    assert (log.log_start_offset, segments_on_disk(world)) == (0, [0, 1, 2])


async def test_the_active_segment_is_rolled_when_it_is_old_and_then_goes() -> None:
    world = World(config(retention_ms=str(DAY_MS)))
    log = await log_of(world, 1000, 2000, 3000)
    await world.manager.enforce_retention()
    assert (log.log_start_offset, log.next_offset, segments_on_disk(world)) == (3, 3, [3])
    assert append(log, batch(b"new")).base_offset == 3
    assert [record.value for record in read_all(log)] == [b"new"]


@pytest.mark.parametrize("limit", [{"retention_ms": str(DAY_MS)}, {"retention_bytes": "0"}])
async def test_the_active_segment_goes_too_when_all_its_records_were_deleted_before(
    limit: dict[str, str],
) -> None:
    world = World(config(**({"retention_ms": "-1"} | limit)))
    log = await log_of(world, 1000, 2000, 3000)
    log.delete_records_before(3)
    await world.manager.enforce_retention()
    assert (log.log_start_offset, log.next_offset, segments_on_disk(world)) == (3, 3, [3])
    assert log.size_bytes() == 0


async def test_the_active_segment_stays_while_it_is_young_though_nothing_in_it_is_read() -> None:
    world = World(config(retention_ms=str(DAY_MS)))
    log = await log_of(world, NOW_MS, NOW_MS)
    log.delete_records_before(2)
    await world.manager.enforce_retention()
    assert (log.log_start_offset, log.next_offset, segments_on_disk(world)) == (2, 2, [1])


async def test_an_empty_log_is_left_alone() -> None:
    world = World(config(retention_ms="0"))
    log = await world.new_log()
    await world.manager.enforce_retention()
    assert log.segments.bases == [0]


async def test_nothing_goes_by_time_without_a_limit() -> None:
    world = World(config(retention_ms="-1"))
    await log_of(world, 1000, 2000, 3000)
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [0, 1, 2]


async def test_a_compacted_topic_keeps_what_is_old() -> None:
    world = World(config(retention_ms="1", cleanup_policy="compact"))
    await log_of(world, 1000, 2000, 3000)
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [0, 1, 2]


async def test_a_topic_with_both_policies_does_not() -> None:
    world = World(config(retention_ms="1", cleanup_policy="compact,delete"))
    await log_of(world, 1000, 2000, NOW_MS)
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2]


@pytest.mark.parametrize(("newest", "left"), [(NOW_MS, [0, 1, 2]), (2000, [2])])
async def test_a_segment_that_compaction_has_emptied_goes_with_the_next_and_keeps_none(
    newest: int, left: list[int]
) -> None:
    """It has no time of its own: its file is as old as the compaction."""
    world = World(config(retention_ms="1", cleanup_policy="compact,delete"))
    await log_of(world, 1000, newest, NOW_MS)
    await world.manager.close()
    for suffix in ("log", "index", "timeindex"):
        world.disk.open(f"{LOG_FOLDER}/{0:020d}.{suffix}").truncate(0)
    await world.open()
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == left


# By size


async def test_segments_go_while_the_log_without_them_is_large_enough() -> None:
    world = World(config(retention_bytes="150"))
    log = await log_of(world, NOW_MS, NOW_MS, NOW_MS, NOW_MS)
    one = log.segments.active.size
    log.configure(config(retention_bytes=str(2 * one)))
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2, 3]
    log.configure(config(retention_bytes=str(2 * one - 1)))
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2, 3]


async def test_nothing_goes_above_the_high_watermark() -> None:
    world = World(config(retention_ms="1"))
    manager = await world.open(high_watermark_of=lambda log: 2)
    log = manager.create(PARTITION, uuid.UUID(int=7))
    for value in (b"a", b"b", b"c", b"d"):
        append(log, batch(value, timestamp=1000))
        log.roll(NOW_MS)
    await manager.enforce_retention()
    assert log.log_start_offset == 2


# When


async def test_logs_are_looked_through_regularly_with_the_settings_of_now() -> None:
    world = World(config(retention_ms="-1"))
    manager = await world.open(retention_interval_s=100.0)
    log = manager.create(PARTITION, uuid.UUID(int=7))
    append(log, batch(b"old", timestamp=1000))
    log.roll(NOW_MS)
    await world.tasks.advance(250)
    assert log.log_start_offset == 0
    log.configure(config(retention_ms="1000"))
    await world.tasks.advance(100)
    assert log.log_start_offset == 1


# Files


async def test_files_wait_under_another_name_for_their_removal_and_are_read_on_meanwhile() -> None:
    world = World(config(file_delete_delay_ms="60000"))
    log = await log_of(world, NOW_MS, NOW_MS, NOW_MS)
    being_sent = log.read(0, 1 << 20, below_offset=3, whole_first_batch=True)
    before = data_of(being_sent)
    log.delete_records_before(2)
    assert await log.remove_old_segments() == 2
    assert segments_on_disk(world) == [2]
    assert len(names_on_disk(world, ".log.deleted")) == len(names_on_disk(world, ".timeindex.deleted")) == 2
    await world.tasks.advance(59)
    assert data_of(being_sent) == before
    await world.tasks.advance(1)
    assert names_on_disk(world, ".deleted") == []


def test_a_removed_file_keeps_its_content_under_another_name_and_for_who_has_it_open(tmp_path: Path) -> None:
    """`moldau import --link` shares closed segments with Kafka's folder, and backups are made of links."""
    disk = RealDisk(Features.detect())
    removed, shared = tmp_path / "removed.log.deleted", tmp_path / "shared.log"
    removed.write_bytes(b"records")
    shared.hardlink_to(removed)
    held = disk.open(str(removed))
    assert held.pread(3, 0) == b"rec"
    remove_files(disk, str(tmp_path), [removed.name, "never-there.deleted"])
    assert not removed.exists()
    assert shared.read_bytes() == b"records"
    assert held.pread(7, 0) == b"records"


async def test_files_that_still_waited_at_a_crash_go_at_the_start() -> None:
    world = World()
    log = await log_of(world, NOW_MS, NOW_MS, NOW_MS)
    log.delete_records_before(2)
    await log.remove_old_segments()
    log = await world.reopen(clean=False)
    assert names_on_disk(world, ".deleted") == []
    assert log.log_start_offset == 2


async def test_snapshots_go_with_their_segments_and_the_first_one_left_stays() -> None:
    world = World()
    log = await log_of(world, NOW_MS, NOW_MS, NOW_MS)
    log.delete_records_before(2)
    await log.remove_old_segments()
    assert names_on_disk(world, ".snapshot") == ["00000000000000000002.snapshot"]


async def test_a_segment_is_not_removed_under_its_own_sync() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"))
    world.tasks.held = True
    log.roll(NOW_MS)
    log.delete_records_before(1)
    removing = world.tasks.spawn(log.remove_old_segments(), name="test")
    await settle()
    assert segments_on_disk(world) == [0, 1]
    world.tasks.held = False
    world.tasks.release()
    await settle()
    assert removing.done() and segments_on_disk(world) == [1]
    assert log.failure is None


async def test_a_file_that_cannot_be_renamed_is_tried_again() -> None:
    world = World(config(retention_ms="1"))
    log = await log_of(world, 1000, 1000, NOW_MS)
    world.disk.failing["rename", "00000000000000000001.log"] = errno.EACCES
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [1, 2]
    assert log.log_start_offset == 2
    world.disk.failing.clear()
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2]
    assert names_on_disk(world, "0001.index.deleted")


async def test_a_full_disk_does_not_keep_what_is_old() -> None:
    world = World(config(retention_ms="1"))
    log = await log_of(world, 1000, 1000, 1000)
    world.disk.failing["create", ".log"] = errno.ENOSPC
    world.disk.failing["write_atomic", "-checkpoint"] = errno.ENOSPC
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2]
    assert (log.log_start_offset, log.failure) == (2, None)


# The log's start


async def test_records_before_an_offset_are_gone_at_once_though_their_segment_stays() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a", b"b", b"c"))
    log.delete_records_before(2)
    with pytest.raises(KafkaError) as refusal:
        log.read(1, 100, below_offset=3, whole_first_batch=True)
    assert refusal.value.code is ErrorCode.offset_out_of_range
    assert [record.value for record in read_all(log)] == [b"c"]
    assert await log.remove_old_segments() == 0


async def test_the_start_never_moves_back_nor_beyond_the_end() -> None:
    log = await log_of(World(), NOW_MS, NOW_MS)
    log.delete_records_before(1)
    log.delete_records_before(0)
    assert log.log_start_offset == 1
    for offset in (3, -1):
        with pytest.raises(KafkaError):
            log.delete_records_before(offset)
    assert log.log_start_offset == 1


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_keeps_the_start(clean: bool) -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a", b"b", b"c"))
    await log.flush()
    log.delete_records_before(2)
    await world.manager.write_checkpoints()
    log = await world.reopen(clean=clean)
    assert (log.log_start_offset, log.next_offset) == (2, 3)


async def test_a_removed_segment_that_comes_back_after_a_crash_is_not_part_of_the_log() -> None:
    world = World(config(retention_ms="1"))
    await log_of(world, 1000, 1000, NOW_MS)
    lost_rename = bytes(world.disk.files[f"{LOG_FOLDER}/00000000000000000000.log"])
    await world.manager.enforce_retention()
    await world.manager.write_checkpoints()
    world.disk.files[f"{LOG_FOLDER}/00000000000000000000.log"] = bytearray(lost_rename)
    log = await world.reopen(clean=False)
    assert log.log_start_offset == 2
    await world.manager.enforce_retention()
    assert segments_on_disk(world) == [2]


async def test_log_starts_are_in_kafkas_checkpoint() -> None:
    world = World()
    log = await log_of(world, NOW_MS, NOW_MS)
    log.delete_records_before(1)
    await world.manager.write_checkpoints()
    assert read_offsets(bytes(world.disk.files[f"{FOLDER}/log-start-offset-checkpoint"])) == {PARTITION: 1}


async def test_leader_epochs_are_cut_at_the_start() -> None:
    world = World()
    log = await log_of(world, *[NOW_MS] * 6)
    assert log.epochs.entries == [(0, 0), (1, 2), (2, 4)]
    log.delete_records_before(3)
    await log.flush()
    assert log.epochs.entries == [(1, 3), (2, 4)]
    assert read_epochs(bytes(world.disk.files[f"{LOG_FOLDER}/leader-epoch-checkpoint"])) == [(1, 3), (2, 4)]


@pytest.mark.parametrize("rolled", [True, False])
async def test_a_producer_is_known_though_all_its_records_are_gone_also_after_a_restart(rolled: bool) -> None:
    world = World()
    log = await world.new_log()
    data = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, data)
    if rolled:
        log.roll(NOW_MS)
    log.delete_records_before(1)
    await log.remove_old_segments()
    assert append(log, data).duplicate
    log = await world.reopen(clean=True)
    assert (log.log_start_offset, log.next_offset) == (1, 1)
    assert append(log, data).duplicate


async def test_a_timestamp_is_looked_up_while_segments_go() -> None:
    world = World()
    log = await log_of(world, NOW_MS, NOW_MS + 1, NOW_MS + 2)
    world.disk.cold.add(".timeindex")
    world.tasks.held = True
    log.segments._max_timestamps[0] = log.segments._max_timestamps[1] = -2  # as after a restart
    looking = world.tasks.spawn(log.find_timestamp(NOW_MS), name="test")
    await settle()
    log.delete_records_before(1)
    log.segments.remove_first()
    world.tasks.held = False
    world.tasks.release()
    found = await looking
    assert found is not None and found.offset == 1


async def test_who_searches_a_removed_segment_does_not_bring_its_files_back() -> None:
    world = World(config(index_interval_bytes="1"))
    log = await world.new_log()
    for value in (b"a", b"b", b"c"):
        append(log, batch(value))
    log.roll(NOW_MS)
    await settle()
    stale = log.segments.copy().by_number(0)
    log.delete_records_before(3)
    await log.remove_old_segments()
    with pytest.raises(FileNotFoundError):
        stale.find(2, read_waiting)
    with pytest.raises(FileNotFoundError):
        stale.find(0, read_waiting)
    assert segments_on_disk(world) == [3]
    assert names_on_disk(world, ".index") == []
