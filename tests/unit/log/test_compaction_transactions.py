"""Compaction and transactions: what was aborted goes, and nothing that was committed goes with it."""

from __future__ import annotations

from cleaner_stage import LOG_FOLDER, Stage, on_stage, read_all, slice_from, transact
from log_world import NOW_MS, append, batch

from moldau.log.log import Log
from moldau.log.transactions import Marker
from moldau.records.record import Record, build_batch
from moldau.sim.world import World


def test_aborted_records_go_and_the_index_is_that_of_what_is_left_also_after_a_restart() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        for number in range(60):
            transact(log, number % 3, b"%d" % (number % 5), commit=number % 4 != 1)
        end_offset = log.segments.active.base_offset
        await stage.cleaner.clean(log)

        left = [r for r in read_all(log) if r.offset < end_offset and b" of " in (r.value or b"")]
        assert sorted(r.key or b"" for r in left) == [b"%d" % key for key in range(5)]
        assert all((r.value or b"").startswith(b"committed") for r in left)
        found = log.producing.aborted.below(log.next_offset)
        assert all(entry.last_offset in [r.offset for r in read_all(log)] for entry in found)
        await stage.close()
        log = await stage.open()
        assert log.producing.aborted.below(log.next_offset) == found
        await stage.close()

    on_stage(main)


def begin(log: Log, producer_id: int, key: bytes) -> None:
    """The only record of a transaction that is left open."""
    guard = log.producing.begin_verification(producer_id, 0, 0, False)
    fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    data = memoryview(bytearray(build_batch([Record(0, NOW_MS, key, b"open")], transactional=True, **fields)))
    assert not log.append(data, 0, len(data), 0, NOW_MS, True, guard).error


def abort(log: Log, producer_id: int) -> None:
    assert not log.producing.append_marker(Marker(False, 0), producer_id, 0, 0, NOW_MS).error


def test_what_was_aborted_in_a_later_segment_takes_no_committed_record_with_it() -> None:
    """The marker lies behind what is compacted; its transaction is as aborted as any."""

    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        append(log, build_batch([Record(0, NOW_MS, b"k", b"committed")]))
        begin(log, 1, b"k")
        append(log, build_batch([Record(0, NOW_MS, b"other", b"v")]))
        log.roll(NOW_MS)
        abort(log, 1)
        assert await stage.cleaner.clean(log) is not None
        found = {record.key: record.value for record in read_all(log) if record.key in (b"k", b"other")}
        assert found == {b"k": b"committed", b"other": b"v"}
        await stage.close()

    on_stage(main)


def test_aborted_records_are_told_behind_segments_of_which_nothing_is_left() -> None:
    async def main(stage: Stage, world: World) -> None:
        log = await stage.open()
        for _ in range(2):
            append(log, batch(b"x" * 900))
            log.roll(NOW_MS)
        first = log.next_offset
        begin(log, 1, b"k")
        abort(log, 1)
        await stage.close()
        disk = stage.host.runtime.disk
        for name in disk.list(LOG_FOLDER):
            if name.endswith((".log", "index")) and int(name[:20]) < first:
                disk.open(f"{LOG_FOLDER}/{name}").truncate(0)
        log = await stage.open()
        for offset in range(first + 1):
            found = await slice_from(log, offset)
            assert log.producing.aborted_in(offset, found) == [(1, first)]
        await stage.close()

    on_stage(main)
