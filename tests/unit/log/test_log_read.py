"""Reading: places in files by offset and by timestamp, without touching the data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from log_world import NOW_MS, Codec, World, append, batch, batches_in, config, data_of, read_all, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log import checked
from moldau.log.index import read_waiting
from moldau.log.log import Log
from moldau.log.reader import EMPTY, POSITIONS_MAX, UNKNOWN, TimestampOffset
from moldau.log.segments import CLOSED_SEGMENTS_KEPT
from moldau.records.batch import NO_TIMESTAMP, read_header
from moldau.records.record import Record, build_batch

SIZE = len(batch(b"x" * 100))


async def filled(count: int, world: World | None = None) -> Log:
    """One record per batch, timestamps NOW_MS, NOW_MS + 10, ..."""
    log = await (world or World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))).new_log()
    for i in range(count):
        append(log, batch(b"x" * 100, timestamp=NOW_MS + 10 * i), epoch=i // 25)
    return log


def offsets(log: Log, offset: int, max_bytes: int, below: int | None = None, whole: bool = True) -> list[int]:
    found = log.read(
        offset,
        max_bytes,
        below_offset=log.next_offset if below is None else below,
        whole_first_batch=whole,
    )
    batches = [read_header(data) for data in batches_in(data_of(found))]
    assert found.next_offset == (batches[-1].next_offset if batches else UNKNOWN)
    return [header.base_offset for header in batches]


async def test_a_read_begins_with_the_batch_of_its_offset() -> None:
    log = await World().new_log()
    append(log, batch(b"a", b"b", b"c"))
    append(log, batch(b"d"))
    assert [offsets(log, offset, 10**6) for offset in range(4)] == [[0, 3]] * 3 + [[3]]


async def test_every_offset_is_found_whatever_was_read_before() -> None:
    log = await filled(90)
    for offset in [*range(90), *range(89, -1, -1)]:
        assert offsets(log, offset, 2 * SIZE)[0] == offset


async def test_a_read_holds_whole_batches_up_to_its_size() -> None:
    log = await filled(60)
    assert offsets(log, 4, 3 * SIZE) == [4, 5, 6]
    assert offsets(log, 4, 3 * SIZE + SIZE - 1) == [4, 5, 6]
    assert offsets(log, 4, 4 * SIZE) == [4, 5, 6, 7]
    assert offsets(log, 7, 10**6) == list(range(7, 20)), "a read ends with its segment"


async def test_a_first_batch_larger_than_asked_comes_whole_or_not_at_all() -> None:
    log = await filled(30)
    assert offsets(log, 4, 10) == [4]
    assert offsets(log, 4, 0) == [4]
    assert log.read(4, 10, below_offset=30, whole_first_batch=False) == EMPTY
    assert offsets(log, 4, SIZE, whole=False) == [4]


async def test_a_read_stays_below_an_offset_at_a_batchs_end() -> None:
    log = await World().new_log()
    for values in ((b"a", b"b"), (b"c",), (b"d", b"e", b"f"), (b"g",)):
        append(log, batch(*values))
    assert offsets(log, 0, 10**6, below=3) == [0, 2]
    assert offsets(log, 0, 10**6, below=5) == [0, 2], "the batch of offset 5 is not wholly below it"
    assert offsets(log, 0, 10**6, below=6) == [0, 2, 3]
    assert offsets(log, 3, 10**6, below=4) == []
    assert log.read(5, 10**6, below_offset=5, whole_first_batch=True) == EMPTY


async def test_reads_below_an_offset_cross_segments() -> None:
    log = await filled(50)
    assert offsets(log, 15, 10**6, below=45) == list(range(15, 20))
    assert offsets(log, 42, 10**6, below=45) == [42, 43, 44]


async def test_offsets_outside_the_log_are_out_of_range() -> None:
    log = await filled(3)
    assert log.read(3, 100, below_offset=3, whole_first_batch=True) == EMPTY
    for offset in (-1, 4):
        with pytest.raises(KafkaError) as refused:
            log.read(offset, 100, below_offset=3, whole_first_batch=True)
        assert refused.value.code is ErrorCode.offset_out_of_range


async def test_a_reader_of_the_tail_needs_no_look_up() -> None:
    world = World()
    log = await filled(10, world)
    assert len(read_all(log)) == 10
    world.disk.calls.clear()
    for i in range(10, 20):
        append(log, batch(b"x" * 100))
        found = log.read(i, 10**6, below_offset=log.next_offset, whole_first_batch=True)
        assert (found.position, found.length) == (i * SIZE, SIZE)
    assert world.disk.reads_of("") == 0


async def test_a_sequential_reader_needs_one_look_up_per_read() -> None:
    world = World(config(index_interval_bytes="300"))
    log = await filled(200, world)
    offset = 0
    world.disk.calls.clear()
    while offset < 200:
        offset = offsets(log, offset, 10 * SIZE)[-1] + 1
    data_reads = sum(
        n for (what, name), n in world.disk.calls.items() if what == "pread_nowait" and ".log" in name
    )
    assert data_reads <= 2 * 20


async def test_memory_of_readers_and_of_closed_segments_is_bounded() -> None:
    world = World(config(segment_bytes=str(SIZE)))
    log = await filled(100, world)
    for offset in range(100):
        await log.warm(offset, 10)
        assert offsets(log, offset, 10) == [offset]
    assert len(log._reader._positions) <= POSITIONS_MAX
    assert len(log.segments._closed) <= CLOSED_SEGMENTS_KEPT


async def test_a_cold_index_or_header_says_so_and_warming_reads_it_in() -> None:
    world = World(config(index_interval_bytes="300"))
    log = await filled(100, world)
    for suffix in (".log", ".index"):
        world.disk.cold = {suffix}
        log._reader.forget_positions()
        with pytest.raises(BlockingIOError):
            log.read(50, 1000, below_offset=100, whole_first_batch=True)
        world.disk.calls.clear()
        await log.warm(50, 1000)
        assert world.disk.calls["pread", "00000000000000000000.log"] >= 1
    world.disk.cold = set()
    assert offsets(log, 50, SIZE) == [50]


async def test_timestamps_are_found_to_the_message() -> None:
    log = await World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="1")).new_log()
    for i in range(0, 60, 3):
        rows = [Record(j, NOW_MS + 10 * (i + j), b"k", b"x" * 100) for j in range(3)]
        append(log, build_batch(rows, codec=Codec.ZSTD), epoch=i // 30)
    for i in range(60):
        assert log.offset_for_timestamp(NOW_MS + 10 * i) == TimestampOffset(NOW_MS + 10 * i, i, i // 30)
        assert log.offset_for_timestamp(NOW_MS + 10 * i - 1) == TimestampOffset(NOW_MS + 10 * i, i, i // 30)
    assert log.offset_for_timestamp(0) == TimestampOffset(NOW_MS, 0, 0)
    assert log.offset_for_timestamp(NOW_MS + 591) is None


async def test_timestamps_out_of_order_give_the_first_record_that_is_late_enough() -> None:
    times = [50, 20, 70, 30, 90, 10, 80]
    log = await World(config(segment_bytes=str(2 * SIZE), index_interval_bytes="1")).new_log()
    for timestamp in times:
        append(log, batch(b"x" * 100, timestamp=timestamp))
    for target in range(100):
        late = [(offset, time) for offset, time in enumerate(times) if time >= target]
        found = log.offset_for_timestamp(target)
        assert (found and found[1::-1]) == (late[0] if late else None)
    assert log.max_timestamp_offset() == TimestampOffset(90, 4, 0)


async def test_the_largest_timestamp_gives_its_first_record() -> None:
    log = await World().new_log()
    assert log.max_timestamp_offset() is None
    for _ in range(2):
        append(log, batch(b"none", timestamp=NO_TIMESTAMP))
    assert log.max_timestamp_offset() == TimestampOffset(NO_TIMESTAMP, 0, 0)
    append(log, build_batch([Record(i, t, None, b"v") for i, t in enumerate((5, 9, 7, 9))]))
    append(log, batch(b"v", timestamp=9))
    assert log.max_timestamp_offset() == TimestampOffset(9, 3, 0)


async def test_timestamps_before_the_log_start_do_not_count() -> None:
    log = await filled(50)
    log.log_start_offset = 7
    assert log.offset_for_timestamp(0) == TimestampOffset(NOW_MS + 70, 7, 0)


async def test_a_cold_look_up_by_timestamp_waits_in_a_thread() -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    log = await filled(90, world)
    world.disk.cold = {".log", ".index", ".timeindex"}
    with pytest.raises(BlockingIOError):
        log.offset_for_timestamp(NOW_MS + 300)
    assert await log.find_timestamp(NOW_MS + 300) == TimestampOffset(NOW_MS + 300, 30, 1)
    assert await log.find_max_timestamp() == TimestampOffset(NOW_MS + 890, 89, 3)


async def test_a_gap_at_a_segments_end_is_read_over() -> None:
    """Compaction may leave a segment whose last offsets are gone."""
    world = World(config(segment_bytes=str(3 * SIZE), index_interval_bytes="1"))
    log = await filled(9, world)
    first = log.segments.at(0)
    first.cut(first.look_at_cut(SIZE, 1, read_waiting))
    log._reader.forget_positions()
    assert offsets(log, 1, 10**6) == [3, 4, 5]


def overwrite(world: World, log: Log, suffix: str, change: Callable[[bytes], bytes]) -> None:
    """Change every closed segment's file as bit rot would, behind the log's back."""
    for base in log.segments.bases[:-1]:
        path = f"{log.folder}/{base:020d}{suffix}"
        world.disk.files[path] = bytearray(change(bytes(world.disk.files[path])))
    log.segments._closed.clear()
    log._reader.forget_positions()


def shift_positions(content: bytes) -> bytes:
    """Each entry points into the middle of a batch."""
    return b"".join(content[i : i + 7] + bytes([content[i + 7] ^ 9]) for i in range(0, len(content), 8))


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: bytes(byte ^ 0x55 for byte in content),
        shift_positions,
        lambda content: content[:4] + content[12:16] + content[8:],
    ],
    ids=["noise", "positions within batches", "the first entry points to the second's batch"],
)
async def test_an_index_that_leads_astray_is_rebuilt_while_running(damage: Callable[[bytes], bytes]) -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    log = await filled(90, world)
    overwrite(world, log, ".index", damage)
    for offset in range(80):
        for _ in range(3):
            try:
                assert offsets(log, offset, SIZE) == [offset]
                break
            except BlockingIOError:
                await log.warm(offset, SIZE)
        else:
            pytest.fail(f"offset {offset} was not found")


async def test_damaged_data_is_an_error_and_not_served() -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    log = await filled(90, world)
    overwrite(world, log, ".log", lambda content: bytes(len(content)))
    with pytest.raises(BlockingIOError):
        log.read(30, SIZE, below_offset=90, whole_first_batch=True)
    await log.warm(30, SIZE)
    with pytest.raises(KafkaError) as refused:
        log.read(30, SIZE, below_offset=90, whole_first_batch=True)
    assert refused.value.code is ErrorCode.corrupt_message
    with pytest.raises(KafkaError):
        await log.find_timestamp(NOW_MS + 300)
    assert offsets(log, 85, SIZE) == [85], "other segments go on"


async def test_readers_of_a_segment_share_the_rebuilding_of_its_index() -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    log = await filled(90, world)
    await log.flush()
    overwrite(world, log, ".index", shift_positions)
    world.tasks.held = True
    for offset in (25, 31):
        with pytest.raises(BlockingIOError):
            offsets(log, offset, SIZE)
    readers = [asyncio.ensure_future(log.warm(offset, SIZE)) for offset in (25, 31)]
    await settle()
    with pytest.raises(BlockingIOError):
        offsets(log, 31, SIZE)
    assert len(world.tasks.waiting) == 1
    world.tasks.held = False
    world.tasks.release()
    await asyncio.gather(*readers)
    assert [offsets(log, offset, SIZE) for offset in (25, 31)] == [[25], [31]]


async def test_the_largest_timestamp_may_lie_below_the_log_start_as_in_kafka() -> None:
    """Apache Kafka 4.3.1 answers with a deleted record while its segment is there."""
    log = await filled(50)
    append(log, batch(b"x", timestamp=NOW_MS + 10_000))
    append(log, batch(b"x", timestamp=NOW_MS))
    log.log_start_offset = 51
    assert log.max_timestamp_offset() == TimestampOffset(NOW_MS + 10_000, 50, 0)


async def test_what_was_there_before_the_start_is_checked_once_where_it_is_much_by_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    await filled(90, world)
    log = await world.reopen(clean=True)
    monkeypatch.setattr(checked, "CHECKED_INLINE_BYTES_MAX", 10 * SIZE - 1)
    with pytest.raises(BlockingIOError, match="must be checked"):
        log.read(20, 10 * SIZE, below_offset=90, whole_first_batch=True)
    await log.warm(20, 10 * SIZE)
    world.disk.calls.clear()
    assert offsets(log, 20, 10 * SIZE) == list(range(20, 30))
    assert offsets(log, 23, 20 * SIZE) == list(range(23, 30)), "as far as it is checked"
    append(log, batch(b"new"))
    assert offsets(log, 90, SIZE) == [90], "what is appended was checked"


async def test_what_is_read_before_all_of_it_is_checked_says_where_it_ends() -> None:
    world = World(config())
    log = await filled(10, world)
    log = await world.reopen(clean=True)
    segment = log.segments.active
    segment.checked.above = 10 * SIZE
    segment.checked.add(0, 4 * SIZE)
    assert log.read(1, 10**6, below_offset=10, whole_first_batch=True)[1:] == (SIZE, 3 * SIZE, 4)


async def test_little_from_before_the_start_is_checked_on_the_loop_where_it_is_first_read() -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    await filled(90, world)
    log = await world.reopen(clean=True)
    assert offsets(log, 20, 10 * SIZE) == list(range(20, 30))
    world.disk.calls.clear()
    log.read(20, 10 * SIZE, below_offset=90, whole_first_batch=True)
    again = len(world.disk.calls)
    assert offsets(log, 50, SIZE) == [50]
    world.disk.cold = {".log"}
    with pytest.raises(BlockingIOError):
        log.read(60, SIZE, below_offset=90, whole_first_batch=True)
    world.disk.cold = set()
    world.disk.calls.clear()
    log.read(20, 10 * SIZE, below_offset=90, whole_first_batch=True)
    assert len(world.disk.calls) == again, "what was checked is not read again for it"


async def test_nothing_is_checked_on_the_loop_where_nobody_can_tell_what_is_cached() -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    await filled(90, world)
    world.disk.nowait = False
    log = await world.reopen(clean=True)
    with pytest.raises(BlockingIOError, match="must be checked"):
        log.read(20, 10 * SIZE, below_offset=90, whole_first_batch=True)
    await log.warm(20, 10 * SIZE)
    assert offsets(log, 20, 10 * SIZE) == list(range(20, 30))


async def test_what_is_checked_in_a_turn_of_the_loop_is_bounded_and_the_next_has_as_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(config(segment_bytes=str(20 * SIZE), index_interval_bytes="300"))
    await filled(90, world)
    monkeypatch.setattr(checked, "CHECKED_BATCHES_PER_TURN", 5)
    log = await world.reopen(clean=True)
    await asyncio.sleep(0)
    assert offsets(log, 20, 4 * SIZE) == [20, 21, 22, 23]
    assert offsets(log, 40, 4 * SIZE) == [40], "as far as it goes"
    with pytest.raises(BlockingIOError, match="must be checked"):
        log.read(45, SIZE, below_offset=90, whole_first_batch=True)
    await asyncio.sleep(0)
    assert offsets(log, 45, SIZE) == [45]


async def test_a_batch_that_went_bad_is_found_on_the_loop_and_told_as_ever() -> None:
    world = World(config(segment_bytes=str(90 * SIZE)))
    await filled(30, world)
    log = await world.reopen(clean=True)
    file = log.segments.active.log
    file.pwrite(bytes([file.pread(1, 12 * SIZE - 1)[0] ^ 1]), 12 * SIZE - 1)
    assert offsets(log, 9, 10 * SIZE) == [9, 10], "what lies before it is sound"
    with pytest.raises(KafkaError) as told:
        log.read(11, SIZE, below_offset=30, whole_first_batch=True)
    assert told.value.code is ErrorCode.corrupt_message
    assert offsets(log, 12, 2 * SIZE) == [12, 13]
