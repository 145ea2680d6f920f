"""Compaction where something goes wrong: damage, a disk that refuses, deletion, a stop, a crash at any point."""

from __future__ import annotations

import errno
import uuid
from typing import Any

import pytest
from cleaner_stage import COMPACTED, FOLDER, LOG_FOLDER, Stage, fill, last_of_each_key, on_stage, read_all
from log_world import PARTITION, append, batch, config

from moldau.base.errors import KafkaError
from moldau.base.ids import TopicPartition
from moldau.log.cleaner.cleaner import DISK_RETRY_S
from moldau.sim.world import World


def test_a_damaged_log_is_left_out_until_the_next_start_and_the_others_go_on() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        other = stage.manager.create(TopicPartition("other", 0), uuid.UUID(int=8))
        fill(log)
        fill(other)
        disk = stage.host.runtime.disk
        disk.open(f"{LOG_FOLDER}/{0:020d}.log").pwrite(b"\xff", 200)
        size = log.size_bytes()
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(2 * DISK_RETRY_S)
        assert list(stage.cleaner.uncleanable) == [PARTITION]
        assert "checksum" in stage.cleaner.uncleanable[PARTITION]
        assert (stage.cleaner.counts.failures, stage.cleaner.counts.compactions) == (1, 1)
        assert log.size_bytes() == size
        assert log.failure is None
        assert not [name for name in stage.names if name.endswith((".cleaned", ".swap"))]
        stage.manager.delete(PARTITION)
        await stage.manager.vacated(PARTITION)
        fill(stage.manager.create(PARTITION, uuid.UUID(int=9)))  # another log, of which nothing bad is known
        await stage.host.runtime.tasks.sleep(10)
        assert stage.cleaner.uncleanable == {}
        assert stage.cleaner.counts.compactions == 2
        await stage.close()

    on_stage(main)


@pytest.mark.parametrize("kind", ["read", "write", "sync"])
def test_a_log_that_the_disk_refuses_to_compact_is_tried_again_later(kind: Any) -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before, end_offset = read_all(log), log.segments.active.base_offset
        await log.flush()
        path = ".log" if kind == "read" else ".cleaned"
        stage.host.drive.fail_next(kind, path_contains=path, number=errno.ENOSPC)
        stage.cleaner.start()
        await stage.host.runtime.tasks.sleep(DISK_RETRY_S / 2)
        assert list(stage.cleaner.uncleanable) == [PARTITION]
        assert read_all(log) == before
        assert not [name for name in stage.names if name.endswith(".cleaned")]
        await stage.host.runtime.tasks.sleep(DISK_RETRY_S)
        assert stage.cleaner.uncleanable == {}
        assert read_all(log) == last_of_each_key(before, end_offset)
        await stage.close()

    on_stage(main)


def test_a_log_is_not_compacted_above_its_recovery_point() -> None:
    """Recovery would take the gap that compaction leaves for lost data, and cut the log off there."""

    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before = read_all(log)
        stage.host.drive.fail_next("write", path_contains=".snapshot", number=errno.ENOSPC, count=10**6)
        assert await stage.cleaner.clean(log) is None
        assert log.last_flushed_offset == 0
        assert read_all(log) == before
        assert list(stage.cleaner.uncleanable) == [PARTITION]
        stage.host.drive.forgive()
        assert await stage.cleaner.clean(log) is not None
        await stage.close()

    on_stage(main)


def test_a_full_folder_does_not_keep_the_logs_of_another_from_being_compacted() -> None:
    async def main(stage: Stage, world: World) -> None:
        stage.folders = [FOLDER, "/full"]
        log = await stage.open()
        other = stage.manager.create(TopicPartition("other", 0), uuid.UUID(int=8))
        assert other.folder.startswith("/full/")
        fill(log)
        append(other, batch(b"v"))
        await other.flush()
        stage.host.drive.fail_next("write", path_contains="/full/", number=errno.ENOSPC, count=10**6)
        assert await stage.cleaner.clean(log) is not None
        assert stage.cleaner.uncleanable == {}
        stage.host.drive.forgive()
        await stage.close()

    on_stage(main)


def test_a_topic_that_is_no_longer_compacted_ends_its_compaction_and_leaves_nothing_of_it() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before = read_all(log)
        stage.cleaner.start()
        tasks = stage.host.runtime.tasks
        while not [name for name in stage.names if name.endswith(".cleaned")]:
            await tasks.sleep(0.0001)
        log.configure(config(**(COMPACTED | {"cleanup_policy": "delete"})))
        while log.reshaping.compaction is not None:
            await tasks.sleep(0.0001)
        assert not [name for name in stage.names if name.endswith((".cleaned", ".swap"))]
        assert read_all(log) == before
        assert stage.cleaner.uncleanable == {}
        await tasks.sleep(60)
        assert read_all(log) == before
        await stage.close()

    for seed in range(5):
        on_stage(main, seed)


def test_a_deleted_log_ends_its_compaction_before_its_folder_is_free() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        stage.cleaner.start()
        tasks = stage.host.runtime.tasks
        while log.reshaping.compaction is None:
            await tasks.sleep(0.0001)
        stage.manager.delete(PARTITION)
        await stage.manager.vacated(PARTITION)
        assert log.reshaping.compaction is None
        again = stage.manager.create(PARTITION, uuid.UUID(int=9))
        append(again, batch(b"new"))
        await tasks.sleep(30)
        assert [record.value for record in read_all(again)] == [b"new"]
        with pytest.raises((KafkaError, OSError)):
            log.read(0, 100, below_offset=1, whole_first_batch=True)
        await stage.close()

    for seed in range(5):
        on_stage(main, seed)


def test_retention_waits_for_compaction_and_then_does_its_part() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        tasks = stage.host.runtime.tasks
        cleaning = tasks.spawn(stage.cleaner.clean(log), name="clean")
        while not log.reshaping.locked():
            await tasks.sleep(0)
        await stage.manager.enforce_retention()
        assert log.log_start_offset == 0
        assert await cleaning is not None
        await stage.manager.enforce_retention()
        assert log.log_start_offset == log.next_offset
        await stage.close()

    on_stage(main, cleanup_policy="compact,delete", retention_bytes="0")


def test_a_stop_gives_up_what_is_under_way() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before = read_all(log)
        stage.cleaner.start()
        while log.reshaping.compaction is None:
            await stage.host.runtime.tasks.sleep(0.0001)
        await stage.cleaner.stop()
        assert stage.cleaner.running == 0
        assert read_all(log) == before
        await stage.manager.close()

    on_stage(main)


def test_a_stop_at_any_point_of_a_compaction_loses_nothing_that_counts() -> None:
    """Also when the child has ended and several groups of segments are still to be put in their places."""

    async def stop_after(delay_s: float, stage: Stage, done: list[bool]) -> None:
        log = await stage.open()
        fill(log, keys=1000)
        last = {record.key: record.value for record in read_all(log)}
        stage.cleaner.start()
        while log.reshaping.compaction is None:
            await stage.host.runtime.tasks.sleep(0.0001)
        await stage.host.runtime.tasks.sleep(delay_s)
        done.append(stage.cleaner.counts.compactions > 0)
        await stage.cleaner.stop()
        assert {record.key: record.value for record in read_all(log)} == last, delay_s
        await stage.manager.close()

    done = [False]
    while not done[-1]:
        delay_s = len(done) * 0.0005
        on_stage(lambda stage, _world, delay_s=delay_s: stop_after(delay_s, stage, done))
    assert len(done) > 20


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_point_of_a_compaction_loses_nothing_that_counts(seed: int) -> None:
    """Whatever became of the compaction, each key's last record is there; the next one comes to the same end."""

    async def main(world: World, stage: Stage, changes: int) -> bool:
        tasks = stage.host.runtime.tasks
        seen: dict[str, Any] = {}

        async def compact() -> None:
            log = await stage.open()
            fill(log)
            await log.flush()
            await stage.manager.write_checkpoints()
            seen.update(
                before=read_all(log), end_offset=log.segments.active.base_offset, next=log.next_offset
            )
            stage.host.drive.crash_after(changes)
            await stage.cleaner.clean(log)
            await tasks.sleep(100)

        task = tasks.spawn(compact(), name="compact")
        while stage.host.alive and not task.done():
            await world.sleep(0.01)
        crashed = not stage.host.alive
        await check(world, stage, seen, power_lost=not crashed)
        return crashed

    async def check(world: World, stage: Stage, seen: dict[str, Any], power_lost: bool) -> None:
        if power_lost:
            stage.host.crash()
        runtime = stage.host.restart()

        async def reopen() -> None:
            log = await stage.open()
            left = read_all(log)
            expected = last_of_each_key(seen["before"], seen["end_offset"])
            assert log.next_offset == seen["next"]
            assert [record for record in left if record in expected] == expected
            assert all(record in seen["before"] for record in left)
            assert [r.offset for r in left] == sorted({r.offset for r in left})
            assert not [name for name in stage.names if name.endswith((".cleaned", ".swap", ".deleted"))]
            await stage.cleaner.clean(log)
            assert read_all(log) == expected
            append(log, batch(b"more"))
            await stage.close()

        task = runtime.tasks.spawn(reopen(), name="reopen")
        while not task.done() and stage.host.alive:
            await world.sleep(0.01)
        if task.done():
            task.result()

    changes, crashed = 0, True
    while crashed:
        with World(f"{seed}/{changes}") as world:
            crashed = world.run(main(world, Stage(world), changes))
            assert not world.failures
        changes += 1
    assert changes > 30


def test_a_failing_disk_in_the_swap_leaves_one_or_the_other() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        before = read_all(log)
        await log.flush()
        await stage.manager.write_checkpoints()
        in_thread = stage.host.runtime.tasks.in_thread

        def failing(work: Any, *arguments: Any) -> Any:
            if getattr(work, "__name__", "") == "decide_swap":
                stage.host.drive.fail_next("sync", path_contains=LOG_FOLDER)
            return in_thread(work, *arguments)

        stage.cleaner._runtime = _with_tasks(stage.cleaner._runtime, failing)
        assert await stage.cleaner.clean(log) is None
        assert log.failure is None
        assert read_all(log) == before
        assert not [name for name in stage.names if name.endswith((".cleaned", ".swap"))]
        await stage.close()

    on_stage(main)


def _with_tasks(runtime: Any, in_thread: Any) -> Any:
    from dataclasses import replace

    class Tasks:
        def __getattr__(self, name: str) -> Any:
            return in_thread if name == "in_thread" else getattr(runtime.tasks, name)

    return replace(runtime, tasks=Tasks())
