"""Opening a log after a clean stop, after a crash, and with each of its files damaged or missing."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from log_world import FOLDER, NOW_MS, PARTITION, MemoryFile, World, append, batch, config, read_all, settle

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.log.log import Log
from moldau.log.reader import TimestampOffset

SIZE = len(batch(b"x" * 100))
HERE = f"{FOLDER}/topic-0"


async def filled(world: World, count: int = 50, flush: bool = True) -> Log:
    log = await world.new_log()
    for i in range(count):
        sent = batch(
            b"x" * 100, timestamp=NOW_MS + i, producer_id=i % 3, producer_epoch=0, base_sequence=i // 3
        )
        assert append(log, sent, epoch=i // 20).base_offset == i
    if flush:
        await log.flush()
    return log


def small_segments() -> World:
    return World(config(segment_bytes=str(10 * SIZE), index_interval_bytes="300"))


def seen(log: Log) -> tuple[object, ...]:
    """All that must be the same after a restart."""
    producers = [(p.producer_id, p.epoch, p.last_sequence, p.last_offset) for p in log.producers()]
    return (
        [(record.offset, record.timestamp, record.value) for record in read_all(log)],
        log.next_offset,
        log.log_start_offset,
        log.segments.bases,
        log.epochs.entries,
        producers,
        log.topic_id,
        log.offset_for_timestamp(NOW_MS + 33),
        log.max_timestamp_offset(),
    )


async def test_everything_is_there_after_a_clean_stop() -> None:
    world = small_segments()
    before = seen(await filled(world))
    log = await world.reopen(clean=True)
    assert seen(log) == before
    assert log.last_flushed_offset == 50


async def test_opening_a_cleanly_closed_log_reads_no_data_and_no_offset_index() -> None:
    world = small_segments()
    await filled(world)
    log = await world.reopen(clean=True)
    assert log.next_offset == 50
    assert world.disk.reads_of(".log") == 0
    assert world.disk.reads_of(".index") == 0
    assert world.disk.reads_of(".timeindex") <= 1


async def test_an_idle_log_is_closed_again_without_a_write() -> None:
    world = small_segments()
    await filled(world)
    log = await world.reopen(clean=True)
    world.disk.calls.clear()
    await log.close()
    assert not [what for what, _ in world.disk.calls if what in ("sync", "write_atomic", "pwrite")]


async def test_an_empty_log_survives_a_restart() -> None:
    for clean in (True, False):
        world = World()
        await world.new_log()
        log = await world.reopen(clean=clean)
        assert log.next_offset == 0
        assert append(log, batch(b"a")).base_offset == 0


async def test_an_empty_active_segment_keeps_the_next_offset() -> None:
    for clean in (True, False):
        world = World()
        log = await filled(world, 5)
        log.roll(NOW_MS)
        await log.flush()
        log = await world.reopen(clean=clean)
        assert (log.next_offset, log.segments.bases) == (5, [0, 5])
        assert append(log, batch(b"a")).base_offset == 5


@pytest.mark.parametrize("seed", range(20))
async def test_what_was_flushed_is_there_after_a_crash_and_the_rest_is_a_prefix(seed: int) -> None:
    world = small_segments()
    log = await filled(world, 34)
    before = [(record.offset, record.value) for record in read_all(log)]
    for i in range(30):
        append(log, batch(b"later %d" % i))
    everything = [(record.offset, record.value) for record in read_all(log)]
    log = await world.reopen(clean=False, rng=random.Random(seed))
    after = [(record.offset, record.value) for record in read_all(log)]
    assert after[:34] == before
    assert after == everything[: len(after)]
    assert log.next_offset == len(after)
    assert append(log, batch(b"on")).base_offset == len(after)
    assert read_all(log)[-1].value == b"on"


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Of each .log file that is read, the first byte."""
    first: dict[str, int] = {}
    pread = MemoryFile.pread

    def note(self: MemoryFile, length: int, position: int) -> bytes:
        name = self.path.rsplit("/", 1)[-1]
        if name.endswith(".log"):
            first[name] = min(position, first.get(name, position))
        return pread(self, length, position)

    monkeypatch.setattr(MemoryFile, "pread", note)
    return first


async def test_only_what_lies_behind_the_recovery_point_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    world = small_segments()
    log = await filled(world, 43)
    await world.manager.write_checkpoints()
    for _ in range(4):
        append(log, batch(b"x" * 100))
    first_read = watch_reads(monkeypatch)
    log = await world.reopen(clean=False)
    assert log.next_offset >= 43
    assert first_read == {f"{40:020d}.log": 0}


async def test_of_the_segment_before_the_recovery_point_only_the_end_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = small_segments()
    log = await filled(world, 40, flush=True)
    append(log, batch(b"x" * 100), epoch=2)
    await settle()
    assert log.last_flushed_offset == 40 == log.segments.active.base_offset
    await world.manager.write_checkpoints()
    first_read = watch_reads(monkeypatch)
    await world.reopen(clean=False)
    assert first_read == {f"{30:020d}.log": 8 * SIZE, f"{40:020d}.log": 0}


async def test_batches_before_the_recovery_point_are_not_checked_and_not_cut_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They were flushed: damage there is no torn write, and what lies behind it is good."""
    world = small_segments()
    log = await filled(world, 47)
    await world.manager.write_checkpoints()
    path = f"{HERE}/{40:020d}.log"
    world.disk.files[path][3 * SIZE + 90] ^= 1
    world.disk.durable[path] = bytes(world.disk.files[path])
    log = await world.reopen(clean=False)
    assert log.next_offset == 47
    assert "cut off" not in caplog.text


async def test_an_append_that_failed_before_a_roll_leaves_nothing_behind() -> None:
    """The cut that took it back was not synced, and the power went."""
    world = small_segments()
    log = await filled(world, 40)
    append(log, batch(b"x" * 100))
    await settle()
    await world.manager.write_checkpoints()
    path = f"{HERE}/{30:020d}.log"
    whole = bytes(world.disk.files[path])
    world.disk.files[path] += whole[:20]
    world.disk.durable[path] = bytes(world.disk.files[path])
    log = await world.reopen(clean=False)
    assert bytes(world.disk.files[path]) == whole
    assert len(read_all(log)) == log.next_offset


async def test_a_torn_tail_is_cut_off() -> None:
    world = World()
    log = await filled(world, 5)
    path = f"{HERE}/{0:020d}.log"
    whole = bytes(world.disk.files[path])
    for tail in (b"\0" * 300, whole[:SIZE], whole[: SIZE - 1], b"garbage", whole[:61]):
        world.disk.files[path] = bytearray(whole + tail)
        world.disk.durable[path] = whole + tail
        log = await world.reopen(clean=False)
        assert log.next_offset == 5
        assert bytes(world.disk.files[path]) == whole


async def after_a_crash_with_torn_ends(world: World, names: list[str]) -> None:
    """Logs whose epochs were not written, whose ends are torn, and that are opened again."""
    manager = await world.open()
    for name in names:
        log = manager.create(TopicPartition(name, 0), None)
        append(log, batch(b"x"))
        path = f"{FOLDER}/{name}-0/{0:020d}.log"
        world.disk.files[path] += b"torn"
        world.disk.files.pop(f"{FOLDER}/{name}-0/leader-epoch-checkpoint", None)
    for task in list(world.tasks.tasks):
        task.cancel()
    world.disk.locks.clear()
    await world.open()


async def test_what_a_crash_left_unfinished_in_many_logs_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    names = [f"t{number}" for number in range(40)]
    with caplog.at_level(logging.INFO):
        await after_a_crash_with_torn_ends(world, names)
    assert [world.manager.logs[TopicPartition(name, 0)].next_offset for name in names] == [1] * 40
    told = [record.message for record in caplog.records if record.name.startswith("moldau.log")]
    assert told[-1] == (
        "/data: 40 logs are checked after the crash: 40 leader epochs made anew from the batches,"
        " 40 ends cut off that a crash had torn (160 bytes)"
    )
    assert not [text for text in told if "-0/" in text], "no line of a single log"


async def test_what_was_on_the_disk_and_is_lost_is_a_line_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    log = await filled(world, 5)
    await log.flush()
    await world.manager.write_checkpoints()
    path = f"{HERE}/{0:020d}.log"
    del world.disk.files[path][3 * SIZE + 10 :]
    world.disk.durable[path] = bytes(world.disk.files[path])
    with caplog.at_level(logging.INFO):
        await world.reopen(clean=False)
    told = [record.message for record in caplog.records if HERE in record.message]
    assert len(told) == 2 and "after the crash" not in caplog.text
    assert "cut off there, 10 bytes are dropped" in told[0]
    assert told[1].endswith("ends at offset 3, but was on the disk up to 5: what lies between is lost")


@pytest.mark.parametrize("position", [0, 8, 16, 20, 60, 90])
async def test_a_flipped_bit_behind_the_recovery_point_ends_the_log_there(position: int) -> None:
    world = small_segments()
    await filled(world, 50)
    world.disk.files[f"{FOLDER}/recovery-point-offset-checkpoint"] = bytearray(b"0\n0\n")
    damaged = f"{HERE}/{20:020d}.log"
    world.disk.files[damaged][4 * SIZE + position] ^= 0x40
    world.disk.durable[damaged] = bytes(world.disk.files[damaged])
    log = await world.reopen(clean=False)
    assert log.next_offset == 24
    assert log.segments.bases == [0, 10, 20]
    assert not world.disk.exists(f"{HERE}/{30:020d}.log")
    assert log.epochs.entries == [(0, 0), (1, 20)]
    assert [p.last_offset for p in log.producers()] == [21, 22, 23]


FILES: dict[str, Callable[[str], bool]] = {
    "offset indexes": lambda name: name.endswith(".index"),
    "time indexes": lambda name: name.endswith(".timeindex"),
    "snapshots": lambda name: name.endswith(".snapshot"),
    "leader epochs": lambda name: name == "leader-epoch-checkpoint",
    "recovery points": lambda name: name == "recovery-point-offset-checkpoint",
    "high watermarks": lambda name: name == "replication-offset-checkpoint",
    "log starts": lambda name: name == "log-start-offset-checkpoint",
}
DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2 + 1],
    "zeroes": lambda content: bytes(len(content)),
    "flipped": lambda content: bytes(byte ^ 0x55 for byte in content),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("files", FILES)
async def test_a_damaged_file_is_rebuilt_after_a_crash(files: str, damage: str) -> None:
    world = small_segments()
    before = seen(await filled(world))
    await world.manager.write_checkpoints()
    if files in ("offset indexes", "time indexes") and damage in ("zeroes", "flipped", "empty"):
        # Indexes before the recovery point are taken as they are: bit rot is for `moldau log verify` to find.
        world.disk.files[f"{FOLDER}/recovery-point-offset-checkpoint"] = bytearray(b"0\n0\n")
        world.disk.durable[f"{FOLDER}/recovery-point-offset-checkpoint"] = b"0\n0\n"
    harm(world, FILES[files], DAMAGES[damage])
    assert seen(await world.reopen(clean=False)) == before


async def test_a_lost_checkpoint_is_told_and_one_that_was_not_due_yet_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = small_segments()
    await filled(world)
    log = await world.reopen(clean=False)  # a crash in the folder's first minute
    assert not caplog.messages
    await log.flush()
    await world.manager.write_checkpoints()
    harm(world, FILES["log starts"], DAMAGES["missing"])
    await world.reopen(clean=False)
    assert [text for text in caplog.messages if "log-start-offset-checkpoint is missing" in text]


@pytest.mark.parametrize("damage", ["missing", "cut"])
@pytest.mark.parametrize("files", FILES)
async def test_a_damaged_file_is_rebuilt_after_a_clean_stop(files: str, damage: str) -> None:
    world = small_segments()
    before = seen(await filled(world))
    await world.manager.close()
    harm(world, FILES[files], DAMAGES[damage])
    manager = await world.open()
    assert seen(manager.logs[PARTITION]) == before


def harm(world: World, chosen: Callable[[str], bool], damage: Callable[[bytes], bytes | None]) -> None:
    for path in [p for p in world.disk.files if chosen(p.rsplit("/", 1)[-1])]:
        content = damage(bytes(world.disk.files[path]))
        if content is None:
            world.disk.remove(path)
        else:
            world.disk.files[path] = bytearray(content)
            world.disk.durable[path] = content


async def test_retries_are_recognised_after_a_restart() -> None:
    for clean in (True, False):
        world = World()
        log = await world.new_log()
        data = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
        append(log, batch(b"before"))
        append(log, data)
        await log.flush()
        log = await world.reopen(clean=clean)
        again = append(log, data)
        assert (again.duplicate, again.base_offset) == (True, 1)


async def test_the_time_of_the_first_batch_is_known_again_after_a_restart() -> None:
    world = World(config(segment_ms="1000"))
    log = await world.new_log()
    append(log, batch(b"a", timestamp=NOW_MS))
    log = await world.reopen(clean=True)
    append(log, batch(b"b", timestamp=NOW_MS + 900))
    assert log.segments.bases == [0]
    append(log, batch(b"c", timestamp=NOW_MS + 1001))
    assert log.segments.bases == [0, 2]


async def test_a_cold_first_batch_delays_rolling_but_not_the_append() -> None:
    world = World(config(segment_ms="1000"))
    log = await world.new_log()
    append(log, batch(b"a", timestamp=NOW_MS))
    log = await world.reopen(clean=True)
    world.disk.cold = {".log"}
    append(log, batch(b"b", timestamp=NOW_MS + 5000))
    assert log.segments.bases == [0]
    for task in list(world.tasks.tasks):
        if "read in" in task.get_name():
            await task
    append(log, batch(b"c", timestamp=NOW_MS + 5000))
    assert log.segments.bases == [0, 2]


async def test_a_log_that_lost_more_than_its_start_begins_anew() -> None:
    world = World()
    log = await filled(world, 10)
    log.log_start_offset = 8
    await world.manager.write_checkpoints()
    path = f"{HERE}/{0:020d}.log"
    world.disk.files[path] = world.disk.files[path][: 3 * SIZE]
    world.disk.durable[path] = bytes(world.disk.files[path])
    log = await world.reopen(clean=False)
    assert (log.log_start_offset, log.next_offset, log.segments.bases) == (8, 8, [8])
    assert append(log, batch(b"a")).base_offset == 8


async def test_the_log_start_survives() -> None:
    for clean in (True, False):
        world = World()
        log = await filled(world, 10)
        log.log_start_offset = 4
        await world.manager.write_checkpoints()
        log = await world.reopen(clean=clean)
        assert log.log_start_offset == 4
        assert log.offset_for_timestamp(0) == TimestampOffset(NOW_MS + 4, 4, 0)


async def test_leftovers_of_a_crash_are_removed() -> None:
    world = World()
    await filled(world, 3)
    for name in ("leader-epoch-checkpoint.tmp", f"{9:020d}.log.deleted"):
        world.disk.files[f"{HERE}/{name}"] = bytearray(b"left")
    await world.reopen(clean=False)
    assert not [name for name in world.disk.list(HERE) if name.endswith((".tmp", ".deleted"))]


def numbered(sequence: int, producer_id: int = 5) -> bytes:
    return batch(b"x" * 50, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [10**6, 400])
async def test_retries_of_the_last_five_batches_are_recognised_after_a_restart(
    clean: bool, segment_bytes: int
) -> None:
    world = World(config(segment_bytes=str(segment_bytes), index_interval_bytes="100"))
    log = await world.new_log()
    for sequence in range(8):
        append(log, numbered(sequence))
        append(log, numbered(sequence, producer_id=6))
        append(log, batch(b"of nobody"))
    await log.flush()
    for _ in range(2):
        log = await world.reopen(clean=clean)
        for sequence in range(3, 8):
            again = append(log, numbered(sequence))
            assert (again.duplicate, again.base_offset) == (True, 3 * sequence)
        assert append(log, numbered(2)).error is ErrorCode.out_of_order_sequence_number
        assert append(log, numbered(9)).error is ErrorCode.out_of_order_sequence_number
    assert append(log, numbered(8)).base_offset == 24


async def test_a_retry_whose_batch_is_cold_is_told_to_come_again() -> None:
    world = World()
    log = await world.new_log()
    for sequence in range(3):
        append(log, numbered(sequence))
    log = await world.reopen(clean=True)
    world.disk.cold = {".log"}
    assert append(log, numbered(1)).error is ErrorCode.kafka_storage_error
    await settle()
    assert world.disk.calls["pread", f"{0:020d}.log"] > 0
    world.disk.cold = set()
    assert append(log, numbered(1)).duplicate


@pytest.mark.parametrize("left", ["nothing", "zeroes"])
async def test_indexes_that_a_crash_took_from_a_segment_that_was_flushed_and_rolled_are_rebuilt(
    left: str,
) -> None:
    """The recovery point is where the next segment begins: its own sync was still to come."""
    world = World(config(index_interval_bytes="100"))
    log = await filled(world, 10)
    await log.flush()
    await world.manager.write_checkpoints()
    log.roll(NOW_MS)
    await settle()
    indexes = [f"{HERE}/{0:020d}{suffix}" for suffix in (".index", ".timeindex")]
    whole = [bytes(world.disk.files[path]) for path in indexes]
    assert all(whole)
    for path, content in zip(indexes, whole, strict=True):
        world.disk.files[path] = bytearray(0 if left == "nothing" else len(content))
        world.disk.durable[path] = bytes(world.disk.files[path])
    log = await world.reopen(clean=False)
    assert log.segments.bases == [0, 10]
    assert [bytes(world.disk.files[path]) for path in indexes] == whole
    assert [world.disk.durable[path] for path in indexes] == whole
