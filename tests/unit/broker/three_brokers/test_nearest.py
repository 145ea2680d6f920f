"""Reading from followers, and being sent to the nearest one (KIP-392)."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.config.replication_keys import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from moldau.log.transactions import Marker
from moldau.records.record import Record, build_batch
from moldau.sim.world import World

from .trio import LAG_MS, Trio

RACKS = {1: "north", 2: "south", 3: "south"}
NOBODY = -1


def racks(node_id: int) -> dict[str, str]:
    return {"broker.rack": RACKS[node_id], "replica.selector.class": RACK_AWARE_SELECTOR}


async def begin(trio: Trio, *replicas: int) -> None:
    await trio.start(1)
    await trio.start(2, 3)
    await trio.create(replicas or (1, 2, 3))
    for _ in range(3):
        await trio.produce(1)
    await trio.until(lambda: all(trio.partition(i).high_watermark == 3 for i in replicas), "all is committed")


async def fetched(trio: Trio, node_id: int, offset: int, **values: Any) -> Any:
    return (await trio.fetch(node_id, offset, **values)).responses[0].partitions[0]


def test_a_consumer_is_sent_to_the_furthest_in_sync_follower_in_its_rack() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2, 3)
        began_s = world.loop.time()
        there = await fetched(trio, 1, 0, rack_id="south", max_wait=5_000, min_bytes=1)
        assert there.preferred_read_replica in (2, 3)
        assert (there.high_watermark, there.log_start_offset, there.records) == (3, 0, b"")
        at_the_end = await fetched(trio, 1, 3, rack_id="south", max_wait=5_000, min_bytes=1)
        assert at_the_end.preferred_read_replica in (2, 3)
        assert world.loop.time() - began_s < 1  # it is sent away at once
        for rack in ("north", "", "elsewhere"):
            here = await fetched(trio, 1, 0, rack_id=rack)
            assert here.preferred_read_replica == NOBODY and here.records, rack
        trio.cut(1, 3)
        await trio.produce(1, acks=1)
        await trio.until(lambda: trio.partition(2).log.next_offset == 4, "the one has more than the other")
        assert (await fetched(trio, 1, 0, rack_id="south")).preferred_read_replica == 2
        await world.sleep(3 * LAG_MS / 1000)
        trio.kill(2)
        await trio.until(lambda: trio.partition(1).state.isr == (1,), "nobody else is in sync")
        assert (await fetched(trio, 1, 0, rack_id="south")).preferred_read_replica == NOBODY

    with World(1) as world:
        world.run(scene(Trio(world, racks)))
        assert not world.failures


@pytest.mark.parametrize("selector", [None, LEADER_SELECTOR])
def test_nobody_is_sent_away_where_it_is_not_asked_for(selector: str | None) -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2)
        assert (await fetched(trio, 1, 0, rack_id="south")).preferred_read_replica == NOBODY

    def settings(node_id: int) -> dict[str, str]:
        own = {} if selector is None else {"replica.selector.class": selector}
        return {"broker.rack": RACKS[node_id]} | own

    with World(2) as world:
        world.run(scene(Trio(world, settings)))
        assert not world.failures


def test_a_session_is_told_again_and_again_to_go_elsewhere() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2)
        first = await trio.fetch(1, 0, rack_id="south", session_epoch=0)
        assert first.session_id
        for epoch in (1, 2):
            session = {"session_id": first.session_id, "session_epoch": epoch, "topics": []}
            again = await trio.fetch(1, 0, rack_id="south", **session)
            assert again.responses[0].partitions[0].preferred_read_replica == 2

    with World(3) as world:
        world.run(scene(Trio(world, racks)))
        assert not world.failures


def test_a_follower_serves_consumers_up_to_its_own_high_watermark_and_wakes_them() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2, 3)
        there = await fetched(trio, 2, 0)
        assert (there.error_code, there.high_watermark, there.log_start_offset) == (ErrorCode.none, 3, 0)
        whole = (await fetched(trio, 1, 0)).records
        assert there.records == whole
        trio.cut(1, 3)  # it follows no more, so that nothing is committed
        await trio.produce(1, acks=1)
        await trio.until(lambda: trio.partition(2).log.next_offset == 4, "the follower has it")
        await world.sleep(0.2)
        for offset in (3, 4):
            beyond = await fetched(trio, 2, offset)
            assert (beyond.error_code, beyond.records, beyond.high_watermark) == (ErrorCode.none, b"", 3)
        began_s = world.loop.time()
        waiting = world.loop.create_task(fetched(trio, 2, 3, max_wait=60_000, min_bytes=1))
        assert (await waiting).records  # when the other one is in sync no more
        assert LAG_MS / 2000 < world.loop.time() - began_s < 3 * LAG_MS / 1000
        assert (await fetched(trio, 2, 5)).error_code == ErrorCode.offset_out_of_range

    with World(4) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_reader_of_a_follower_waits_for_as_much_as_it_asks_for() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2)
        one = len((await fetched(trio, 1, 2)).records)
        waiting = world.loop.create_task(fetched(trio, 2, 3, max_wait=20_000, min_bytes=3 * one))
        began_s = world.loop.time()
        for _ in range(3):
            await world.sleep(0.1)
            assert not waiting.done()
            await trio.produce(1)
        assert len((await waiting).records) == 3 * one
        assert world.loop.time() - began_s < 1

    with World(5) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


@pytest.mark.parametrize("version", [10, 12, 17])
def test_who_compares_replicas_is_shown_all_of_each(version: int) -> None:
    """Kafka's replica-verification, which fetches as the replica -2."""

    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2, 3)
        trio.cut(1, 3)
        await trio.produce(1, acks=1)  # not committed
        await trio.until(lambda: trio.partition(2).log.next_offset == 4, "the follower has it")
        who = {"replica_state": {"replica_id": -2}} if version >= 15 else {"replica_id": -2}
        shown = [await fetched(trio, node_id, 3, version=version, **who) for node_id in (1, 2)]
        assert [part.error_code for part in shown] == [ErrorCode.none] * 2
        assert shown[0].records and shown[0].records == shown[1].records

    with World(9) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_follower_serves_only_who_can_know_that_it_is_one() -> None:
    async def scene(trio: Trio) -> None:
        await begin(trio, 1, 2)
        epoch = trio.state().leader_epoch
        assert (await fetched(trio, 2, 0, version=10)).error_code == ErrorCode.not_leader_or_follower
        assert (await fetched(trio, 2, 0, replica_id=3)).error_code == ErrorCode.not_leader_or_follower
        ahead = await fetched(trio, 2, 0, current_leader_epoch=epoch + 1)
        assert ahead.error_code == ErrorCode.unknown_leader_epoch
        assert (await fetched(trio, 2, 0, current_leader_epoch=epoch)).error_code == ErrorCode.none
        assert (await fetched(trio, 3, 0)).error_code == ErrorCode.not_leader_or_follower

    with World(6) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_follower_goes_on_to_serve_what_is_committed_while_nobody_leads() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start(3)
        await trio.start(1, 2)
        await trio.create((1, 2), configs={"min.insync.replicas": "1"})
        await trio.produce(1)
        await trio.until(lambda: trio.partition(2).high_watermark == 1, "it is committed")
        trio.cut(1, 2)
        await trio.produce(1, acks=1)
        await trio.until(lambda: trio.partition(1).state.isr == (1,), "the other one is out of sync")
        trio.kill(1)
        await trio.until(lambda: trio.partition(2).state.leader == NOBODY, "nobody leads")
        there = await fetched(trio, 2, 0)
        assert (there.error_code, there.high_watermark) == (ErrorCode.none, 1)
        assert there.records

    with World(7) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_readers_of_committed_records_are_told_the_same_by_leader_and_follower() -> None:
    """Open transactions, aborted ones and those committed."""

    async def scene(trio: Trio) -> None:
        await trio.start(1)
        await trio.start(2, 3)
        await trio.create((1, 2))
        leader, follower = trio.partition(1), trio.partition(2)

        def write(producer_id: int, sequence: int) -> None:
            record = Record(0, 1_000, b"key", b"of a transaction")
            data = build_batch(
                [record],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            assert not leader.append_own(data, 1_000, is_transactional=True).error

        async def compare(stable: int, aborted: list[tuple[int, int]]) -> None:
            await trio.until(lambda: follower.high_watermark == leader.log.next_offset, "it has followed")
            told = []
            for node_id in (1, 2):
                part = await fetched(trio, node_id, 0, isolation_level=1)
                named = [(one.producer_id, one.first_offset) for one in part.aborted_transactions]
                told.append((part.high_watermark, part.last_stable_offset, named, part.records))
            assert told[0] == told[1]
            assert told[0][1:3] == (stable, aborted)

        write(7, 0)
        write(8, 0)
        await compare(0, [])
        leader.append_marker(Marker(is_commit=False, coordinator_epoch=0), 7, 0, 1_000, 0)
        await compare(1, [(7, 0)])
        leader.append_marker(Marker(is_commit=True, coordinator_epoch=0), 8, 0, 1_000, 0)
        await compare(4, [(7, 0)])

    with World(8) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
