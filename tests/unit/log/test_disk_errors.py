"""What each error of a disk does to a log and its data folder: no room, errors in writing, syncing, reading."""

from __future__ import annotations

import errno
import logging
import uuid

import pytest
from log_world import FOLDER, NOW_MS, PARTITION, World, append, batch, config, read_all, settle

from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import read_partition_metadata
from moldau.log.folder import ROOM_TRIED_BYTES
from moldau.log.log import Log
from moldau.log.manager import LogManager

NO_ROOM = [errno.ENOSPC, errno.EDQUOT]
HERE = f"{FOLDER}/{PARTITION}"
A_SECOND = 1.1


@pytest.fixture(params=NO_ROOM, ids=["ENOSPC", "EDQUOT"])
def no_room(request: pytest.FixtureRequest) -> int:
    code: int = request.param
    return code


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in read_all(log)]


async def room_comes(world: World) -> None:
    world.disk.failing.clear()
    await world.tasks.advance(A_SECOND)


# No room


async def test_a_full_disk_refuses_appends_and_serves_readers_until_there_is_room(no_room: int) -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"before"))
    world.disk.failing["pwrite", ""] = no_room
    for _ in range(3):
        with pytest.raises(OSError, match="injected"):
            append(log, batch(b"refused"))
        await world.tasks.advance(A_SECOND)
    assert values(log) == [b"before"]
    assert log.failure is None and world.failures == []
    (folder,) = world.manager.folders
    assert folder.no_room is not None and folder.no_room.errno == no_room
    await room_comes(world)
    assert folder.no_room is None
    assert append(log, batch(b"after")).base_offset == 1
    assert values(await world.reopen(clean=True)) == [b"before", b"after"]


async def test_a_full_disk_is_told_once_however_many_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    log = await world.new_log()
    world.disk.failing["pwrite", ""] = errno.ENOSPC
    with caplog.at_level(logging.INFO):
        for _ in range(500):
            with pytest.raises(OSError, match="injected"):
                append(log, batch(b"refused"))
        await world.tasks.advance(A_SECOND)
        await room_comes(world)
    told = [record.message for record in caplog.records if "/data" in record.message]
    assert len(told) == 2, told
    assert "is full" in told[0] and "has room again" in told[1]


LARGE = bytes(200_000)


async def nearly_full(world: World, log: Log) -> None:
    """Room for what is tried of a folder and for small messages, and not for a large one, which is refused."""
    world.disk.free = 100_000
    with pytest.raises(OSError, match="No space left"):
        append(log, batch(LARGE))


async def test_a_folder_without_room_for_what_was_refused_is_full_while_small_messages_are_stored(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    log = await world.new_log()
    (folder,) = world.manager.folders
    with caplog.at_level(logging.INFO):
        await nearly_full(world, log)
        for number in range(30):
            assert append(log, batch(b"small")).base_offset == number
            await world.tasks.advance(A_SECOND)
            assert folder.no_room is not None
    assert [record.message for record in caplog.records if "has room again" in record.message] == []
    assert len([record for record in caplog.records if "/data" in record.message]) == 1
    assert not world.disk.exists(f"{FOLDER}/room.tmp")


async def test_a_folder_has_room_again_when_the_largest_of_what_was_refused_fits() -> None:
    world = World()
    log = await world.new_log()
    (folder,) = world.manager.folders
    await nearly_full(world, log)
    with pytest.raises(OSError, match="No space left"):
        append(log, batch(LARGE[:150_000]))
    world.disk.free = 230_000
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is not None, "the smaller of the two fits, the larger does not"
    world.disk.free = 400_000
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is None
    assert append(log, batch(LARGE)).base_offset == 0
    world.disk.free = 0
    with pytest.raises(OSError, match="No space left"):
        append(log, batch(b"small"))
    world.disk.free = 100_000
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is None, "what was refused before counts no more"


@pytest.mark.parametrize("free_bytes", [40_000, 100_000])
async def test_trying_a_folder_leaves_others_the_room_that_there_is(
    free_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    log = await world.new_log()
    await nearly_full(world, log)
    world.disk.free = free_bytes
    left, room = [], world.disk.room

    def noted(wanted: int) -> int:
        taken = room(wanted)
        left.append(world.disk.free)
        return taken

    monkeypatch.setattr(world.disk, "room", noted)
    for _ in range(3):
        await world.tasks.advance(A_SECOND)
    assert world.manager.folders[0].no_room is not None
    assert set(left) == ({free_bytes - ROOM_TRIED_BYTES} if free_bytes > ROOM_TRIED_BYTES else set())


async def test_blocks_that_are_kept_for_the_broker_are_found_where_nothing_is_free_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for root on ext4: the free bytes are what others may take."""
    world = World()
    log = await world.new_log()
    (folder,) = world.manager.folders
    world.disk.free = 0
    with pytest.raises(OSError, match="No space left"):
        append(log, batch(b"small"))
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is not None
    monkeypatch.setattr(world.disk, "free_bytes", lambda path: 0)
    world.disk.free = 100_000
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is None


async def test_what_is_small_is_done_as_soon_as_it_fits_while_what_is_large_does_not() -> None:
    world = World()
    made: list[Log] = []
    manager = await world.open(on_made=made.append)
    log = manager.create(TopicPartition("large", 0), uuid.UUID(int=7))
    world.disk.failing["make_folder", "topic-0"] = errno.ENOSPC
    manager.create(PARTITION, uuid.UUID(int=8))
    world.disk.failing["write_atomic", "partition.metadata"] = errno.ENOSPC
    log.adopt_topic_id(uuid.UUID(int=9))
    await nearly_full(world, log)
    await world.tasks.advance(A_SECOND)
    assert not made
    await room_comes(world)
    assert made == [manager.logs[PARTITION]]
    assert read_partition_metadata(world.disk.read("/data/large-0/partition.metadata")).int == 9
    assert manager.folders[0].no_room is not None, "what is large does not fit yet"


async def test_what_was_refused_counts_no_more_when_nobody_was_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    monkeypatch.setattr(world.runtime.clock, "monotonic", lambda: world.tasks.now_s)
    log = await world.new_log()
    (folder,) = world.manager.folders
    await nearly_full(world, log)
    for _ in range(50):
        await world.tasks.advance(A_SECOND)
    await nearly_full(world, log)
    for _ in range(50):
        await world.tasks.advance(A_SECOND)
    assert folder.no_room is not None
    for _ in range(10):
        await world.tasks.advance(A_SECOND)
    assert folder.no_room is None


async def test_a_follower_waits_for_room_for_what_its_leader_sent() -> None:
    world = World()
    log = await world.new_log()
    (folder,) = world.manager.folders
    world.disk.free = 100_000
    with pytest.raises(OSError, match="No space left"):
        log.append_fetched(memoryview(bytearray(batch(LARGE))), NOW_MS)
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is not None
    world.disk.free = 400_000
    await world.tasks.advance(A_SECOND)
    assert folder.no_room is None


async def test_refused_appends_leave_nothing_behind_in_memory(no_room: int) -> None:
    world = World()
    log = await world.new_log()
    world.disk.failing["pwrite", ""] = no_room
    for _ in range(100):
        with pytest.raises(OSError, match="injected"):
            append(log, batch(b"refused"))
    assert len(log._flusher._queue) <= 2


SMALL_FILES = ["leader-epoch-checkpoint", ".snapshot", "partition.metadata"]


@pytest.mark.parametrize("name", SMALL_FILES)
async def test_a_small_file_without_room_waits_and_the_records_do_not(name: str, no_room: int) -> None:
    world = World(config(segment_bytes=str(2 * len(batch(b"x")))))
    manager = await world.open()
    world.disk.failing["write_atomic", name] = no_room
    log = manager.create(PARTITION, uuid.UUID(int=7))
    for i in range(5):
        append(log, batch(b"x"), epoch=i)
    await log.flush()
    assert log.failure is None and manager.folders[0].failure is None
    assert log.last_flushed_offset == 0, "a crash must be able to make the file anew"
    await room_comes(world)
    await settle()
    assert log.last_flushed_offset == 5
    assert [path for path in world.disk.files if path.startswith(HERE) and path.endswith(name)]
    assert values(await world.reopen(clean=False)) == [b"x"] * 5


@pytest.mark.parametrize("name", SMALL_FILES)
async def test_what_was_acknowledged_survives_a_crash_while_a_small_file_waits(name: str) -> None:
    world = World(config(segment_bytes=str(2 * len(batch(b"x")))))
    manager = await world.open()
    world.disk.failing["write_atomic", name] = errno.ENOSPC
    log = manager.create(PARTITION, uuid.UUID(int=7))
    for i in range(5):
        sent = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=i)
        append(log, sent, epoch=i)
    await log.flush()
    log = await world.reopen(clean=False)
    assert values(log) == [b"x"] * 5
    assert log.epochs.entries == [(i, i) for i in range(5)]
    assert [(p.last_sequence, p.last_offset) for p in log.producers()] == [(4, 4)]


async def test_an_index_without_room_is_written_once_there_is(no_room: int) -> None:
    world = World(config(index_interval_bytes="1"))
    log = await world.new_log()
    world.disk.failing["pwrite", "index"] = no_room
    for _ in range(50):
        append(log, batch(b"x"))
    await log.flush()
    world.disk.failing.clear()
    assert len(values(await world.reopen(clean=True))) == 50


@pytest.mark.parametrize("name", ["recovery-point", "log-start", "replication"])
async def test_a_checkpoint_without_room_leaves_the_folder_in_use(name: str, no_room: int) -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"x"))
    await log.flush()
    log.delete_records_before(1)
    world.disk.failing["write_atomic", f"{name}-offset-checkpoint"] = no_room
    with pytest.raises(OSError, match="injected"):
        await world.manager.write_checkpoints()
    assert world.manager.folders[0].failure is None
    await room_comes(world)
    await world.manager.write_checkpoints()
    assert world.disk.exists(f"{FOLDER}/{name}-offset-checkpoint")


async def test_a_stop_without_room_is_not_clean_and_loses_nothing() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"x"))
    world.disk.failing["write_atomic", ".snapshot"] = errno.ENOSPC
    await world.manager.close()
    assert not world.disk.exists(f"{FOLDER}/.kafka_cleanshutdown")
    world.disk.failing.clear()
    assert values((await world.open()).logs[PARTITION]) == [b"x"]


async def test_a_full_disk_can_be_started_on_after_a_crash() -> None:
    world = World(config(segment_bytes=str(10 * len(batch(b"x"))), index_interval_bytes="1"))
    log = await world.new_log()
    for _ in range(25):
        append(log, batch(b"x"))
    await log.flush()
    world.disk.failing["pwrite", ""] = errno.ENOSPC
    log = await world.reopen(clean=False)
    assert values(log) == [b"x"] * 25
    world.disk.failing.clear()
    assert append(log, batch(b"y")).base_offset == 25
    assert values(log)[-1] == b"y"


async def test_a_log_that_there_is_no_room_for_is_made_when_there_is(no_room: int) -> None:
    world = World()
    made: list[Log] = []
    manager = await world.open(on_made=made.append)
    world.disk.failing["make_folder", "topic-0"] = no_room
    log = manager.create(PARTITION, uuid.UUID(int=7))
    with pytest.raises(OSError, match="injected"):
        append(log, batch(b"x"))
    assert manager.folders[0].no_room is not None
    await room_comes(world)
    assert made == [manager.logs[PARTITION]]
    assert append(made[0], batch(b"x")).base_offset == 0
    assert manager.folders[0].log_count == 1


async def test_a_log_goes_to_the_next_folder_where_the_first_does_not_take_it() -> None:
    world = World()
    manager = await world.open(folders=["/one", "/two"])
    world.disk.failing["make_folder", "/one/topic-0"] = errno.ENOSPC
    assert manager.create(PARTITION, None).folder == "/two/topic-0"


OF_ONE_LOG = [errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR, errno.EACCES, errno.EMLINK]
OF_ONE_LOG_IDS = ["ENAMETOOLONG", "EEXIST", "ENOTDIR", "EACCES", "EMLINK"]


@pytest.mark.parametrize("code", OF_ONE_LOG, ids=OF_ONE_LOG_IDS)
async def test_a_log_that_cannot_be_created_is_offline_alone_and_can_be_deleted(code: int) -> None:
    world = World()
    told: list[OSError] = []
    manager = await world.open(on_all_failed=told.append)
    well = manager.create(TopicPartition("well", 0), uuid.UUID(int=1))
    world.disk.failing["make_folder", "topic-0"] = code
    log = manager.create(PARTITION, uuid.UUID(int=7))
    assert log.failure is not None and log.failure.errno == code
    assert manager.folders[0].failure is None and told == []
    assert append(well, batch(b"x")).base_offset == 0
    manager.delete(PARTITION)
    await settle()
    assert PARTITION not in manager.logs and manager.folders[0].failure is None
    assert manager.folders[0].log_count == 1


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS], ids=["EIO", "EROFS"])
async def test_a_disk_that_fails_while_a_log_is_created_takes_its_folder_offline(code: int) -> None:
    world = World()
    manager = await world.open(folders=["/one", "/two"])
    world.disk.failing["make_folder", "/one/topic-0"] = code
    assert manager.create(PARTITION, None).folder == "/two/topic-0"
    assert [folder.failure is None for folder in manager.folders] == [False, True]


async def test_the_first_files_of_a_log_in_a_folder_that_is_not_ours_take_it_offline_alone() -> None:
    world = World()
    manager = await world.open()
    world.disk.failing["write_atomic", "topic-0/partition.metadata"] = errno.EACCES
    world.disk.failing["create", "late-0/00000000000000000000.log"] = errno.EACCES
    log = manager.create(PARTITION, uuid.UUID(int=7))
    late = manager.create(TopicPartition("late", 0), None)
    await settle()
    with pytest.raises(OSError, match="injected"):
        append(late, batch(b"x"))
    assert log.failure is not None and late.failure is not None
    assert manager.folders[0].failure is None
    assert {failed for failed, _ in world.failures} == {log, late}


async def test_a_log_that_lacked_descriptors_to_be_created_is_made_soon() -> None:
    world = World()
    made: list[Log] = []
    manager = await world.open(on_made=made.append)
    world.disk.failing["make_folder", "topic-0"] = errno.EMFILE
    assert manager.create(PARTITION, None).failure is not None
    await room_comes(world)
    assert made == [manager.logs[PARTITION]] and manager.folders[0].failure is None


async def test_a_log_that_could_not_be_created_leaves_the_stop_clean() -> None:
    world = World()
    manager = await world.open()
    world.disk.failing["make_folder", "topic-0"] = errno.ENAMETOOLONG
    manager.create(PARTITION, None)
    await manager.close()
    assert world.disk.exists(f"{FOLDER}/.kafka_cleanshutdown")


async def test_a_stray_that_cannot_be_renamed_is_offline_and_nothing_else_is() -> None:
    world = World()
    manager = await world.open()
    stray = manager.create(PARTITION, uuid.UUID(int=7))
    world.disk.failing["rename", "topic-0"] = errno.EACCES
    assert not manager.set_aside(PARTITION)
    assert manager.logs[PARTITION] is stray and stray.failure is not None
    assert manager.folders[0].failure is None


# Errors


async def test_an_error_in_writing_takes_the_folder_offline_and_no_other() -> None:
    world = World()
    manager, (bad, same, other) = await three_logs(world)
    world.disk.failing["pwrite", "/one/t-0/00000000000000000000.log"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        append(bad, batch(b"lost"))
    assert {log for log, _ in world.failures} == {bad, same}
    for log in (bad, same):
        with pytest.raises(OSError, match="injected"):
            append(log, batch(b"y"))
    assert append(other, batch(b"y")).base_offset == 1
    assert [folder.failure is not None for folder in manager.folders] == [True, False]


async def three_logs(world: World) -> tuple[LogManager, list[Log]]:
    """Two in the first folder, one in the second."""
    manager = await world.open(folders=["/one", "/two"])
    logs = [manager.create(TopicPartition("t", i), None) for i in range(3)]
    for log in logs:
        append(log, batch(b"x"))
        await log.flush()
    return manager, [logs[0], logs[2], logs[1]]


async def test_an_error_in_a_small_file_takes_the_folder_offline() -> None:
    world = World()
    log = await world.new_log()
    world.disk.failing["write_atomic", "leader-epoch-checkpoint"] = errno.EIO
    append(log, batch(b"x"), epoch=3)
    await settle()
    assert log.failure is not None
    assert world.manager.folders[0].failure is not None


async def test_an_error_in_a_checkpoint_takes_its_folder_offline_and_the_others_are_written() -> None:
    world = World()
    manager, (bad, _, other) = await three_logs(world)
    world.disk.failing["write_atomic", "/one/recovery-point-offset-checkpoint"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        await manager.write_checkpoints()
    assert bad.failure is not None and other.failure is None
    assert world.disk.exists("/two/recovery-point-offset-checkpoint")


async def test_an_error_in_reading_is_told_to_the_reader_and_changes_nothing() -> None:
    world = World(config(segment_bytes=str(2 * len(batch(b"x"))), index_interval_bytes="1"))
    log = await world.new_log()
    for _ in range(6):
        append(log, batch(b"x"))
    log = await world.reopen(clean=True)
    world.disk.failing["pread", "00000000000000000002.log"] = errno.EIO
    world.disk.failing["pread_nowait", "00000000000000000002.log"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        log.read(3, 100, below_offset=6, whole_first_batch=True)
    assert len(read_all(log, 4)) == 2
    assert append(log, batch(b"y")).base_offset == 6
    assert log.failure is None


async def test_a_log_that_cannot_be_read_at_the_start_is_offline_and_the_others_are_not() -> None:
    world = World()
    manager, (bad, same, other) = await three_logs(world)
    for _ in range(3):
        append(bad, batch(b"more"))
    world.disk.failing["pread", "/one/t-0/00000000000000000000.log"] = errno.EIO
    for task in list(world.tasks.tasks):
        task.cancel()
    manager.release()
    manager = await world.open(folders=["/one", "/two"])
    logs = manager.logs
    assert [logs[log.topic_partition].failure is None for log in (bad, same, other)] == [False, True, True]
    assert world.failures == []
    await manager.close()
    assert not world.disk.exists("/one/.kafka_cleanshutdown"), "what is wrong with it is not known yet"
    assert world.disk.exists("/two/.kafka_cleanshutdown")
    world.disk.failing.clear()
    manager = await world.open(folders=["/one", "/two"])
    assert values(manager.logs[bad.topic_partition]) == [b"x", b"more", b"more", b"more"]


async def test_a_lack_of_descriptors_fails_nothing_for_good() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"x"))
    world.disk.failing["sync", ".log"] = errno.EMFILE
    with pytest.raises(OSError, match="injected"):
        await log.flush()
    assert log.failure is None and log.last_flushed_offset == 0
    world.disk.failing.clear()
    await log.flush()
    assert log.last_flushed_offset == 1


async def test_the_failure_of_the_last_folder_is_told() -> None:
    world = World()
    told: list[OSError] = []
    manager = await world.open(folders=["/one", "/two"], on_all_failed=told.append)
    logs = [manager.create(TopicPartition("t", i), None) for i in range(2)]
    for log in logs:
        append(log, batch(b"x"))
    world.disk.failing["sync", ".log"] = errno.EIO
    for log, count in zip(logs, (0, 1), strict=True):
        with pytest.raises(OSError, match="injected"):
            await log.flush()
        assert len(told) == count
