"""Transactions in a log: open ones, markers, the index of aborted ones, and all of it after a crash."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from log_world import (
    FOLDER,
    NOW_MS,
    World,
    append,
    batch,
    batches_in,
    config,
    data_of,
    read_all,
    read_checked,
)

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.log import Log
from moldau.log.producers import Verification
from moldau.log.transactions import Marker, build_marker, read_marker
from moldau.log.transactions_index import ENTRY
from moldau.records.batch import LOG_APPEND_TIME, PRODUCER_EPOCH_MAX, read_header

SMALL = {"segment_bytes": "300"}


def begin(log: Log, producer_id: int, sequence: int = 0, *, epoch: int = 0, version: int = 0) -> Any:
    """A batch of a transaction that its coordinator knows of."""
    guard = log.producing.begin_verification(producer_id, epoch, sequence, version >= 2)
    return send(log, producer_id, sequence, epoch, guard)


def send(log: Log, producer_id: int, sequence: int, epoch: int, guard: Verification | None) -> Any:
    data = batch(
        b"v",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )
    buffer = memoryview(bytearray(data))
    return log.append(buffer, 0, len(buffer), leader_epoch=0, now_ms=NOW_MS, guard=guard)


def end(log: Log, producer_id: int, *, commit: bool, epoch: int = 0, version: int = 0, by: int = 0) -> Any:
    return log.producing.append_marker(Marker(commit, by), producer_id, epoch, 0, NOW_MS, version)


def unstable(log: Log, high_watermark: int | None = None) -> int | None:
    end_offset = log.next_offset if high_watermark is None else high_watermark
    return log.producing.state.open.first_unstable_offset(end_offset)


def aborted(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[tuple[int, int]]:
    found = read_checked(log, offset, max_bytes)
    return log.producing.aborted_in(offset, found)


def entries_on_disk(world: World) -> dict[str, list[tuple[int, ...]]]:
    return {
        path.rsplit("/", 1)[1]: [fields[1:] for fields in ENTRY.iter_unpack(bytes(content))]
        for path, content in sorted(world.disk.files.items())
        if path.endswith(".txnindex")
    }


def test_a_marker_is_read_as_it_was_built() -> None:
    for marker in (Marker(True, 7), Marker(False, 0)):
        assert read_marker(build_marker(marker, 5, 3, NOW_MS)) == marker
    assert read_marker(batch(b"v")) is None


async def test_the_brokers_own_batches_have_the_topics_kind_of_time() -> None:
    log = await World(config(message_timestamp_type="LogAppendTime")).new_log()
    begin(log, 1)
    end(log, 1, commit=True)
    own = batch(b"v", timestamp=NOW_MS - 5, producer_id=2, producer_epoch=0, transactional=True)
    log.producing.append_own(own, 0, NOW_MS)
    found = [read_header(one) for one in batches_in(data_of(read_checked(log, 0)))]
    assert [header.attributes & LOG_APPEND_TIME for header in found] == [LOG_APPEND_TIME] * 3
    assert [header.max_timestamp for header in found] == [NOW_MS] * 3


async def test_the_first_unstable_offset_is_that_of_the_oldest_open_transaction() -> None:
    log = await World().new_log()
    append(log, batch(b"plain"))
    assert unstable(log) is None
    begin(log, 1)
    begin(log, 2)
    begin(log, 1, sequence=1)
    assert unstable(log) == 1
    end(log, 1, commit=True)
    assert unstable(log) == 2
    end(log, 2, commit=True)
    assert unstable(log) is None


async def test_a_transaction_is_undecided_until_its_marker_is_below_the_high_watermark() -> None:
    log = await World().new_log()
    begin(log, 1)
    end(log, 1, commit=True)
    append(log, batch(b"plain"))
    assert unstable(log, high_watermark=1) == 0
    assert unstable(log, high_watermark=2) is None


async def test_aborted_transactions_are_found_for_the_records_that_are_read() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)  # 0
    begin(log, 2)  # 1
    end(log, 1, commit=False)  # 2
    end(log, 2, commit=True)  # 3
    begin(log, 1, sequence=1)  # 4
    end(log, 1, commit=False)  # 5
    assert aborted(log, 0) == [(1, 0), (1, 4)]
    assert aborted(log, 3) == [(1, 4)]
    assert aborted(log, 6) == []
    assert entries_on_disk(world) == {
        "00000000000000000000.txnindex": [(1, 0, 2, 1), (1, 4, 5, 6)],
    }


async def test_a_log_without_aborted_transactions_has_no_index_of_them() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    end(log, 1, commit=True)
    assert entries_on_disk(world) == {}
    assert aborted(log, 0) == []


async def test_a_transaction_over_several_segments_is_in_the_index_of_its_marker() -> None:
    world = World(config(**SMALL))
    log = await world.new_log()
    for sequence in range(8):
        begin(log, 1, sequence)
    end(log, 1, commit=False)
    assert len(log.segments) > 2
    assert list(entries_on_disk(world)) == [f"{log.segments.active.base_offset:020d}.txnindex"]
    assert aborted(log, 0, max_bytes=100) == [(1, 0)]


async def test_an_aborted_transaction_without_records_here_is_not_listed() -> None:
    world = World()
    log = await world.new_log()
    append(log, batch(b"plain"))
    end(log, 9, commit=False)
    assert entries_on_disk(world) == {}
    assert [(p.producer_id, p.epoch, p.last_sequence) for p in log.producers()] == [(9, 0, -1)]


async def test_a_batch_without_a_verified_transaction_is_refused() -> None:
    log = await World().new_log()
    data = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    assert append(log, data).error is ErrorCode.invalid_txn_state
    begin(log, 1)
    assert append(
        log, batch(b"w", producer_id=1, producer_epoch=0, base_sequence=1, transactional=True)
    ).error is (ErrorCode.none)


async def test_a_marker_makes_a_guard_worthless() -> None:
    """The coordinator has aborted the transaction while the batch was on its way: nobody would ever end it."""
    log = await World().new_log()
    guard = log.producing.begin_verification(1, 0, 0, False)
    end(log, 1, commit=False)
    assert send(log, 1, 0, 0, guard).error is ErrorCode.invalid_txn_state
    with pytest.raises(KafkaError) as refused:
        log.producing.check_verified(1, 0, guard)
    assert refused.value.code is ErrorCode.invalid_txn_state
    assert unstable(log) is None


async def test_a_batch_that_a_later_epoch_has_overtaken_is_told_so_before_its_guard_is_looked_at() -> None:
    """Its producer can go on from there; a transaction's state that does not fit would end it."""
    log = await World().new_log()
    guard = log.producing.begin_verification(1, 0, 0, True)
    end(log, 1, commit=False, epoch=1, version=2)
    assert send(log, 1, 0, 0, guard).error is ErrorCode.invalid_producer_epoch
    for ask in (
        lambda: log.producing.check_verified(1, 0, guard),
        lambda: log.producing.begin_verification(1, 0, 0, True),
    ):
        with pytest.raises(KafkaError) as refused:
            ask()
        assert refused.value.code is ErrorCode.invalid_producer_epoch


@pytest.mark.parametrize(
    ("version", "epoch", "is_kept"), [(2, 5, True), (0, 5, False), (2, 6, False)], ids=str
)
async def test_a_marker_that_is_written_again_leaves_the_next_transaction_alone(
    version: int, epoch: int, is_kept: bool
) -> None:
    """With an epoch for each transaction the marker's epoch is that of the next one, which has begun meanwhile."""
    log = await World().new_log()
    begin(log, 1, epoch=4, version=2)
    end(log, 1, commit=True, epoch=5, version=2)
    guard = log.producing.begin_verification(1, 5, 0, True)
    assert end(log, 1, commit=True, epoch=epoch, version=version).error is ErrorCode.none
    assert log.producing.state.is_verified(1, 5, guard) is is_kept
    assert (send(log, 1, 0, 5, guard).error is ErrorCode.none) is is_kept


async def test_requests_in_flight_cannot_overtake_the_first_of_a_transaction() -> None:
    log = await World().new_log()
    assert log.producing.begin_verification(1, 0, 0, False) is not None  # sequence 0 is being verified
    assert begin(log, 1, sequence=1).error is ErrorCode.out_of_order_sequence_number
    assert begin(log, 1, sequence=0).error is ErrorCode.none
    assert begin(log, 1, sequence=1).error is ErrorCode.none


async def test_an_epoch_of_its_own_begins_with_sequence_zero() -> None:
    log = await World().new_log()
    assert begin(log, 1, sequence=3, version=2).error is ErrorCode.out_of_order_sequence_number
    assert begin(log, 2, sequence=3, version=1).error is ErrorCode.none


async def test_a_plain_batch_of_a_producer_with_an_open_transaction_is_refused() -> None:
    log = await World().new_log()
    begin(log, 1)
    plain = batch(b"v", producer_id=1, producer_epoch=0, base_sequence=1)
    assert append(log, plain).error is ErrorCode.invalid_txn_state


async def test_markers_are_fenced_by_both_epochs() -> None:
    log = await World().new_log()
    begin(log, 1, epoch=4)
    assert end(log, 1, commit=True, epoch=3).error is ErrorCode.invalid_producer_epoch
    assert end(log, 1, commit=True, epoch=4, version=2).error is ErrorCode.invalid_producer_epoch
    assert end(log, 1, commit=True, epoch=5, version=2, by=3).error is ErrorCode.none
    assert end(log, 1, commit=True, epoch=5, version=2, by=3).error is ErrorCode.none  # written again
    assert (
        end(log, 1, commit=True, epoch=5, version=2, by=2).error is ErrorCode.transaction_coordinator_fenced
    )
    assert send(log, 1, 0, 4, None).error is ErrorCode.invalid_producer_epoch


async def test_a_marker_of_the_largest_epoch_ends_a_transaction_of_that_epoch() -> None:
    """There is none that could follow."""
    log = await World().new_log()
    begin(log, 1, epoch=PRODUCER_EPOCH_MAX, version=2)
    assert end(log, 1, commit=True, epoch=PRODUCER_EPOCH_MAX, version=2).error is ErrorCode.none
    assert unstable(log) is None


async def test_a_coordinators_batch_in_a_transaction_needs_no_sequence() -> None:
    log = await World().new_log()
    own = batch(b"offset", producer_id=1, producer_epoch=2, transactional=True)
    assert log.producing.append_own(own, 0, NOW_MS).error is ErrorCode.none
    assert unstable(log) == 0
    old = batch(b"offset", producer_id=1, producer_epoch=1, transactional=True)
    assert log.producing.append_own(old, 0, NOW_MS).error is ErrorCode.invalid_producer_epoch
    end(log, 1, commit=False, epoch=2)
    assert aborted(log, 0) == [(1, 0)]


@pytest.mark.parametrize("clean", [True, False])
async def test_open_transactions_survive_a_restart(clean: bool) -> None:
    world = World(config(**SMALL))
    log = await world.new_log()
    begin(log, 1)
    begin(log, 2)
    for sequence in range(1, 6):
        begin(log, 1, sequence)
    end(log, 1, commit=False)
    begin(log, 3)
    await log.flush()
    before = [
        (p.producer_id, p.epoch, p.current_txn_first_offset, p.coordinator_epoch) for p in log.producers()
    ]
    found, on_disk = aborted(log, 0), entries_on_disk(world)
    log = await world.reopen(clean=clean)
    assert [
        (p.producer_id, p.epoch, p.current_txn_first_offset, p.coordinator_epoch) for p in log.producers()
    ] == before
    assert unstable(log) == 1
    assert aborted(log, 0) == found == [(1, 0)]
    assert entries_on_disk(world) == on_disk
    end(log, 2, commit=True)
    assert unstable(log) == 8


@pytest.mark.parametrize("damage", [b"\0", b"\0" * 33, b"\0" * 34, b"\0" * 40, b"\xff" * 34])
async def test_a_damaged_index_of_aborted_transactions_is_made_anew(damage: bytes) -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    end(log, 1, commit=False)
    good = entries_on_disk(world)
    await world.manager.close()
    path = f"{FOLDER}/topic-0/00000000000000000000.txnindex"
    world.disk.files[path] = bytearray(damage)
    manager = await world.open()
    log = next(iter(manager.logs.values()))
    assert aborted(log, 0) == [(1, 0)]
    assert entries_on_disk(world) == good


@pytest.mark.parametrize("seed", range(40))
async def test_after_any_crash_the_index_is_that_of_the_batches(seed: int) -> None:
    """A model: open transactions and aborted ones as the surviving batches say."""
    rng = random.Random(seed)
    world = World(config(**SMALL))
    log = await world.new_log()
    sequences: dict[int, int] = {}
    for _ in range(3):
        for _ in range(rng.randrange(5, 40)):
            producer_id = rng.randrange(4)
            if rng.random() < 0.6:
                if begin(log, producer_id, sequences.get(producer_id, 0)).error is ErrorCode.none:
                    sequences[producer_id] = sequences.get(producer_id, 0) + 1
            else:
                end(log, producer_id, commit=rng.random() < 0.5)
            if rng.random() < 0.1:
                await log.flush()
        log = await world.reopen(clean=rng.random() < 0.3, rng=rng)
        opened, ended = _as_the_batches_say(log)
        assert {
            p.producer_id: p.current_txn_first_offset
            for p in log.producers()
            if p.current_txn_first_offset >= 0
        } == opened
        assert unstable(log) == min(opened.values(), default=None)
        found = [entry[:2] for entries in entries_on_disk(world).values() for entry in entries]
        assert found == ended
        sequences = {p.producer_id: p.last_sequence + 1 for p in log.producers()}


def _as_the_batches_say(log: Log) -> tuple[dict[int, int], list[tuple[int, int]]]:
    opened: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    offset = log.log_start_offset
    while offset < log.next_offset:
        data = data_of(read_checked(log, offset, 1))
        producer_id = int.from_bytes(data[43:51], "big")
        marker = read_marker(data) if data[22] & 0x20 else None
        if marker is None:
            opened.setdefault(producer_id, offset)
        elif (first := opened.pop(producer_id, None)) is not None and not marker.is_commit:
            ended.append((producer_id, first))
        offset += 1
    return opened, ended


async def test_the_index_goes_with_its_segment() -> None:
    world = World(config(**SMALL))
    log = await world.new_log()
    begin(log, 1)
    end(log, 1, commit=False)
    while len(log.segments) == 1:
        append(log, batch(b"plain" * 10))
    log.delete_records_before(log.next_offset)
    assert await log.remove_old_segments() == 1
    assert entries_on_disk(world) == {}
    assert "00000000000000000000.txnindex.deleted" in world.disk.list(log.folder)
    await world.tasks.advance(120)
    assert not [name for name in world.disk.list(log.folder) if "txnindex" in name]


async def test_an_entry_that_there_is_no_room_for_counts_and_is_written_later() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    world.disk.failing["pwrite", ".txnindex"] = 28  # ENOSPC
    assert end(log, 1, commit=False).error is ErrorCode.none
    assert entries_on_disk(world)["00000000000000000000.txnindex"] == []
    assert aborted(log, 0) == [(1, 0)]
    world.disk.failing.clear()
    log.write_unwritten()
    assert entries_on_disk(world)["00000000000000000000.txnindex"] == [(1, 0, 1, 2)]
    assert aborted(log, 0) == [(1, 0)]


async def test_a_cut_takes_the_entries_of_the_markers_that_go() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    end(log, 1, commit=False)
    begin(log, 1, sequence=1)
    end(log, 1, commit=False)
    await log.truncate_to(3, world.manager.write_checkpoints_of)
    assert entries_on_disk(world) == {"00000000000000000000.txnindex": [(1, 0, 1, 2)]}
    assert unstable(log) == 2
    assert len(read_all(log)) == 3


async def test_a_log_whose_index_cannot_be_cut_off_is_offline_and_right_after_a_start() -> None:
    """It would hide what the same producer writes there later."""
    world = World()
    log = await world.new_log()
    append(log, batch(b"plain"))
    begin(log, 1)
    end(log, 1, commit=False)
    begin(log, 1, 1)
    end(log, 1, commit=False)
    await log.flush()
    world.disk.failing["truncate", ".txnindex"] = errno.EIO
    with pytest.raises(OSError, match="injected"):
        await log.truncate_to(3, world.manager.write_checkpoints_of)
    assert log.failure is not None
    world.disk.failing.clear()
    log = await world.reopen(clean=False)
    assert log.next_offset in (3, 4, 5)
    assert aborted(log, 0) == [(1, 1), (1, 3)][: log.next_offset // 2]


async def test_an_aborted_transaction_below_the_recovery_point_is_in_the_index_after_a_power_cut() -> None:
    """Flushed, then rolled and not synced: the next start does not look into the old segment again."""
    for seed in range(8):
        world = World()
        log = await world.new_log()
        begin(log, 1)
        end(log, 1, commit=False)
        await log.flush()
        await world.manager.write_checkpoints()
        world.tasks.held = True
        log.roll(NOW_MS)
        log = await world.reopen(clean=False, rng=random.Random(seed))
        assert (log.next_offset, log.last_flushed_offset) == (2, 2)
        assert aborted(log, 0) == [(1, 0)]


async def test_without_room_for_an_entry_a_roll_and_a_flush_go_on_and_the_recovery_point_waits() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    world.disk.failing["pwrite", ".txnindex"] = errno.ENOSPC
    end(log, 1, commit=False)
    log.roll(NOW_MS)
    append(log, batch(b"plain"))
    await log.flush()
    assert log.failure is None and log.last_flushed_offset == 0
    assert world.manager.folders[0].no_room is not None
    world.disk.failing.clear()
    await world.tasks.advance(2)
    await log.flush()
    assert log.last_flushed_offset == 3
    assert list(entries_on_disk(world)) == ["00000000000000000000.txnindex"]
    assert aborted(await world.reopen(clean=False), 0) == [(1, 0)]


async def test_a_stop_without_room_for_an_entry_is_not_clean() -> None:
    world = World()
    log = await world.new_log()
    begin(log, 1)
    world.disk.failing["pwrite", ".txnindex"] = errno.ENOSPC
    end(log, 1, commit=False)
    await world.manager.close()
    assert f"{FOLDER}/.kafka_cleanshutdown" not in world.disk.files
    world.disk.failing.clear()
    log = (await world.open()).logs[log.topic_partition]
    assert aborted(log, 0) == [(1, 0)]
