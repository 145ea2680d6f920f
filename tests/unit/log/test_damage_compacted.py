"""Damage to the small files of logs that were compacted or hold aborted transactions: nothing else is lost for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cleaner_stage import FOLDER, LOG_FOLDER, Stage, fill, on_stage, read_all, transact
from log_world import NOW_MS, append, batch

from moldau.log.log import Log
from moldau.log.snapshots import EMPTY_BYTES
from moldau.records.record import Record
from moldau.runtime.ports import Disk
from moldau.sim.world import World

Damage = Callable[[bytes], bytes | None]
DAMAGES: dict[str, Damage] = {
    "missing": lambda content: None,
    "zeroes": lambda content: bytes(len(content)),
    "cut": lambda content: content[: len(content) // 2 + 1],
    "flipped": lambda content: bytes([content[0] ^ 0x40]) + content[1:],
}


def damaged(disk: Disk, path: str, damage: Damage) -> None:
    content = damage(disk.read(path))
    if content is None:
        disk.remove(path)
    else:
        disk.write_atomic(path, content)


async def with_gaps(stage: Stage) -> tuple[Log, list[Record]]:
    """A compacted log with gaps between its segments, and all that is left in it."""
    log = await stage.open()
    for number in range(20):
        append(log, batch(b"%d" % number, timestamp=NOW_MS + number))
        transact(log, 1, b"other %d" % number, commit=False)
        fill(log, 20, first=20 * number)
        log.roll(NOW_MS)
        if number == 10:
            assert await stage.cleaner.clean(log) is not None
    await log.flush()
    await stage.manager.write_checkpoints()
    left = read_all(log)
    ends = [max(r.offset for r in left if r.offset < base) + 1 for base in log.segments.bases[1:]]
    assert any(end < base for end, base in zip(ends, log.segments.bases[1:], strict=True))
    return log, left


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_compacted_log_is_whole_after_a_crash_though_its_recovery_point_is_lost(damage: str) -> None:
    async def main(stage: Stage, world: World) -> None:
        log, left = await with_gaps(stage)
        stage.manager.release()
        log.abandon()
        disk = stage.host.runtime.disk
        damaged(disk, f"{FOLDER}/recovery-point-offset-checkpoint", DAMAGES[damage])
        again = await stage.open()
        assert again.next_offset == log.next_offset
        assert read_all(again) == left
        await stage.close()

    on_stage(main, segment_bytes="1500")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["zeroes", "cut", "flipped"])
def test_a_damaged_index_of_aborted_transactions_is_made_anew_and_nothing_else_is_touched(
    damage: str, clean: bool
) -> None:
    async def main(stage: Stage, world: World) -> None:
        log, _ = await with_gaps(stage)
        bases = log.producing.aborted.bases
        entries = log.producing.aborted.below(log.next_offset)
        disk = stage.host.runtime.disk
        if clean:
            await stage.close()
        else:
            stage.manager.release()
            log.abandon()
        damaged(disk, f"{LOG_FOLDER}/{bases[-4]:020d}.txnindex", DAMAGES[damage])
        # Who reads there is told, and nothing is cut off for it.
        disk.open(f"{LOG_FOLDER}/{log.segments.bases[-2]:020d}.log").pwrite(bytes(61), 0)
        again = await stage.open()
        assert (again.next_offset, again.segments.bases) == (log.next_offset, log.segments.bases)
        assert again.producing.aborted.bases == bases
        assert again.producing.aborted.below(log.next_offset) == entries
        await stage.close()

    on_stage(main, segment_bytes="1500")


def test_a_start_beyond_the_end_that_a_clean_stop_has_left_is_not_believed() -> None:
    """A checkpoint has no checksum; to begin anew there would lose everything."""

    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        fill(log)
        log.delete_records_before(5)
        left = read_all(log)
        await stage.close()
        path = f"{FOLDER}/log-start-offset-checkpoint"
        damaged(stage.host.runtime.disk, path, lambda content: content.replace(b"0 5\n", b"0 5555\n"))
        log = await stage.open()
        assert log.log_start_offset == 5
        assert read_all(log) == left
        await stage.close()

    on_stage(main)


def test_a_snapshot_that_is_cut_off_behind_its_head_does_not_say_that_there_are_no_producers() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        append(log, batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0))
        await stage.close()
        path = f"{LOG_FOLDER}/{1:020d}.snapshot"
        damaged(stage.host.runtime.disk, path, lambda content: content[:EMPTY_BYTES])
        log = await stage.open()
        assert append(log, batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0)).duplicate
        await stage.close()

    on_stage(main)
