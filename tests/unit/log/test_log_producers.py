"""Idempotent producers. Every outcome here was seen in an answer of Apache Kafka 4.3.1 to the same batches."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, World, append, batch

from moldau.base.errors import ErrorCode
from moldau.log.producers import VERIFYING_MAX, BatchSeen, OutOfSequence, Producers

MAX = 2**31 - 1


class Appender:
    """Appends batches of two as a log does."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.next_offset = 0

    def send(self, producer_id: int, epoch: int, sequence: int, count: int = 2) -> int | ErrorCode:
        """The base offset, negative for a retry that was recognised (-1 for offset 0), or the error."""
        try:
            seen = self.producers.check(producer_id, epoch, sequence, count - 1)
        except OutOfSequence as refusal:
            return refusal.code
        if seen is not None:
            return -1 - seen.first_offset
        base = self.next_offset
        self.next_offset += count
        self.producers.add(producer_id, epoch, sequence, base, base + count - 1, 1000)
        return base


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert Appender().send(100, 0, 5) == 0


def test_sequences_must_follow_each_other() -> None:
    log = Appender()
    assert [log.send(1, 0, sequence) for sequence in (5, 7)] == [0, 2]
    assert log.send(1, 0, 12) is ErrorCode.out_of_order_sequence_number
    assert log.send(1, 0, 8) is ErrorCode.out_of_order_sequence_number
    assert log.send(1, 0, 9) == 4


def test_a_retry_of_one_of_the_last_five_batches_gets_its_first_answer() -> None:
    log = Appender()
    for sequence in range(0, 14, 2):
        log.send(1, 0, sequence)
    assert [log.send(1, 0, sequence) for sequence in (4, 12)] == [-5, -13]
    assert log.send(1, 0, 2) is ErrorCode.out_of_order_sequence_number
    assert log.send(1, 0, 10, count=3) is ErrorCode.out_of_order_sequence_number
    assert log.next_offset == 14


def test_a_new_epoch_begins_with_sequence_zero_and_fences_the_old_one() -> None:
    log = Appender()
    log.send(1, 0, 0)
    assert log.send(1, 1, 3) is ErrorCode.out_of_order_sequence_number
    assert log.send(1, 1, 0) == 2
    assert log.send(1, 0, 2) is ErrorCode.invalid_producer_epoch
    assert log.send(1, 0, 0) is ErrorCode.invalid_producer_epoch


def test_sequences_wrap_behind_the_largest_one() -> None:
    log = Appender()
    assert log.send(1, 0, MAX - 3) == 0
    assert log.send(1, 0, MAX - 1, count=4) == 2
    assert log.send(1, 0, 2) == 6
    assert log.send(1, 0, MAX - 1, count=4) == -3
    assert log.send(2, 0, MAX, count=1) == 8
    assert log.send(2, 0, 0, count=1) == 9


def test_a_producer_without_an_epoch_may_jump() -> None:
    log = Appender()
    assert [log.send(1, -1, 0), log.send(1, -1, 7), log.send(1, 0, 9)] == [0, 2, 4]


def test_guards_that_nobody_uses_are_bounded() -> None:
    producers = Producers()
    first = producers.begin_verification(0, 0, 0, False)
    for producer_id in range(1, VERIFYING_MAX + 1):
        last = producers.begin_verification(producer_id, 0, 0, False)
    assert not producers.is_verified(0, 0, first)
    assert producers.is_verified(VERIFYING_MAX, 0, last)


def test_producers_do_not_touch_each_other() -> None:
    log = Appender()
    assert [log.send(1, 0, 0), log.send(2, 0, 0), log.send(1, 0, 2), log.send(2, 0, 2)] == [0, 2, 4, 6]


def test_only_the_last_five_batches_are_kept() -> None:
    log = Appender()
    for sequence in range(0, 200, 2):
        log.send(1, 0, sequence)
    entry = log.producers.get(1)
    assert entry is not None
    assert len(entry.batches) == 5
    assert entry.batches[-1] == BatchSeen(198, 199, 198, 199, 1000)


def test_silent_producers_expire_unless_a_transaction_is_open() -> None:
    producers = Producers()
    producers.add(1, 0, 0, 0, 1, 1000)
    producers.add(2, 0, 0, 2, 3, 5000)
    producers.add(3, 0, 0, 4, 5, 1000, transactional=True)
    assert producers.expire(5000, 5000) == 0
    assert producers.expire(6000, 5000) == 1
    assert [entry.producer_id for entry in producers.entries()] == [2, 3]


def test_a_producer_of_old_records_is_known_while_it_writes() -> None:
    """Somebody who copies last year's records: a retry must not be taken for a new batch."""
    log = Appender()
    log.send(1, 0, 0)
    assert log.producers.expire(10**12, 5000) == 0
    log.send(1, 0, 2)
    assert log.producers.expire(10**12, 5000) == 0
    assert log.send(1, 0, 2) == -3
    assert log.producers.expire(10**12, 5000) == 1


def test_a_retry_is_recognised_by_its_whole_range() -> None:
    log = Appender()
    log.send(1, 0, 0, count=4)
    with pytest.raises(OutOfSequence):
        log.producers.check(1, 0, 0, 1)


@pytest.mark.parametrize("clean", [True, False])
async def test_a_batch_in_the_middle_of_which_the_log_begins_is_known_after_a_restart(clean: bool) -> None:
    """From a snapshot before it, or from the batches alone."""
    for has_snapshot in (True, False):
        world = World()
        log = await world.new_log()
        producer = {"producer_id": 5, "producer_epoch": 0}
        append(log, batch(b"a", b"b", base_sequence=0, **producer))
        log.roll(NOW_MS)
        sent = batch(b"c", b"d", b"e", base_sequence=2, **producer)
        append(log, sent)
        log.delete_records_before(3)
        log.roll(NOW_MS)
        await log.flush()
        await world.manager.write_checkpoints()
        if clean:
            await world.manager.close()
        gone = (".snapshot",) if not has_snapshot else (f"{5:020d}.snapshot",)
        for path in [path for path in world.disk.files if path.endswith(gone)]:
            world.disk.remove(path)
        log = await world.reopen(clean=False) if not clean else (await world.open()).logs[log.topic_partition]
        again = append(log, sent)
        assert (again.duplicate, again.base_offset) == (True, 2)
        world.manager.release()


async def test_a_producer_goes_on_after_a_crash_though_its_records_were_deleted_before_it() -> None:
    world = World()
    log = await world.new_log()
    producer = {"producer_id": 5, "producer_epoch": 0}
    append(log, batch(b"a", base_sequence=0, **producer))
    log.roll(NOW_MS)
    append(log, batch(b"b", base_sequence=1, **producer))
    append(log, batch(b"of nobody"))
    log.delete_records_before(3)
    log.roll(NOW_MS)
    await log.flush()
    await world.manager.write_checkpoints()
    for path in [path for path in world.disk.files if path.endswith(f"{3:020d}.snapshot")]:
        world.disk.remove(path)
    log = await world.reopen(clean=False)
    assert append(log, batch(b"c", base_sequence=2, **producer)).error is ErrorCode.none
