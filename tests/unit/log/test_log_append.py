"""Appending: offsets, epochs, index entries, rolling, and disks that fill up or fail."""

from __future__ import annotations

import errno
import struct

import pytest
from log_world import FOLDER, NOW_MS, Codec, World, append, batch, batches_in, config, read_all

from moldau.base.errors import ErrorCode
from moldau.log.log import Log
from moldau.records.batch import LOG_APPEND_TIME, TRANSACTIONAL, read_header
from moldau.records.record import Record, build_batch

LOG_FILE = f"{FOLDER}/topic-0/00000000000000000000.log"


def index_entries(world: World, log: Log, base: int = 0) -> list[tuple[int, int]]:
    log.segments.at(base).offsets.drain()
    return list(struct.iter_unpack(">ii", world.disk.files[f"{log.folder}/{base:020d}.index"]))


def time_entries(world: World, log: Log, base: int = 0) -> list[tuple[int, int]]:
    log.segments.at(base).times.drain()
    return list(struct.iter_unpack(">qi", world.disk.files[f"{log.folder}/{base:020d}.timeindex"]))


async def test_offsets_are_dense_and_written_with_the_epoch_into_the_batch() -> None:
    world = World()
    log = await world.new_log()
    assert append(log, batch(b"a", b"b"), epoch=3)[:5] == (ErrorCode.none, 0, 1, -1, 0)
    assert append(log, batch(b"c"), epoch=4)[:5] == (ErrorCode.none, 2, 2, -1, 0)
    first, second = batches_in(bytes(world.disk.files[LOG_FILE]))
    assert (read_header(first).base_offset, read_header(first).leader_epoch) == (0, 3)
    assert (read_header(second).base_offset, read_header(second).leader_epoch) == (2, 4)
    assert log.epochs.entries == [(3, 0), (4, 2)]
    assert log.next_offset == 3


async def test_a_batch_within_a_larger_buffer_is_changed_in_place() -> None:
    log = await World().new_log()
    data = batch(b"a")
    buffer = bytearray(b"frame" + data + b"next frame")
    log.append(memoryview(buffer), 5, 5 + len(data), leader_epoch=9, now_ms=NOW_MS)
    assert buffer[:5] == b"frame"
    assert buffer[5 + len(data) :] == b"next frame"
    assert read_header(buffer, 5).leader_epoch == 9


async def test_a_refused_batch_changes_nothing() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"))
    before = bytes(world.disk.files[LOG_FILE])
    refused = append(log, batch(b"b")[:-1] + b"!")
    assert refused[:5] == (ErrorCode.corrupt_message, -1, -1, -1, -1)
    assert bytes(world.disk.files[LOG_FILE]) == before
    assert log.next_offset == 1


async def test_a_retry_is_answered_with_the_offset_and_timestamp_of_the_stored_batch() -> None:
    log = await World().new_log()
    data = batch(b"a", b"b", producer_id=5, producer_epoch=0, base_sequence=0)
    assert append(log, data).base_offset == 0
    again = append(log, data)
    assert (again.error, again.base_offset, again.last_offset, again.append_time_ms) == (
        ErrorCode.none,
        0,
        1,
        NOW_MS,
    )
    assert again.duplicate
    assert log.next_offset == 2
    gap = append(log, batch(b"c", producer_id=5, producer_epoch=0, base_sequence=9))
    assert (gap.error, gap.log_start_offset) == (ErrorCode.out_of_order_sequence_number, 0)


async def test_a_transactional_batch_needs_a_transaction() -> None:
    log = await World().new_log()
    data = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    assert read_header(data).attributes & TRANSACTIONAL
    assert append(log, data).error is ErrorCode.invalid_txn_state


async def test_log_append_time_is_answered_and_stored() -> None:
    log = await World(config(message_timestamp_type="LogAppendTime")).new_log()
    assert append(log, batch(b"a", timestamp=5), now_ms=NOW_MS + 7).append_time_ms == NOW_MS + 7
    assert [record.timestamp for record in read_all(log)] == [NOW_MS + 7]


@pytest.mark.parametrize("codec", Codec)
async def test_a_topic_with_a_codec_stores_every_batch_with_it(codec: Codec) -> None:
    world = World(config(compression_type="zstd"))
    log = await world.new_log()
    append(log, batch(b"a" * 500, b"b", codec=codec, producer_id=1, producer_epoch=0, base_sequence=0))
    header = read_header(world.disk.files[LOG_FILE])
    assert (header.codec_id, header.producer_id, header.base_sequence) == (Codec.ZSTD, 1, 0)
    assert [record.value for record in read_all(log)] == [b"a" * 500, b"b"]


async def test_an_index_entry_comes_after_every_interval() -> None:
    world = World(config(index_interval_bytes="200"))
    log = await world.new_log()
    data = batch(b"x" * 50)
    for i in range(10):
        append(log, batch(b"x" * 50, timestamp=NOW_MS + i))
    size = len(data)
    # Kafka adds an entry for the batch that comes when more than the interval lies behind the last entry.
    assert index_entries(world, log) == [(2, 2 * size), (4, 4 * size), (6, 6 * size), (8, 8 * size)]
    assert time_entries(world, log) == [(NOW_MS + i, i) for i in (2, 4, 6, 8)]


async def test_time_entries_only_ever_rise() -> None:
    world = World(config(index_interval_bytes="1"))
    log = await world.new_log()
    for timestamp in (5, 9, 7, 9, 12):
        append(log, batch(b"x", timestamp=timestamp))
    assert time_entries(world, log) == [(9, 1), (12, 4)]


async def test_a_full_segment_rolls() -> None:
    size = len(batch(b"x" * 100))
    world = World(config(segment_bytes=str(3 * size), index_interval_bytes="100"))
    log = await world.new_log()
    for i in range(7):
        append(log, batch(b"x" * 100, timestamp=NOW_MS + i))
    assert log.segments.bases == [0, 3, 6]
    assert time_entries(world, log)[-1] == (NOW_MS + 2, 2)
    await log.flush()
    assert {f"{base:020d}.snapshot" for base in (3, 6)} <= set(world.disk.list(log.folder))
    assert len(read_all(log)) == 7


async def test_a_segment_rolls_by_the_time_of_its_records() -> None:
    log = await World(config(segment_ms="1000")).new_log()
    for timestamp in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS + 1500, NOW_MS + 2002):
        append(log, batch(b"x", timestamp=timestamp), now_ms=NOW_MS)
    assert log.segments.bases == [0, 2, 4]


async def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    log = await World(config(segment_ms="1000")).new_log()
    for now_ms in (NOW_MS, NOW_MS + 900, NOW_MS + 1100):
        append(log, batch(b"x", timestamp=-1), now_ms=now_ms)
    assert log.segments.bases == [0, 2]


async def test_jitter_lets_segments_roll_earlier() -> None:
    log = await World(config(segment_ms="1000", segment_jitter_ms="900")).new_log()
    assert 100 <= log.segments.active.roll_after_ms <= 1000


async def test_a_full_index_rolls_the_segment() -> None:
    log = await World(config(segment_index_bytes="36", index_interval_bytes="1")).new_log()
    for i in range(8):
        append(log, batch(b"x", timestamp=NOW_MS + i))
    assert log.segments.bases == [0, 3, 6]


async def test_offsets_too_far_from_the_base_roll_the_segment() -> None:
    log = await World().new_log()
    append(log, batch(b"a"))
    log.next_offset = 2**31 - 1
    append(log, batch(b"b"))
    append(log, batch(b"c"))
    assert log.segments.bases == [0, 2**31]


async def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = await World(config(segment_bytes="200")).new_log()
    assert append(log, batch(b"x" * 500)).error is ErrorCode.record_list_too_large


async def test_a_full_disk_leaves_no_half_batch_and_the_log_goes_on_when_there_is_room() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"a"))
    before = bytes(world.disk.files[LOG_FILE])
    world.disk.free = 30
    with pytest.raises(OSError, match="No space") as full:
        append(log, batch(b"b"))
    assert full.value.errno == errno.ENOSPC
    assert bytes(world.disk.files[LOG_FILE]) == before
    assert log.next_offset == 1
    world.disk.free = None
    assert append(log, batch(b"c")).base_offset == 1
    assert [record.value for record in read_all(log)] == [b"a", b"c"]


async def test_a_short_write_is_completed() -> None:
    world = World()
    log = await world.new_log()
    room = iter([30, 5])
    world.disk.room = lambda wanted: min(wanted, next(room, wanted))  # type: ignore[method-assign]
    append(log, batch(b"a" * 100))
    assert [record.value for record in read_all(log)] == [b"a" * 100]


async def test_a_roll_that_fails_leaves_the_log_as_it_was() -> None:
    size = len(batch(b"x"))
    world = World(config(segment_bytes=str(size)))
    log = await world.new_log()
    append(log, batch(b"x"))
    world.disk.failing["create", "1.log"] = errno.ENOSPC
    with pytest.raises(OSError, match="injected"):
        append(log, batch(b"y"))
    assert log.segments.bases == [0]
    world.disk.failing.clear()
    assert append(log, batch(b"z")).base_offset == 1
    assert [record.value for record in read_all(log)] == [b"x", b"z"]


async def test_index_entries_wait_in_memory_while_the_disk_is_full() -> None:
    world = World(config(index_interval_bytes="1"))
    log = await world.new_log()
    world.disk.failing["pwrite", ".index"] = errno.ENOSPC
    for _ in range(100):
        assert append(log, batch(b"x")).error is ErrorCode.none
    world.disk.failing.clear()
    assert len(index_entries(world, log)) == 99


async def test_new_settings_hold_from_the_next_append_on() -> None:
    log = await World().new_log()
    append(log, batch(b"x"))
    log.configure(config(max_message_bytes="50", message_timestamp_type="LogAppendTime"))
    assert append(log, batch(b"x")).error is ErrorCode.message_too_large
    log.configure(config(message_timestamp_type="LogAppendTime"))
    assert append(log, batch(b"x")).append_time_ms == NOW_MS


async def test_the_stored_batch_is_the_clients_but_for_offset_and_epoch() -> None:
    world = World()
    log = await world.new_log()
    sent = build_batch([Record(0, NOW_MS, b"k", b"v", (("h", b"x"),))], codec=Codec.LZ4)
    append(log, batch(b"first"))
    append(log, sent, epoch=2)
    stored = batches_in(bytes(world.disk.files[LOG_FILE]))[1]
    assert stored[16:] == sent[16:]
    assert not read_header(stored).attributes & LOG_APPEND_TIME
