"""Compaction and transactions: what was aborted goes, and nothing that was committed goes with it."""

from __future__ import annotations

from cleaner_stage import (
    Stage,
    on_stage,
    read_all,
    transact,
)

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
