"""Leaders go back to where they belong by themselves, unless they are not to. R8."""

from __future__ import annotations

import pytest

from moldau.sim.world import World

from .trio import Trio

CHECK_S = 5


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_the_preferred_leader_leads_again_by_itself_where_that_is_enabled(enabled: str) -> None:
    settings = {
        "auto.leader.rebalance.enable": enabled,
        "leader.imbalance.check.interval.seconds": str(CHECK_S),
    }

    async def scene(trio: Trio) -> None:
        await trio.start()
        await trio.create((1, 2, 3))
        trio.kill(1)
        await trio.until(lambda: trio.state().leader in (2, 3), "another leads")
        await trio.start(1)
        await trio.until(lambda: set(trio.state().isr) == {1, 2, 3}, "in sync again")
        if enabled == "true":
            await trio.until(lambda: trio.state().leader == 1, "back by itself")
        else:
            await trio.world.sleep(4 * CHECK_S)
            assert trio.state().leader != 1

    with World(1) as world:
        world.run(scene(Trio(world, lambda _: settings)))
        assert not world.failures
