"""A disk that fails on one broker of several."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.sim.world import World

from .trio import Trio


def test_a_broker_that_registers_again_says_again_which_logs_it_does_not_have() -> None:
    """A registration clears what the controller knows of its disks."""

    async def scene(trio: Trio) -> None:
        await trio.start(2)
        await trio.start(1, 3)
        await trio.create((1, 2))
        trio.brokers[1].replicas.take_offline(trio.partition(1))
        await trio.until(lambda: trio.state().leader == 2, "another one leads")
        assert trio.state().offline == (1,)
        epoch = trio.brokers[1].registrar.epoch
        await trio.fence(1)
        await trio.until(lambda: trio.brokers[1].registrar.epoch > epoch, "it registers again")
        await trio.until(lambda: 1 in trio.brokers[2].image.brokers, "it is back")
        assert trio.state().offline == (1,)
        assert (await trio.produce(2)).error_code == ErrorCode.none

    with World(1) as world:
        world.run(scene(Trio(world)))
        assert not world.failures
