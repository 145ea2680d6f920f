"""What goes wrong in a cluster: whatever can befall a broker, to several at once, and what there is only between hosts.

Beside the faults of one broker: processes that are stopped and go on, brokers cut off from each other, from the store
or from their controller, in one direction or both, slow paths and disks, sessions that end, a store that is gone for a
while, a controller that is lost, and restarts of all brokers in turn.

A power cut takes what only the page cache held: `power` says whose may go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from moldau.controller import layout
from moldau.sim.drive import DiskFaults
from moldau.sim.nemesis import POWER_CUTS, SETTLE_S, Mixture, Nemesis
from moldau.sim.node import BrokerNode
from moldau.sim.random import SimRandom
from moldau.sim.stage import Stage
from moldau.sim.store_node import STORE
from moldau.sim.workloads.cluster.power import Power
from moldau.sim.workloads.cluster.store_view import StoreView

FAULT_EVERY_S = (0.05, 1.2)
DOWN_S = ((0.0, 0.3), (0.0, 0.3), (1.0, 4.0))
PAUSE_S = ((0.01, 0.3), (0.5, 2.0), (2.0, 4.0))
"""Shorter and longer than a session."""
STORE_GONE_S = (0.1, 3.0)
SLOW_S = (0.3, 3.0)
SQUEEZE_S = (0.0, 0.9)
"""Between the end of one and that of the next."""
NOTICED_AT_ONCE_RATE = 0.7
"""Otherwise a session ends after a second and a half."""
SLOW_DISK_S = (0.01, 0.4)
DETOUR_S = (0.02, 0.6)
CUT_S = (0.05, 4.0)
CALMS_MAX = 20
UNWELL_END_RATE = 0.3
KINDS = (
    "power_cut",
    "power_cut_in_a_change",
    "kill",
    "clean_stop",
    "reset",
    "cut",
    "disk_error",
    "sync_error",
    "full_disk",
    "clock_jump",
    "client_kill",
    "pause",
    "part_brokers",
    "part_store",
    "part_controller",
    "disk_loss",
    "isolate",
    "delay",
    "slow_disk",
    "session_end",
    "store_loss",
    "controller_loss",
    "lost_write",
    "slow_controller",
    "kill_all",
    "rolling_restart",
    "squeeze",
)
LOSSES = (*POWER_CUTS, "disk_loss")
OF_THE_CONTROLLER = ("controller_loss", "lost_write", "slow_controller")
SELDOM = ("kill_all", "rolling_restart", "store_loss", "disk_error", "sync_error")
FOCI = ("squeeze", "slow_controller", "controller_loss")
FOCUS_RATE, FOCUS_WEIGHT = 0.4, 5.0
"""Some runs are mostly of one kind: of those that a bug takes several of, one after the other."""


def draw_mixture(random: SimRandom, *, spares_power: bool, spares_disks: bool) -> Mixture:
    weights: dict[str, float] = {}
    for name in KINDS:
        weight = random.between(0.2, 1.0) if random.chance(0.5) else 0.0
        weights[name] = weight / 4 if name in SELDOM else weight
    if random.chance(FOCUS_RATE):
        weights[FOCI[random.randrange(len(FOCI))]] = FOCUS_WEIGHT
        weights["disk_loss"] += 0.2
    if spares_disks:
        weights["disk_loss"] = 0.0
    if not any(weights.values()):
        weights["kill"] = 1.0
    disk = DiskFaults(
        cold_rate=random.between(0.0, 0.1) if random.chance(0.4) else 0.0,
        short_write_rate=0.01 if random.chance(0.2) else 0.0,
    )
    mixture = Mixture(weights, disk, FAULT_EVERY_S)
    return mixture.without_power_cuts() if spares_power else mixture


class ClusterNemesis(Nemesis):
    """`power` knows who may lose it."""

    def __init__(self, stage: Stage, mixture: Mixture, power: Power) -> None:
        super().__init__(stage, mixture)
        assert stage.store is not None
        self._store = stage.store
        self._view = StoreView(stage.store)
        self._nodes = stage.nodes
        self._power = power
        self._busy: dict[BrokerNode, None] = {}
        """What happens to them is not over yet."""
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, until_s: float) -> None:
        world = self._world
        while world.loop.time() < until_s and not self._model.violations:
            await world.sleep(self._random.between(*self._mixture.every_s))
            for node in self._nodes:
                if node in self._busy:
                    continue
                if not node.host.alive or (node.is_unwell and self._random.chance(UNWELL_END_RATE)):
                    self._begin(node, partial(self._start_again, node))
            idle = [node for node in self._nodes if node not in self._busy]
            if not idle:
                continue
            name, node = self._draw(), idle[self._random.randrange(len(idle))]
            if name in OF_THE_CONTROLLER:
                node = self._controller() or node
            if node in self._busy:
                continue
            self._begin(node, partial(self._do, name, node))

    def _begin(self, node: BrokerNode, work: Callable[[], Awaitable[None]]) -> None:
        async def do() -> None:
            try:
                await work()
            finally:
                self._busy.pop(node, None)

        self._busy[node] = None
        self._tasks.append(self._world.loop.create_task(do(), name=f"trouble of {node.name}"))

    async def _do(self, name: str, node: BrokerNode) -> None:
        if name not in LOSSES or self._may_lose_power(node):
            await super()._do(name, node)

    async def calm(self) -> None:
        """No more faults; all brokers and the store are up when this returns."""
        for task in self._tasks:
            task.cancel()
        await self._world.sleep(0)
        for task in self._tasks:
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error
        self._tasks.clear()
        self._busy.clear()
        self._world.net.heal()
        self._store.tree.before_next = None
        self._store.come_back()
        for node in self._nodes:
            node.host.go_on()
            node.host.slow_down()
            if node.is_stopping and node.host.alive:
                node.kill()
            node.host.drive.forgive()
        for node in self._nodes:  # nobody waits for another one before all are on their way
            node.start()
        for _ in range(CALMS_MAX):
            for node in self._nodes:
                await self._bring_up(node, 0.0)
            await self._world.sleep(SETTLE_S)
            if self._model.violations or all(node.is_up for node in self._nodes):
                return

    def kill_all(self) -> None:
        for node in self._nodes:
            if node.host.alive:
                node.kill()

    def crash_all(self) -> None:
        for node in self._nodes:
            node.crash()

    # Who may

    def _may_lose_power(self, node: BrokerNode) -> bool:
        return not self._mixture.keeps_power and self._power.may_go(node)

    def _controller(self) -> BrokerNode | None:
        controller_id = self._view.controller_id()
        return next((node for node in self._nodes if node.node_id == controller_id), None)

    # Brokers

    async def _start_again(self, node: BrokerNode) -> None:
        if node.is_unwell:
            self._end_somehow(node)
        await self._come_back(node)

    async def _come_back(self, node: BrokerNode) -> None:
        await self._world.sleep(self._random.between(*DOWN_S[self._random.randrange(len(DOWN_S))]))
        node.start()

    async def _pause(self, node: BrokerNode) -> None:
        node.host.pause()
        await self._world.sleep(self._random.between(*PAUSE_S[self._random.randrange(len(PAUSE_S))]))
        node.host.go_on()

    async def _kill_all(self, _: BrokerNode) -> None:
        """The others are found dead, and started again."""
        for node in self._nodes:
            if node.host.alive and not self._will_lose_power(node):
                node.kill()

    def _will_lose_power(self, node: BrokerNode) -> bool:
        """What a failed sync has left in the page cache goes with the process."""
        return node.is_doubtful and not self._may_lose_power(node)

    async def _rolling_restart(self, _: BrokerNode) -> None:
        for node in self._nodes:
            if node.is_up and not node.host.is_paused and not node.is_stopping:
                await node.stop()
                node.start()
                await self._world.sleep(self._random.between(0.0, 1.0))

    async def _squeeze(self, node: BrokerNode) -> None:
        """The replicas of one partition end one after the other, and come back in any order: who was in sync last,
        and who is eligible still, decides what is left."""
        held = [placed.state.replicas for placed in self._view.partitions() if len(placed.state.replicas) > 1]
        if not held:
            return
        replicas = held[self._random.randrange(len(held))]
        chosen = [
            one for one in self._nodes if one.node_id in replicas and (one is node or one not in self._busy)
        ]
        self._busy.update(dict.fromkeys(chosen))
        try:
            order = self._in_any_order(chosen)
            for one in order:
                self._end_for_a_while(one, is_last=one is order[-1])
                if self._random.chance(NOTICED_AT_ONCE_RATE):
                    await self._session_end(one)
                await self._world.sleep(self._random.between(*SQUEEZE_S))
            orders = (order, order[::-1], self._in_any_order(chosen))
            for one in orders[self._random.randrange(len(orders))]:
                one.host.go_on()
                if not one.host.alive:
                    one.start()
                await self._world.sleep(self._random.between(*SQUEEZE_S))
        finally:
            for one in chosen:
                self._busy.pop(one, None)

    def _end_for_a_while(self, node: BrokerNode, *, is_last: bool) -> None:
        """The last one is the one whose loss counts most."""
        if not node.host.alive or self._will_lose_power(node):
            return
        ways: list[Callable[[], object]] = [node.kill, node.host.pause]
        losses: list[Callable[[], object]] = [node.crash]
        if self._mixture.weights["disk_loss"]:
            losses.append(lambda: node.lose_disk(self._random))
        if self._random.chance(0.7 if is_last else 0.3) and self._may_lose_power(node):
            ways = losses
        ways[self._random.randrange(len(ways))]()

    def _in_any_order(self, nodes: Sequence[BrokerNode]) -> list[BrokerNode]:
        left = list(nodes)
        return [left.pop(self._random.randrange(len(left))) for _ in nodes]

    async def _controller_loss(self, node: BrokerNode) -> None:
        ways = (self._kill, self._pause, self._isolate, self._part_store, self._clean_stop, self._session_end)
        await ways[self._random.randrange(len(ways))](node)

    async def _disk_loss(self, node: BrokerNode) -> None:
        node.lose_disk(self._random)
        await self._come_back(node)

    # Sessions and the store

    async def _session_end(self, node: BrokerNode) -> None:
        self._store.expire(f"/brokers/live/{node.node_id}")

    async def _lost_write(self, node: BrokerNode) -> None:
        """The controller's session ends while its next write is under way: it is not done, and nobody says so."""
        self._store.tree.before_next = (
            layout.STATE,
            lambda: self._store.expire(f"/brokers/live/{node.node_id}"),
        )

    async def _store_loss(self, _: BrokerNode) -> None:
        host = self._store.host
        ways = (host.pause, host.pause, host.kill, host.crash)
        ways[self._random.randrange(len(ways))]()
        await self._world.sleep(self._random.between(*STORE_GONE_S))
        self._store.come_back()

    # Paths and disks

    def _other(self, node: BrokerNode) -> BrokerNode:
        others = [other for other in self._nodes if other is not node]
        return others[self._random.randrange(len(others))]

    async def _part_brokers(self, node: BrokerNode) -> None:
        self._part(node.name, self._other(node).name)

    async def _part_store(self, node: BrokerNode) -> None:
        self._part(node.name, STORE)

    async def _part_controller(self, node: BrokerNode) -> None:
        controller = self._controller()
        if controller is not None and controller is not node:
            self._part(node.name, controller.name)

    async def _isolate(self, node: BrokerNode) -> None:
        """From all other brokers, perhaps from the store too, and not from the clients."""
        net, one_way = self._world.net, self._random.chance(0.3)
        others = [other.name for other in self._nodes if other is not node]
        if self._random.chance(0.5):
            others.append(STORE)
        for other in others:
            if one_way and self._random.chance(0.5):
                net.cut(other, node.name, one_way=True)
            else:
                net.cut(node.name, other, one_way=one_way)
        await self._world.sleep(self._random.between(*CUT_S))
        for other in others:
            net.heal(node.name, other)

    async def _delay(self, node: BrokerNode) -> None:
        hosts = (self._other(node).name, self._other(node).name, STORE, self._client())
        other = hosts[self._random.randrange(len(hosts))]
        one, two = (node.name, other) if self._random.chance(0.5) else (other, node.name)
        self._world.net.delay(one, two, self._random.between(*DETOUR_S))
        self._later(lambda: self._world.net.delay(one, two, 0.0))

    async def _slow_controller(self, node: BrokerNode) -> None:
        """What it has decided the others hear late, or even itself does; and one of them, which comes back, fetches
        late from whoever leads: it comes into in-sync sets, and falls behind, before the leaders know that it is in."""
        net, late = self._world.net, self._other(node)
        paths = [(node.name, other.name) for other in self._nodes if other not in (node, late)]
        paths += [(other.name, late.name) for other in self._nodes if other is not late]
        paths.append((STORE, node.name))
        for source, target in paths:
            net.delay(source, target, self._random.between(*DETOUR_S))
        if late not in self._busy and late.host.alive and not self._will_lose_power(late):
            late.kill()
            late.start()
        await self._world.sleep(self._random.between(*SLOW_S))
        for source, target in paths:
            net.delay(source, target, 0.0)

    async def _slow_disk(self, node: BrokerNode) -> None:
        node.host.slow_down(SLOW_DISK_S)
        self._later(node.host.slow_down)

    def _later(self, mend: Callable[[], object]) -> None:
        self._world.loop.in_world(self._random.between(*SLOW_S), mend)
