"""A log moves to another data folder, and something goes wrong: a crash at any point, a disk that fails or is full."""

from __future__ import annotations

import errno
import uuid
from typing import Any

import pytest
from log_world import NOW_MS, PARTITION, append, batch
from move_stage import TOPIC_ID, A, B, Stage, fill, on_stage, read_all

from moldau.log import names
from moldau.log.checkpoints import write_partition_metadata
from moldau.records.record import Record, build_batch
from moldau.sim.world import World


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "is_power_cut"), [(0, True), (1, True), (2, False)])
def test_a_crash_at_any_point_of_a_move_leaves_one_log_with_all_of_it(seed: int, is_power_cut: bool) -> None:
    """The end at every change of the disk, with appends that are synced all the time and the start moving: the log is
    there once, with all that was synced, or all that was appended where the power was not cut; and the next life
    brings the move to its end."""

    async def main(world: World, stage: Stage, changes: int) -> bool:
        seen: dict[str, Any] = {"synced": 0, "start": 0}
        if not is_power_cut:
            stage.host.drive.crash_host = stage.host.kill

        async def move() -> None:
            log = await stage.open()
            fill(log, 50)
            await log.truncate_to(80, stage.manager.write_checkpoints_of)
            await log.flush()
            await stage.manager.write_checkpoints()
            stage.host.drive.crash_after(changes)
            seen["synced"] = log.next_offset
            await stage.begin(log, B)
            number = 40
            while number < 52:
                fill(log, 1, first=number, epoch=1)
                number += 1
                before = log.next_offset
                if not is_power_cut:
                    seen["synced"] = before
                if number == 46:
                    log.delete_records_before(50)
                    await stage.manager.write_checkpoints()
                    seen["start"] = 50
                await log.flush()
                seen["synced"] = before
            await stage.until_moved(log, B)

        task = stage.host.runtime.tasks.spawn(move(), name="move")
        while stage.host.alive and not task.done():
            await world.sleep(0.001)
        crashed = not stage.host.alive
        if task.done() and not crashed:
            task.result()
            stage.host.crash()
        await check(world, stage, seen)
        return crashed

    async def check(world: World, stage: Stage, seen: dict[str, Any]) -> None:
        runtime = stage.host.restart()

        async def reopen() -> None:
            log = await stage.open()
            found = read_all(log)
            assert log.next_offset >= seen["synced"]
            assert log.log_start_offset >= seen["start"]
            assert [r.offset for r in found] == list(range(log.log_start_offset, log.next_offset))
            assert all(r.key == b"%d" % (r.offset // 2) for r in found)
            assert len([path for path in stage.places if path.endswith(str(PARTITION))]) == 1
            assert len(stage.futures) <= 1
            append(log, batch(b"more"))
            before = read_all(log)
            if not log.folder.startswith(B):
                await stage.begin(log, B)
            await stage.until_moved(log, B)
            assert read_all(log) == before
            await stage.close()
            assert read_all(await stage.open()) == before
            await stage.close()

        task = runtime.tasks.spawn(reopen(), name="reopen")
        while not task.done() and stage.host.alive:
            await world.sleep(0.01)
        task.result()

    changes, crashed = 0, True
    while crashed:
        with World(f"{seed}/{changes}") as world:
            crashed = world.run(main(world, Stage(world), changes))
            assert not world.failures
        changes += 1
    assert changes > 60


@pytest.mark.slow
def test_a_move_that_was_begun_is_brought_to_its_end_by_whoever_starts_after_a_kill() -> None:
    """There and back, with a kill at every change of the disk: of two logs that hold the same the right one is gone on
    with."""

    async def main(world: World, stage: Stage, changes: int, path: str) -> bool:
        stage.host.drive.crash_host = stage.host.kill
        is_begun = False

        async def move() -> None:
            nonlocal is_begun
            log = await stage.open()
            if not log.next_offset:
                fill(log, 5)
            if path == A:
                await stage.begin(log, B)
                await stage.until_moved(log, B)
            stage.host.drive.crash_after(changes)
            await stage.begin(log, path)
            is_begun = True
            await stage.until_moved(log, path)
            assert not stage.host.runtime.disk.exists(f"{log.folder}/{names.MOVED_HERE}")

        task = stage.host.runtime.tasks.spawn(move(), name="move")
        while stage.host.alive and not task.done():
            await world.sleep(0.001)
        crashed = not stage.host.alive
        runtime = stage.host.restart()

        async def reopen() -> None:
            log = await stage.open()
            if is_begun:
                await stage.until_moved(log, path)
            assert len(read_all(log)) == 10
            await stage.close()

        task = runtime.tasks.spawn(reopen(), name="reopen")
        for _ in range(1000):
            if task.done() or not stage.host.alive:
                break
            await world.sleep(0.01)
        assert task.done(), f"the move to {path} is forgotten after {changes} changes"
        task.result()
        return crashed

    for path in (A, B):
        changes, crashed = 0, True
        while crashed:
            with World(f"{path}/{changes}") as world:
                crashed = world.run(main(world, Stage(world), changes, path))
                assert not world.failures
            changes += 1
        assert changes > 10


@pytest.mark.slow
def test_a_crash_at_any_point_of_the_move_of_a_compacted_log_keeps_what_lies_behind_its_gaps() -> None:
    """A start takes a gap above the recovery point for lost data: the checkpoints must go with the log."""

    async def main(world: World, stage: Stage, changes: int) -> bool:
        before: list[Record] = []

        async def move() -> None:
            log = await stage.open()
            for number in range(40):
                append(log, build_batch([Record(0, NOW_MS, b"%d" % number, b"x" * 150)]))
                log.next_offset += 5
                if number % 9 == 8:
                    log.roll(NOW_MS)
                    log.next_offset += 5
            log.reshaping.cleaned_to = log.segments.active.base_offset
            append(log, batch(b"last"))
            await log.flush()
            await stage.manager.write_checkpoints()
            before.extend(read_all(log))
            stage.host.drive.crash_after(changes)
            await stage.begin(log, B)
            await stage.until_moved(log, B)

        task = stage.host.runtime.tasks.spawn(move(), name="move")
        while stage.host.alive and not task.done():
            await world.sleep(0.001)
        crashed = not stage.host.alive
        runtime = stage.host.restart()

        async def reopen() -> None:
            log = await stage.open()
            assert read_all(log) == before
            assert log.next_offset == before[-1].offset + 1
            if not log.folder.startswith(B):
                await stage.begin(log, B)
            await stage.until_moved(log, B)
            assert read_all(log) == before
            await stage.close()
            assert read_all(await stage.open()) == before
            await stage.close()

        task = runtime.tasks.spawn(reopen(), name="reopen")
        while not task.done() and stage.host.alive:
            await world.sleep(0.01)
        task.result()
        return crashed

    changes, crashed = 0, True
    while crashed:
        with World(f"gaps/{changes}") as world:
            crashed = world.run(main(world, Stage(world), changes))
            assert not world.failures
        changes += 1
    assert changes > 40


@pytest.mark.parametrize("kind", ["write", "sync"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_target_that_fails_or_is_full_leaves_the_log_as_it_is(kind: Any, number: int) -> None:
    """At whichever of its operations it fails."""

    async def main(stage: Stage, after: int) -> bool:
        log = await stage.open()
        fill(log)
        await log.flush()
        before = read_all(log)
        failed = False
        operate = stage.host.drive.operate
        left = after

        def failing(what: Any, path: str) -> None:
            nonlocal left, failed
            if what == kind and path.startswith(f"{B}/") and names.FUTURE_FOLDER in path:
                left -= 1
                if left < 0:
                    failed = True
                    raise OSError(number, "injected", path)
            operate(what, path)

        stage.host.drive.operate = failing  # type: ignore[method-assign]
        try:
            await stage.begin(log, B)
        except OSError:
            assert failed
        moves = stage.manager.moves
        await stage.until(lambda: PARTITION not in moves.under_way and not moves._leaving)
        stage.host.drive.operate = operate  # type: ignore[method-assign]
        assert log.failure is None and not stage.failures
        assert read_all(log) == before
        append(log, batch(b"more"))
        if failed:
            assert log.folder.startswith(A) and not log.reshaping.is_moving
        if failed and number == errno.ENOSPC and kind == "write":
            await stage.sleep(3)
            assert stage.places == [log.folder]
            await stage.begin(log, B)  # there is room again
            await stage.until_moved(log, B)
        await stage.close()
        return failed

    after, failed = 0, True
    while failed:

        async def one(stage: Stage, after: int = after) -> None:
            nonlocal failed
            failed = await main(stage, after)

        on_stage(one, f"{kind}/{number}/{after}")
        after += 1
    assert after > 4


def test_a_source_that_fails_takes_its_log_offline_and_the_copy_is_given_up() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 200)
        stage.bytes_per_s = 10_000
        await stage.begin(log, B)
        await stage.sleep(0.5)
        stage.host.drive.fail_next("sync", path_contains=f"{A}/")
        with pytest.raises(OSError):
            await log.flush()
        assert log.failure is not None and len(stage.failures) == 1
        await stage.sleep(1)
        assert not stage.futures and not stage.manager.moves.under_way
        await stage.close()

    on_stage(main)


def test_a_copy_that_cannot_be_made_is_not_gone_on_with() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        await log.truncate_fully_and_start_at(100, stage.manager.write_checkpoints_of)
        stage.host.drive.fail_next("write", path_contains=f"{B}/", number=errno.ENOSPC)
        with pytest.raises(OSError):
            await stage.begin(log, B)
        await stage.sleep(1)
        assert stage.places == [log.folder]
        await stage.close()

    on_stage(main)


def test_a_damaged_log_is_not_moved() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 60)
        stage.host.runtime.disk.open(f"{log.folder}/{0:020d}.log").pwrite(b"\xff", 300)
        await stage.begin(log, B)
        moves = stage.manager.moves
        await stage.until(lambda: not moves.under_way)
        assert log.folder.startswith(A) and log.failure is None
        await stage.sleep(1)
        assert stage.places == [log.folder]
        await stage.close()

    on_stage(main)


def _copied(stage: Stage, source: str, target: str) -> None:
    disk = stage.host.runtime.disk
    disk.make_folder(target)
    for name in disk.list(source):
        disk.write_atomic(f"{target}/{name}", disk.read(f"{source}/{name}"))


@pytest.mark.parametrize("longer", [A, B])
def test_of_two_logs_of_a_partition_the_one_that_has_more_counts_and_the_other_goes(longer: str) -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 10)
        await stage.close()
        _copied(stage, f"{A}/{PARTITION}", f"/{PARTITION}")
        log = await stage.open()
        fill(log, 5, first=10)
        await stage.close()
        disk = stage.host.runtime.disk
        if longer == A:
            _copied(stage, f"/{PARTITION}", f"{B}/{PARTITION}")
        else:
            _copied(stage, f"{A}/{PARTITION}", f"{B}/{PARTITION}")
            disk.remove_tree(f"{A}/{PARTITION}")
            _copied(stage, f"/{PARTITION}", f"{A}/{PARTITION}")
        log = await stage.open()
        assert log.folder == f"{longer}/{PARTITION}"
        assert len(read_all(log)) == 30
        assert stage.places == [log.folder]
        await stage.close()

    on_stage(main)


def test_of_two_logs_of_a_partition_the_newer_epoch_counts_before_the_length() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 10)
        await stage.close()
        _copied(stage, f"{A}/{PARTITION}", f"{B}/{PARTITION}")
        stage.folders = [B]
        log = await stage.open()
        await log.truncate_to(10, stage.manager.write_checkpoints_of)
        record = Record(0, NOW_MS, b"newer", b"v")
        append(log, build_batch([record]), epoch=2)
        await stage.close()
        stage.folders = [A, B]
        log = await stage.open()
        assert log.folder == f"{B}/{PARTITION}" and read_all(log)[-1].key == b"newer"
        await stage.close()

    on_stage(main)


def test_a_log_of_another_topic_in_the_other_folder_is_left_alone() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 10)
        await stage.close()
        _copied(stage, f"{A}/{PARTITION}", f"{B}/{PARTITION}")
        disk = stage.host.runtime.disk
        other = write_partition_metadata(uuid.UUID(int=99))
        disk.write_atomic(f"{A}/{PARTITION}/{names.PARTITION_METADATA}", other)
        log = await stage.open()
        assert log.folder == f"{B}/{PARTITION}" and log.topic_id == TOPIC_ID
        assert len(stage.places) == 2
        await stage.close()

    on_stage(main)


def test_a_copy_whose_log_is_in_no_folder_is_left_alone() -> None:
    async def main(stage: Stage) -> None:
        log = await stage.open()
        fill(log, 100)
        stage.bytes_per_s = 1000
        await stage.begin(log, B)
        await stage.sleep(0.5)
        await stage.close()
        (future,) = stage.futures
        stage.host.runtime.disk.rename(f"{A}/{PARTITION}", "/elsewhere")
        await stage.open()
        assert stage.futures == [future] and not stage.manager.moves.under_way
        await stage.close()

    on_stage(main)
