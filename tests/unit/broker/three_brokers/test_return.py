"""Brokers that were taken out of the cluster, and are in it again. R2, R6."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.controller.leaders import Election
from moldau.sim.world import World

from .trio import TOPIC, Trio, batch


def test_a_broker_that_was_unregistered_and_is_back_is_followed_again() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((2, 1, 3), configs={"min.insync.replicas": "2"})
        assert (await trio.produce(2)).error_code == ErrorCode.none
        controller = trio.brokers[1]
        work = controller.controller.unregister_broker(2)
        await controller.tasks.spawn(work, name="unregister")
        await trio.until(lambda: sorted(trio.state().isr) == [1, 2, 3], "all in sync")
        work = controller.controller.elect_leaders(Election.PREFERRED, [TopicPartition(TOPIC, 0)])
        await controller.tasks.spawn(work, name="elect")
        await trio.until(lambda: trio.partition(2).leader is not None, "the leader")
        assert (await trio.produce(2)).error_code == ErrorCode.none
        assert sorted(trio.state().isr) == [1, 2, 3]

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures


def test_a_fetch_that_an_earlier_life_of_a_follower_has_sent_does_not_count() -> None:
    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2))
        earlier = trio.brokers[2].registrar.epoch
        trio.kill(2)
        await trio.start(2)
        await trio.until(lambda: trio.state().isr == (1, 2), "it is in sync again")
        trio.cut(1, 2)
        appended = trio.partition(1).append_own(batch(b"value"), 1, is_transactional=False)
        late = {"replica_id": 2, "replica_epoch": earlier}
        answer = await trio.fetch(1, appended.last_offset + 1, version=17, replica_state=late)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.not_leader_or_follower
        assert trio.partition(1).high_watermark == 0

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
