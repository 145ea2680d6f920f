"""Compaction in a broker: which log is taken, and how it is read while segments are swapped under readers."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from cleaner_stage import (
    COMPACTED,
    FOLDER,
    LOG_FOLDER,
    Stage,
    fill,
    last_of_each_key,
    on_stage,
    read_all,
    slice_from,
)
from log_world import NOW_MS, PARTITION, append, batch, config, data_of, read_checked

from moldau.base.ids import TopicPartition
from moldau.log.cleaner.choice import Dirty, Shape, first_dirty_offset, groups_of, look_at
from moldau.log.cleaner.job import Summary
from moldau.log.log import Log
from moldau.log.segments import CLOSED_SEGMENTS_KEPT
from moldau.records.record import read_records
from moldau.sim.drive import DiskFaults
from moldau.sim.world import World

# Which one


def test_the_dirty_part_ends_with_the_closed_segments_and_what_is_stable() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        bases = log.segments.bases
        assert len(bases) > 3
        look = lambda dirty, stable: look_at(log.segments, dirty, stable, stage.settings, NOW_MS)  # noqa: E731
        whole = look(0, log.next_offset)
        assert (whole.end_offset, whole.clean_bytes, whole.ratio) == (bases[-1], 0, 1.0)
        assert whole.cleanable_bytes == log.size_bytes() - log.segments.active.size
        assert look(0, bases[2] + 1).end_offset == bases[2]
        assert look(0, bases[1] - 1).cleanable_bytes == 0
        part = look(bases[1], log.next_offset)
        assert part.clean_bytes + part.cleanable_bytes == whole.cleanable_bytes
        assert part.ratio == part.cleanable_bytes / whole.cleanable_bytes
        await stage.close()

    on_stage(main)


def test_records_younger_than_the_lag_are_left_alone_and_overdue_ones_are_not() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        bases = log.segments.bases
        second = log.segments.max_timestamp_of(1, lambda file, length, position: file.pread(length, position))

        def look(now_ms: int, **lags: str) -> Dirty:
            return look_at(log.segments, 0, log.next_offset, config(**(COMPACTED | lags)), now_ms)

        assert look(second + 500, min_compaction_lag_ms="500").end_offset == bases[2]
        assert look(second + 499, min_compaction_lag_ms="500").end_offset == bases[1]
        assert not look(NOW_MS + 500, max_compaction_lag_ms="500").overdue
        assert look(NOW_MS + 501, max_compaction_lag_ms="500").overdue
        await stage.close()

    on_stage(main)


def test_a_log_is_due_by_its_ratio_or_its_age() -> None:
    assert Dirty(5, 9, 50, 50, False).is_due(0.49)
    assert not Dirty(5, 9, 50, 50, False).is_due(0.5)
    assert Dirty(5, 9, 99, 1, True).is_due(0.5)
    assert not Dirty(5, 9, 99, 0, True).is_due(0.5)
    assert Dirty(0, 0, 0, 0, False).ratio == 0


def test_a_checkpoint_that_does_not_fit_the_log_is_not_believed() -> None:
    assert first_dirty_offset(None, 3, 9) == 3
    assert first_dirty_offset(5, 3, 9) == 5
    assert first_dirty_offset(2, 3, 9) == 3
    assert first_dirty_offset(10, 3, 9) == 3


DAMAGE: dict[str, Callable[[bytes], bytes | None]] = {
    "missing": lambda content: None,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "zeroes": lambda content: bytes(len(content)),
    "a flipped bit": lambda content: bytes([content[0] ^ 0x40]) + content[1:],
    "no text": lambda content: b"\xff\xfe" + content,
    "another log's": lambda content: content.replace(b"t 0", b"u 0").replace(b"topic", b"other"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_costs_a_compaction_and_nothing_else(damage: str) -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        assert await stage.cleaner.clean(log) is not None
        cleaned_to = stage.cleaned_to
        left = read_all(log)
        await stage.close()
        disk, path = stage.host.runtime.disk, f"{FOLDER}/cleaner-offset-checkpoint"
        content = DAMAGE[damage](disk.read(path))
        if content is None:
            disk.remove(path)
        else:
            disk.write_atomic(path, content)
        log = await stage.open()
        assert read_all(log) == left
        assert await stage.cleaner.clean(log) is not None
        assert read_all(log) == left and stage.cleaned_to == cleaned_to
        await stage.close()

    on_stage(main)


def test_how_far_a_log_is_compacted_is_put_right_though_nothing_is_due() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        await stage.cleaner.clean(log)
        assert stage.cleaned_to == {PARTITION: log.segments.active.base_offset}
        log.delete_records_before(log.next_offset)
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(5)
        await stage.close()
        assert stage.cleaner.counts.compactions == 1
        assert stage.cleaned_to == {PARTITION: log.next_offset}

    on_stage(main)


def test_neighbours_are_grouped_within_every_limit() -> None:
    def bases(
        shapes: list[Shape], end_offset: int = 10**12, size: int = 100, index: int = 100
    ) -> list[list[int]]:
        return [[one.base_offset for one in group] for group in groups_of(shapes, end_offset, size, index)]

    small = [Shape(n, 40, 10, 12) for n in range(5)]
    assert bases(small, 5) == [[0, 1], [2, 3], [4]]
    assert bases([Shape(n, 1, 60, 1) for n in range(3)], 3) == [[0], [1], [2]]
    assert bases([Shape(n, 1, 1, 60) for n in range(3)], 3) == [[0], [1], [2]]
    far = [Shape(0, 1, 1, 1), Shape(10, 1, 1, 1), Shape(2**31 - 1, 0, 0, 0), Shape(2**31, 1, 1, 1)]
    assert bases(far, 2**31 + 1) == [[0, 10, 2**31 - 1], [2**31]]
    assert [len(group) for group in bases([Shape(n, 0, 0, 0) for n in range(150)], 150)] == [64, 64, 22]


def test_the_dirtiest_log_that_is_due_comes_first_and_then_the_others() -> None:
    async def main(stage: Stage, world: World) -> None:
        await stage.open()
        for number, count in enumerate((30, 90, 60)):
            fill(stage.manager.create(TopicPartition("t", number), uuid.UUID(int=number)), count)
        order: list[TopicPartition] = []
        clean = stage.cleaner.clean

        async def note(log: Log) -> Summary | None:
            order.append(log.topic_partition)
            return await clean(log)

        for number in (0, 1, 2):  # all but the last segment is clean, and then some of them is dirty
            log = stage.manager.logs[TopicPartition("t", number)]
            await clean(log)
            fill(log, 60 if number == 2 else 20, first=100)
        stage.cleaner.clean = note  # type: ignore[method-assign]
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(10)
        assert sorted(order) == [TopicPartition("t", n) for n in range(3)]
        assert order[0] == TopicPartition("t", 2)
        assert stage.cleaner.counts.compactions == 6
        assert stage.cleaner.counts.dirtiest_ratio == 0
        await stage.close()

    on_stage(main)


def test_topics_without_compaction_are_left_alone() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before = read_all(log)
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(60)
        assert read_all(log) == before
        assert stage.cleaner.counts.compactions == 0
        await stage.close()

    on_stage(main, cleanup_policy="delete")


# Compacting


def test_a_log_is_compacted_in_the_background_and_reads_on() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before, end_offset = read_all(log), log.segments.active.base_offset
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(5)
        expected = last_of_each_key(before, end_offset)
        assert len(expected) < len(before) / 2
        assert read_all(log) == expected
        assert stage.cleaned_to == {PARTITION: end_offset}
        stage.backoff_ms = 10**9
        fill(log, first=60)
        before = read_all(log)
        await stage.cleaner.clean(log)
        assert read_all(log) == last_of_each_key(before, log.segments.active.base_offset)
        await stage.close()

    on_stage(main)


def test_every_offset_of_a_compacted_log_can_be_read_from_and_looked_up() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log, 200, keys=3)
        await stage.cleaner.clean(log)
        left = read_all(log)
        for offset in range(log.next_offset):
            first = next(record for record in left if record.offset >= offset)
            found = data_of(read_checked(log, offset, 100))
            records = [r for r in read_records(found) if r.offset >= offset]
            assert records == [] or records[0] == first
            at = log.offset_for_timestamp(NOW_MS + offset // 2)
            newer = next(record for record in left if record.timestamp >= NOW_MS + offset // 2)
            assert at is not None
            assert (at.offset, at.timestamp) == (newer.offset, newer.timestamp)
        newest = log.max_timestamp_offset()
        assert newest is not None
        assert newest.timestamp == left[-1].timestamp
        await stage.close()

    on_stage(main)


def test_empty_segments_are_read_over_however_many_there_are() -> None:
    """After a restart, when what is read has to be checked first, and with more of them than are kept at hand."""

    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        for _ in range(40):
            append(log, batch(b"x" * 900))
            log.roll(NOW_MS)
        await stage.close()
        disk = stage.host.runtime.disk
        for name in disk.list(LOG_FOLDER):
            if name.endswith((".log", "index")) and 2 <= int(name[:20]) < 30:
                disk.open(f"{LOG_FOLDER}/{name}").truncate(0)
        log = await stage.open()
        for offset in range(log.next_offset):
            found = data_of(await slice_from(log, offset))
            assert read_records(found)[0].offset == (30 if 2 <= offset < 30 else offset)
        assert log.read(2, 1 << 20, below_offset=20, whole_first_batch=True).length == 0
        await stage.close()

    on_stage(main)


def test_a_slice_that_a_reader_holds_outlives_the_swap() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        held = read_checked(log, 0, 1 << 20)
        before = data_of(held)
        assert await stage.cleaner.clean(log) is not None
        assert data_of(held) == before
        fill(log, first=60)
        again = read_checked(log, 0, 1 << 20)
        second = data_of(again)
        assert await stage.cleaner.clean(log) is not None
        assert (data_of(held), data_of(again)) == (before, second)
        await stage.host.runtime.tasks.sleep(stage.settings.file_delete_delay_ms / 1000 + 1)
        assert not [name for name in stage.names if name.endswith(".deleted")]
        await stage.close()

    on_stage(main)


def test_a_slice_outlives_the_swap_also_when_its_segment_was_forgotten_meanwhile() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log, 900)
        assert len(log.segments) > 2 * CLOSED_SEGMENTS_KEPT
        held = await slice_from(log, 0)
        before = data_of(held)
        for base_offset in log.segments.bases[1:]:
            await slice_from(log, base_offset)
        assert await stage.cleaner.clean(log) is not None
        assert data_of(held) == before
        await stage.close()

    on_stage(main)


def test_snapshots_of_segments_that_are_gone_go_too() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        await log.flush()
        await stage.cleaner.clean(log)
        kept = {name for name in stage.names if name.endswith(".snapshot")}
        assert kept <= {f"{base:020d}.snapshot" for base in log.segments.bases}
        await stage.close()

    on_stage(main)


def test_a_search_that_waits_for_the_disk_survives_the_swap() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log, 150)
        tasks = stage.host.runtime.tasks
        cleaning = tasks.spawn(stage.cleaner.clean(log), name="clean")
        while not cleaning.done():
            for number in (0, 40, 149):
                found = await log.find_timestamp(NOW_MS + number)
                assert found is not None
                assert found.timestamp >= NOW_MS + number
        await stage.close()

    for seed in range(5):
        on_stage(main, seed, disk=DiskFaults(cold_rate=1.0))


def test_an_idempotent_producers_last_batch_is_known_after_compaction_and_restart() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        producer = {"producer_id": 9, "producer_epoch": 2}
        for sequence in (0, 1):
            append(log, batch(b"v", base_sequence=sequence, **producer))
        append(log, batch(b"later", base_sequence=0, producer_id=10, producer_epoch=0))
        log.roll(NOW_MS)
        assert (await stage.cleaner.clean(log)) is not None
        assert [record.offset for record in read_all(log)] == [2]
        await stage.close()
        log = await stage.open()
        again = append(log, batch(b"v", base_sequence=1, **producer))
        assert (again.duplicate, again.base_offset) == (True, 1)
        stage.host.runtime.disk.remove(f"{LOG_FOLDER}/{3:020d}.snapshot")
        await stage.close()
        log = await stage.open()  # from the batches, of which one is empty
        assert append(log, batch(b"v", base_sequence=1, **producer)).duplicate
        assert append(log, batch(b"v", base_sequence=2, **producer)).base_offset == 3
        await stage.close()

    on_stage(main)


def test_what_is_not_stable_is_not_compacted() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before, bases = read_all(log), log.segments.bases
        stage.stable_offset = bases[2] + 3
        await stage.cleaner.clean(log)
        assert read_all(log) == last_of_each_key(before, bases[2])
        assert stage.cleaned_to == {PARTITION: bases[2]}
        await stage.close()


def test_a_reader_of_single_batches_comes_over_the_gaps_between_compacted_segments() -> None:
    """Also one that follows another, whose places the log remembers."""

    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        for number in range(20):
            append(log, batch(b"%d" % number))
            fill(log, 20, first=20 * number)
            log.roll(NOW_MS)
        assert await stage.cleaner.clean(log) is not None
        whole = read_all(log)
        assert read_all(log, max_bytes=1) == whole
        assert read_all(log, max_bytes=1) == whole
        await stage.close()

    on_stage(main, segment_bytes="1500")
