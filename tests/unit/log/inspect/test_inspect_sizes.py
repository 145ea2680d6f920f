"""Sizes, times and contents of logs, as `du` and `dump` tell them."""

from __future__ import annotations

import asyncio

from damage import FOLDER, HERE, SEGMENT, SIZE, cut, flip, folder, gone, log_file, more
from log_world import NOW_MS, PARTITION, World, append, batch

from moldau.log.inspect.batches import BadStretch
from moldau.log.inspect.dump import BatchContent, position_of, segment_content
from moldau.log.inspect.files import LogFiles
from moldau.log.inspect.sizes import LogSize, measure_folder
from moldau.records.batch import read_header
from moldau.records.record import assemble


def measured(world: World) -> LogSize:
    (found,) = measure_folder(world.disk, FOLDER)  # type: ignore[arg-type]
    return found


def test_a_log_is_measured_by_a_look_at_its_ends() -> None:
    world = asyncio.run(folder())
    world.disk.calls.clear()
    found = measured(world)
    assert found.partition == PARTITION
    assert (found.segments, found.log_bytes) == (5, 5 * SEGMENT)
    assert (found.first_offset, found.next_offset) == (0, 50)
    assert (found.oldest_ms, found.newest_ms) == (NOW_MS, NOW_MS + 49)
    everything = sum(len(content) for path, content in world.disk.files.items() if path.startswith(HERE))
    assert found.bytes == everything
    assert world.disk.reads_of(".log") <= 3


def test_times_are_right_without_indexes_and_behind_preallocated_ones() -> None:
    world = asyncio.run(folder())
    more(bytes(1200))(world, log_file(40, ".timeindex"))
    more(bytes(800))(world, log_file(40, ".index"))
    assert measured(world).newest_ms == NOW_MS + 49
    for suffix in (".index", ".timeindex"):
        gone(world, log_file(40, suffix))
    assert (measured(world).next_offset, measured(world).newest_ms) == (50, NOW_MS + 49)


def test_an_index_that_leads_astray_does_not_hide_the_end() -> None:
    world = asyncio.run(folder())
    cut(8)(world, log_file(40, ".index"))
    flip(7, 1)(world, log_file(40, ".index"))
    assert measured(world).next_offset == 50


def test_an_empty_log_has_no_times() -> None:
    async def make() -> World:
        world = World()
        await world.new_log()
        await world.manager.close()
        return world

    found = measured(asyncio.run(make()))
    assert (found.segments, found.next_offset, found.oldest_ms, found.newest_ms) == (0, 0, None, None)


def contents(world: World, base_offset: int, **options: object) -> list[BatchContent | BadStretch]:
    files = LogFiles(world.disk, HERE)  # type: ignore[arg-type]
    return list(segment_content(world.disk, files, base_offset, **options))  # type: ignore[arg-type]


def test_a_segment_is_read_from_an_offset_on_by_its_index() -> None:
    world = asyncio.run(folder())
    files = LogFiles(world.disk, HERE)  # type: ignore[arg-type]
    assert position_of(world.disk, files, 10, 17) == 6 * SIZE  # type: ignore[arg-type]
    found = contents(world, 10, from_offset=17)
    assert [p.batch.header.base_offset for p in found if isinstance(p, BatchContent)] == [17, 18, 19]


def test_a_wrong_index_is_not_trusted() -> None:
    world = asyncio.run(folder())
    flip(7, 1)(world, log_file(10, ".index"))
    found = contents(world, 10, from_offset=13)
    assert [p.batch.header.base_offset for p in found if isinstance(p, BatchContent)] == list(range(13, 20))


def test_records_are_decoded_and_damage_is_passed_over() -> None:
    world = asyncio.run(folder())
    flip(3 * SIZE + 90)(world, log_file(10))
    found = contents(world, 10, decode=True)
    assert [isinstance(piece, BadStretch) for piece in found].index(True) == 3
    assert len(found) == 10
    first = found[0]
    assert isinstance(first, BatchContent) and first.records is not None
    assert first.records[0].value == b"x" * 100


def test_records_below_the_offset_are_left_out() -> None:
    async def make() -> World:
        world = World()
        log = await world.new_log()
        append(log, batch(b"a", b"b", b"c"))
        await world.manager.close()
        return world

    (found,) = contents(asyncio.run(make()), 0, decode=True, from_offset=1)
    assert isinstance(found, BatchContent) and found.records is not None
    assert [record.value for record in found.records] == [b"b", b"c"]


def test_records_that_cannot_be_read_are_told() -> None:
    world = asyncio.run(folder())
    content = world.disk.files[log_file(40)]
    content[9 * SIZE :] = assemble(read_header(content, 9 * SIZE), b"\x02" * (SIZE - 61))
    last = contents(world, 40, decode=True)[-1]
    assert isinstance(last, BatchContent) and last.records is None and last.damage
