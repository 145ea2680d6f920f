"""Look-ups by time: large batches are walked in threads and remembered, and what is remembered is never wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_world import NOW_MS, World, append, config, settle

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import LOOKUP_BATCHES_REMEMBERED_MAX, RECORDS_INLINE_MAX
from moldau.log import lookup as lookup_module
from moldau.log import marks as marks_module
from moldau.log.log import Log
from moldau.log.marks import Marks
from moldau.log.reader import TimestampOffset
from moldau.records import record as record_module
from moldau.records.batch import read_header
from moldau.records.compression import Codec, decompress
from moldau.records.record import Record, assemble, build_batch, encode_records, iterate_records

MANY = RECORDS_INLINE_MAX + 100


class Counted(World):
    """A world that counts the searches handed to threads, and knows what happens in one."""

    def __init__(self, **settings: str) -> None:
        super().__init__(config(index_interval_bytes="64", **settings))
        self.threads = 0
        self.is_in_thread = False
        in_thread = self.tasks.in_thread

        def counted(work: Callable[..., Any], *args: Any) -> Any:
            def run() -> Any:
                self.is_in_thread = True
                try:
                    return work(*args)
                finally:
                    self.is_in_thread = False

            self.threads += isinstance(work, partial) and work.func.__name__ == "_search"
            return in_thread(run)

        self.tasks.in_thread = counted  # type: ignore[method-assign]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    made = Counted()
    made.unfolded = made.walked = 0  # type: ignore[attr-defined]

    def watched(codec: Codec, data: Any, limit_bytes: int) -> Any:
        if codec is not Codec.NONE and limit_bytes > 32 * 1024:
            assert made.is_in_thread, "unfolded on the loop"
            made.unfolded += 1  # type: ignore[attr-defined]
        return decompress(codec, data, limit_bytes)

    class Watched(Marks):
        def __init__(self, *args: Any) -> None:
            assert made.is_in_thread, "walked on the loop"
            made.walked += 1  # type: ignore[attr-defined]
            super().__init__(*args)

    monkeypatch.setattr(record_module, "decompress", watched)
    monkeypatch.setattr(lookup_module, "Marks", Watched)
    yield made


def many(times: list[int], codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(i, time, b"k", b"v") for i, time in enumerate(times)], codec=codec)


def write(log: Log, data: bytes) -> None:
    assert append(log, data).error is ErrorCode.none


async def ask(world: Counted, log: Log, timestamp: int) -> tuple[TimestampOffset | None, int]:
    """The answer, and how many threads it took."""
    before = world.threads
    return await log.find_timestamp(timestamp), world.threads - before


@pytest.mark.parametrize("codec", list(Codec))
def test_the_second_look_up_into_a_large_batch_takes_no_thread(world: Counted, codec: Codec) -> None:
    async def play() -> None:
        log = await world.new_log()
        write(log, many([NOW_MS + i // 10 for i in range(MANY)], codec))
        assert await ask(world, log, NOW_MS + 5) == (TimestampOffset(NOW_MS + 5, 50, 0), 1)
        assert await ask(world, log, NOW_MS + 5) == (TimestampOffset(NOW_MS + 5, 50, 0), 0)
        assert await ask(world, log, NOW_MS + 7) == (TimestampOffset(NOW_MS + 7, 70, 0), 0)
        assert await ask(world, log, NOW_MS + MANY) == (None, 0)
        newest = MANY - 1
        expected = TimestampOffset(NOW_MS + newest // 10, newest - newest % 10, 0)
        assert await log.find_max_timestamp() == expected
        assert world.threads == 1 and world.walked == 1  # type: ignore[attr-defined]

    asyncio.run(play())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_of_countless_times_some_are_kept_and_the_rest_is_near(
    world: Counted, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks_module, "LOOKUP_MARKS_MAX", 16)

    async def play() -> None:
        log = await world.new_log()
        write(log, many([NOW_MS + 2 * i for i in range(MANY)], codec))
        await log.find_timestamp(NOW_MS)
        threads = world.threads
        for number in (0, 1, 37, 38, 39, 300, MANY - 2, MANY - 1):
            expected = TimestampOffset(NOW_MS + 2 * number, number, 0)
            assert await log.find_timestamp(NOW_MS + 2 * number - 1) == expected
        assert await log.find_timestamp(NOW_MS + 2 * MANY) is None
        assert world.walked == 1  # type: ignore[attr-defined]
        if codec is Codec.NONE:
            assert world.threads == threads, "a stretch of an uncompressed batch is read on the loop"

    asyncio.run(play())


def test_a_long_way_past_small_batches_is_gone_in_a_thread(world: Counted) -> None:
    """Their headers claim a time that none of their records has, so each is looked into."""

    async def play() -> None:
        log = await world.new_log()
        for number in range(100):
            data = many([NOW_MS] * 40)
            header = read_header(data)._replace(max_timestamp=NOW_MS + 500)
            body = encode_records([Record(i, NOW_MS, b"k", b"v") for i in range(40)], 0, NOW_MS)
            write(log, assemble(header, body))
            assert log.next_offset == 40 * (number + 1)
        write(log, many([NOW_MS + 600]))
        with pytest.raises(BlockingIOError):
            log.offset_for_timestamp(NOW_MS + 400)
        assert await ask(world, log, NOW_MS + 400) == (TimestampOffset(NOW_MS + 600, 4_000, 0), 1)

    asyncio.run(play())


def test_a_long_way_past_headers_is_gone_in_a_thread(world: Counted) -> None:
    async def play() -> None:
        log = await world.new_log()
        write(log, many([NOW_MS + 50]))
        for _ in range(2_100):
            write(log, many([NOW_MS]))
        write(log, many([NOW_MS + 100]))
        assert await ask(world, log, NOW_MS + 60) == (TimestampOffset(NOW_MS + 100, 2_101, 0), 1)

    asyncio.run(play())


def test_times_of_many_segments_are_found_out_once() -> None:
    world = Counted(segment_bytes="200")

    async def play() -> None:
        log = await world.new_log()
        for number in range(200):
            write(log, many([NOW_MS + number]))
        log = await world.reopen(clean=True)
        assert await ask(world, log, NOW_MS + 190) == (TimestampOffset(NOW_MS + 190, 190, 0), 1)
        assert await ask(world, log, NOW_MS + 189) == (TimestampOffset(NOW_MS + 189, 189, 0), 0)

    asyncio.run(play())


def test_so_many_batches_are_remembered(world: Counted) -> None:
    async def play() -> None:
        log = await world.new_log()
        count = LOOKUP_BATCHES_REMEMBERED_MAX + 3
        for number in range(count):
            write(log, many([NOW_MS + number] * MANY))
        for number in range(count):
            assert await log.find_timestamp(NOW_MS + number) is not None
        assert len(log.aside.marks) == LOOKUP_BATCHES_REMEMBERED_MAX
        assert (await ask(world, log, NOW_MS + count - 1))[1] == 0
        assert (await ask(world, log, NOW_MS))[1] == 1, "the first was forgotten"

    asyncio.run(play())


def test_what_was_cut_off_answers_no_more(world: Counted) -> None:
    async def play() -> None:
        log = await world.new_log()
        for base in (0, 1_000, 2_000):
            write(log, many([NOW_MS + base + i // 10 for i in range(MANY)]))
        assert (await ask(world, log, NOW_MS + 2_005))[0] == TimestampOffset(NOW_MS + 2_005, 2 * MANY + 50, 0)
        await log.truncate_to(2 * MANY, world.manager.write_checkpoints_of)
        assert (await ask(world, log, NOW_MS + 2_005))[0] is None
        write(log, many([NOW_MS + 2_000 + i // 20 for i in range(MANY)]))
        assert (await ask(world, log, NOW_MS + 2_005))[0] == TimestampOffset(
            NOW_MS + 2_005, 2 * MANY + 100, 0
        )

    asyncio.run(play())


def test_a_look_up_that_a_truncation_overtook_is_not_remembered(world: Counted) -> None:
    async def play() -> None:
        log = await world.new_log()
        write(log, many([NOW_MS + i // 10 for i in range(MANY)]))
        await log.flush()
        world.tasks.held = True
        looking = asyncio.get_running_loop().create_task(log.find_timestamp(NOW_MS + 5))
        await settle()
        world.tasks.release()  # the thread is done, its result is on its way
        world.tasks.held = False
        log._reader.forget_positions()  # as a truncation or a compaction does
        await looking
        assert len(log.aside.marks) == 0

    asyncio.run(play())


def test_a_log_that_begins_inside_a_batch_answers_from_there(world: Counted) -> None:
    async def play() -> None:
        log = await world.new_log()
        times = [NOW_MS + (500 if i == 3 else i // 10) for i in range(MANY)]
        write(log, many(times))
        assert (await ask(world, log, NOW_MS + 20))[0] == TimestampOffset(NOW_MS + 500, 3, 0)
        log.delete_records_before(10)
        assert (await ask(world, log, NOW_MS + 20))[0] == TimestampOffset(NOW_MS + 20, 200, 0)
        assert (await ask(world, log, NOW_MS + 20))[1] == 0

    asyncio.run(play())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_damaged_records_of_a_large_batch_are_said_to_be_damaged(world: Counted, codec: Codec) -> None:
    async def play() -> None:
        log = await world.new_log()
        sound = [Record(i, NOW_MS + i, b"k", b"v") for i in range(MANY)]
        body = bytearray(encode_records(sound, 0, NOW_MS))
        body[len(body) // 2 :] = b"\xff" * (len(body) - len(body) // 2)
        packed = record_module.compress(codec, body)
        write(log, assemble(read_header(build_batch(sound, codec=codec)), packed))
        for _ in range(2):
            with pytest.raises(KafkaError) as refused:
                await log.find_timestamp(NOW_MS + MANY - 1)
            assert refused.value.code is ErrorCode.corrupt_message
        assert len(log.aside.marks) == 0

    asyncio.run(play())


def first(records: list[Record], timestamp: int, start: int) -> tuple[int, int] | None:
    return next(
        ((r.timestamp, r.offset) for r in records if r.timestamp >= timestamp and r.offset >= start), None
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(list(Codec)), min_size=1, max_size=4),
    st.sampled_from([1, 40, 5_000]),
    st.sampled_from([4, 50, 5_000]),
    st.booleans(),
)
def test_remembered_or_not_the_answers_are_those_of_reading_everything(
    seed: int, codecs: list[Codec], spread_ms: int, marks_max: int, log_append_time: bool
) -> None:
    rng = random.Random(seed)
    world = Counted(message_timestamp_type="LogAppendTime" if log_append_time else "CreateTime")

    async def play() -> None:
        log = await world.new_log()
        stored: list[Record] = []

        def grow(codec: Codec) -> None:
            count = rng.choice([3, 60, MANY, 2 * MANY])
            at = NOW_MS + rng.randrange(spread_ms)
            times = [at + rng.randrange(-spread_ms, spread_ms) for _ in range(count)]
            data = many(times, codec)
            base = log.next_offset
            write(log, data)
            stored.extend(
                Record(base + r.offset, NOW_MS if log_append_time else r.timestamp, r.key, r.value)
                for r in iterate_records(data)
            )

        async def compare() -> None:
            for _ in range(6):
                timestamp = NOW_MS + rng.randrange(-spread_ms - 2, 2 * spread_ms + 2)
                found = await log.find_timestamp(timestamp)
                expected = first(stored, timestamp, log.log_start_offset)
                assert (found[:2] if found else None) == expected
            newest = max(record.timestamp for record in stored)
            found = await log.find_max_timestamp()
            assert found is not None and found[:2] == first(stored, newest, 0)

        for codec in codecs:
            grow(codec)
        await compare()
        await compare()
        if rng.random() < 0.5:
            log.delete_records_before(rng.randrange(log.next_offset))
            await compare()
        await log.truncate_to(rng.randrange(1, log.next_offset + 1), world.manager.write_checkpoints_of)
        kept = log.next_offset if log.size_bytes() else 0  # cut off below its start, it begins anew
        stored[:] = [record for record in stored if record.offset < kept]
        for codec in codecs:
            grow(codec)
        await compare()
        await compare()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marks_module, "LOOKUP_MARKS_MAX", marks_max)
        asyncio.run(play())
