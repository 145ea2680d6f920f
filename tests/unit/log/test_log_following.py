"""A follower's log: the leader's batches byte for byte, and all that follows from them. R2, promise 2."""

from __future__ import annotations

import pytest
from log_world import NOW_MS, World, append, batch, config

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.following import BeginsEarlier
from moldau.log.log import Log
from moldau.log.transactions import Marker
from moldau.records.batch import read_header
from moldau.records.record import Record, build_batch


def stored(world: World, log: Log) -> bytes:
    """All segments' batches, in order."""
    return b"".join(bytes(world.disk.files[f"{log.folder}/{base:020d}.log"]) for base in log.segments.bases)


def fetched(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


async def pair(**settings: str) -> tuple[World, Log, World, Log]:
    here, there = World(config(**settings)), World(config(**settings))
    return here, await here.new_log(), there, await there.new_log()


async def test_what_was_fetched_is_the_leaders_log_byte_for_byte() -> None:
    here, leader, there, follower = await pair()
    for number in range(20):
        append(leader, batch(b"%d" % number, b"x" * number), epoch=3 + number // 7)
    data = stored(here, leader)
    assert follower.append_fetched(fetched(data), NOW_MS) == (len(data), False)
    assert follower.next_offset == 40
    assert stored(there, follower) == stored(here, leader)
    assert follower.epochs.entries == leader.epochs.entries


async def test_many_batches_are_few_writes() -> None:
    """The first one of a segment is on its own: by its time the segment rolls."""
    here, leader, there, follower = await pair()
    for number in range(50):
        append(leader, batch(b"%d" % number))
    follower.append_fetched(fetched(stored(here, leader)), NOW_MS)
    assert follower.next_offset == 50
    assert there.disk.calls["pwrite", "00000000000000000000.log"] == 2


async def test_segments_roll_and_indexes_grow_as_with_a_leader() -> None:
    here, leader, _, follower = await pair(segment_bytes="1000", index_interval_bytes="100")
    for number in range(40):
        append(leader, batch(b"%d" % number, b"y" * 50))
    follower.append_fetched(fetched(stored(here, leader)), NOW_MS)
    assert len(follower.segments) == len(leader.segments) > 3
    assert follower.segments.active.offsets.count == leader.segments.active.offsets.count
    assert follower.read(33, 10_000, below_offset=80, whole_first_batch=True).length > 0


async def test_a_part_of_a_batch_at_the_end_is_left_out() -> None:
    here, leader, _, follower = await pair()
    append(leader, batch(b"a"))
    append(leader, batch(b"b"))
    follower.append_fetched(fetched(stored(here, leader)[:-1]), NOW_MS)
    assert follower.next_offset == 1


@pytest.mark.parametrize("damage", ["a bit", "an offset that was there"])
async def test_a_bad_batch_is_refused_and_those_before_it_stay(damage: str) -> None:
    here, leader, there, follower = await pair()
    append(leader, batch(b"a"))
    first = stored(here, leader)
    append(leader, batch(b"b"))
    data = stored(here, leader)
    data = data[:-1] + b"!" if damage == "a bit" else first + first
    with pytest.raises(KafkaError) as refused:
        follower.append_fetched(fetched(data), NOW_MS)
    assert refused.value.code is ErrorCode.corrupt_message
    assert follower.next_offset == 1 and stored(there, follower) == first


async def test_gaps_that_compaction_left_are_kept() -> None:
    here, leader, _, follower = await pair()
    for number in range(3):
        append(leader, batch(b"%d" % number))
    data = stored(here, leader)
    size = read_header(data).size
    follower.append_fetched(fetched(data[:size] + data[2 * size :]), NOW_MS)
    assert follower.next_offset == 3


async def test_sequences_and_transactions_are_known_to_the_next_leader() -> None:
    """P4, P5: a fail-over forgets neither."""
    here, leader, _, follower = await pair()

    def own(sequence: int, *, transactional: bool = False) -> bytes:
        records = [Record(0, NOW_MS, b"k", b"v")]
        return build_batch(
            records, producer_id=7, producer_epoch=1, base_sequence=sequence, transactional=transactional
        )

    append(leader, own(0))
    follower.append_fetched(fetched(stored(here, leader)), NOW_MS)
    assert append(follower, own(0)).duplicate
    assert append(follower, own(5)).error is ErrorCode.out_of_order_sequence_number

    guard = leader.producing.begin_verification(7, 1, 1, False)
    leader.append(
        fetched(own(1, transactional=True)), 0, len(own(1, transactional=True)), 0, NOW_MS, True, guard
    )
    before = len(stored(here, leader)) - read_header(stored(here, leader)).size
    follower.append_fetched(fetched(stored(here, leader)[-before:]), NOW_MS)
    assert follower.producing.state.open.first_unstable_offset(9) == 1
    size = len(stored(here, leader))
    leader.producing.append_marker(Marker(False, 0), 7, 1, 0, NOW_MS)
    follower.append_fetched(fetched(stored(here, leader)[size:]), NOW_MS)
    assert follower.producing.state.open.first_unstable_offset(9) is None
    found = follower.read(1, 1000, below_offset=9, whole_first_batch=True)
    assert follower.producing.aborted_in(1, found) == [(7, 1)]


async def test_an_empty_log_may_have_to_begin_before_its_start() -> None:
    here, leader, _, follower = await pair()
    append(leader, batch(b"a", b"b", b"c"))
    await follower.truncate_fully_and_start_at(2, lambda _log: _done())
    with pytest.raises(BeginsEarlier) as early:
        follower.append_fetched(fetched(stored(here, leader)), NOW_MS)
    assert early.value.base_offset == 0


async def _done() -> None: ...


async def test_a_flush_policy_holds_for_followers_too() -> None:
    here, leader, _, follower = await pair(flush_messages="1")
    append(leader, batch(b"a"))
    assert follower.append_fetched(fetched(stored(here, leader)), NOW_MS).flush_due


async def test_a_long_answer_can_be_taken_in_parts() -> None:
    """So that a turn of the loop stays short."""
    here, leader, there, follower = await pair()
    for number in range(50):
        append(leader, batch(b"%d" % number))
    data = fetched(stored(here, leader))
    turns = 0
    while data:
        data = data[follower.append_fetched(data, NOW_MS, batches_max=20).taken_bytes :]
        turns += 1
    assert turns == 3 and stored(there, follower) == stored(here, leader)
