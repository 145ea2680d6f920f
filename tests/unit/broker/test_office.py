"""Who becomes the controller, and who leaves it to others. R7."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.office import Office
from moldau.config.broker import BrokerConfig
from moldau.controller import layout
from moldau.sim.world import World
from moldau.store.memory import MemoryStore
from moldau.store.port import Create


def test_a_broker_of_before_a_later_layout_leaves_the_office_to_others() -> None:
    """It runs since before the upgrade: it has checked the layout at its start, and would misread the store now."""
    with World(1) as world:
        runtime = world.host("broker").runtime
        store = MemoryStore()
        lost: list[bool] = []

        async def on_lost() -> None:
            lost.append(True)

        broker = SimpleNamespace(config=BrokerConfig.parse({}))
        office = Office(store, runtime, 1, broker, lambda: None, lambda: 0.0, on_lost)

        async def scene() -> None:
            await store.multi([Create(layout.LAYOUT, b"%d" % (layout.LAYOUT_VERSION + 1))])
            office.take()
            for _ in range(100):
                await world.sleep(0.1)
                if lost:
                    break

        world.run(scene())
        assert lost and office.controller is None and layout.STATE not in store.tree.entries
