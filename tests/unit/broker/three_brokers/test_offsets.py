"""ListOffsets and OffsetForLeaderEpoch of a partition with three replicas: who answers, and what right after an
election."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.sim.world import World

from .trio import LAG_MS, TOPIC, Trio

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def elect_one_that_knows_little(trio: Trio) -> int:
    """Kill the leader with two records committed; the new leader hears from nobody how far its log is committed."""
    await trio.start(
        2
    )  # so that the next leader is the controller, and hears of it with the link to the other cut
    await trio.start(1, 3)
    await trio.create((1, 2, 3))
    await trio.produce(1)
    await trio.until(lambda: all(trio.partition(i).high_watermark == 1 for i in (1, 2, 3)), "one committed")
    answer = await trio.produce(1)
    assert answer.error_code == ErrorCode.none
    assert [trio.partition(i).high_watermark for i in (2, 3)] == [1, 1]
    trio.cut(2, 3)
    trio.kill(1)
    await trio.until(lambda: trio.partition(2).leader is not None, "another leader")
    return 2


def test_right_after_an_election_the_end_of_the_log_is_not_told_to_consumers() -> None:
    """KIP-207: an offset below what they were told before would look like lost records."""

    async def scene(trio: Trio) -> None:
        leader = await elect_one_that_knows_little(trio)
        assert (await trio.list_offset(leader, LATEST)).error_code == ErrorCode.offset_not_available
        old = await trio.list_offset(leader, LATEST, version=4)
        assert old.error_code == ErrorCode.leader_not_available  # what clients of then know to try again
        assert (await trio.list_offset(leader, 5_000)).error_code == ErrorCode.offset_not_available
        assert (await trio.list_offset(leader, EARLIEST)).offset == 0
        assert (await trio.list_offset(leader, 1_000)).offset == 0  # committed, as this leader knows
        for replica_id in (2, -2):
            found = await trio.list_offset(leader, LATEST, replica_id=replica_id)
            assert (found.error_code, found.offset) == (ErrorCode.none, 2)
        trio.heal()
        await trio.until(lambda: trio.partition(leader).high_watermark == 2, "all is committed")
        assert (await trio.list_offset(leader, LATEST)).offset == 2

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_leader_that_nobody_follows_tells_its_end_when_the_others_are_out_of_sync() -> None:
    async def scene(trio: Trio) -> None:
        leader = await elect_one_that_knows_little(trio)
        await world.sleep(2 * LAG_MS / 1000)
        assert (await trio.list_offset(leader, LATEST)).offset == 2

    with World(2) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_offsets_are_told_by_the_leader_only_and_by_its_epoch() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2))
        await trio.produce(1)
        epoch = trio.state().leader_epoch
        await trio.until(lambda: trio.partition(2).high_watermark == 1, "committed")
        expected = {
            (1, epoch): ErrorCode.none,
            (1, epoch + 1): ErrorCode.unknown_leader_epoch,
            (1, epoch - 1): ErrorCode.fenced_leader_epoch if epoch else ErrorCode.none,
            (2, -1): ErrorCode.not_leader_or_follower,
            (2, epoch): ErrorCode.not_leader_or_follower,
            (2, epoch + 1): ErrorCode.unknown_leader_epoch,
            (3, -1): ErrorCode.not_leader_or_follower,
            (3, epoch): ErrorCode.not_leader_or_follower,
        }
        for (node_id, claimed), error in expected.items():
            for timestamp in (LATEST, EARLIEST, 0):
                found = await trio.list_offset(node_id, timestamp, current_leader_epoch=claimed)
                assert found.error_code == error, (node_id, claimed, timestamp)
            wanted = {"partition": 0, "current_leader_epoch": claimed, "leader_epoch": epoch}
            topics = [{"topic": TOPIC, "partitions": [wanted]}]
            answer = await trio.ask(node_id, "OffsetForLeaderEpoch", 4, replica_id=-1, topics=topics)
            end = answer.topics[0].partitions[0]
            assert end.error_code == error, (node_id, claimed)
            assert end.end_offset == (1 if error is ErrorCode.none else -1)
        debugging = await trio.list_offset(2, LATEST, replica_id=-2)
        assert (debugging.error_code, debugging.offset) == (ErrorCode.none, 1)

    with World(3) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
