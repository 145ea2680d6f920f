"""Brokers that were taken out of the cluster, and are in it again. R2, R6."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.controller.leaders import Election
from moldau.sim.world import World

from .trio import TOPIC, Trio


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
