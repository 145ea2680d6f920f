"""What goes wrong in a run: the brokers' ends, the network's and the disk's faults, at times that the seed decides.

Each run has its own mixture (`Mixture`), so that some runs see many power cuts and no full disk, and others the
reverse: faults that always come together hide each other.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from moldau.sim.drive import DiskFaults
from moldau.sim.node import POLL_S, BrokerNode
from moldau.sim.random import SimRandom
from moldau.sim.stage import Stage

FAULT_EVERY_S = (0.05, 1.0)
DOWN_S = (0.0, 0.5)
SOON_S = (0.0, 0.4)
CUT_S = (0.05, 3.0)
FULL_DISK_S = (0.1, 1.0)
FULL_DISK_ROOM_BYTES = 3000
ARMED_CRASH_PATIENCE_S = 2.0
SETTLE_S = 0.5
"""Longer than the slowest disk takes to tell of a failure that has happened already."""
CLOCK_JUMP_MS = 3000
CLIENT_GONE_S = (0.0, 1.5)
POWER_CUTS = ("power_cut", "power_cut_in_a_change", "sync_error")
"""After a failed sync nobody knows what is on the disk: its process ends with a power cut."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """How often each kind of fault comes, relative to the others."""

    weights: dict[str, float]
    disk: DiskFaults
    every_s: tuple[float, float] = FAULT_EVERY_S
    keeps_power: bool = False
    """Processes end, the machine does not: for what is not flushed before it is acknowledged."""

    @classmethod
    def draw(
        cls,
        random: SimRandom,
        *,
        kills_clients: bool = False,
        every_s: tuple[float, float] = FAULT_EVERY_S,
    ) -> Mixture:
        names = (*Nemesis.KINDS, "client_kill") if kills_clients else Nemesis.KINDS
        weights = {name: random.between(0.2, 1.0) if random.chance(0.6) else 0.0 for name in names}
        if not any(weights.values()):
            weights["power_cut"] = 1.0
        disk = DiskFaults(
            cold_rate=random.between(0.0, 0.2) if random.chance(0.6) else 0.0,
            short_write_rate=0.01 if random.chance(0.3) else 0.0,
        )
        return cls(weights, disk, every_s)

    def without_power_cuts(self) -> Mixture:
        weights = {name: 0.0 if name in POWER_CUTS else weight for name, weight in self.weights.items()}
        if not any(weights.values()):
            weights["kill"] = 1.0
        return replace(self, weights=weights, keeps_power=True)


class Nemesis:
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
    )

    def __init__(self, stage: Stage, mixture: Mixture) -> None:
        world = stage.world
        self._stage = stage
        self._world = world
        self._model = stage.model
        self._mixture = mixture
        self._counts = stage.counts
        self._random = world.random.fork("nemesis")
        self._actions: dict[str, Callable[[BrokerNode], Awaitable[None]]] = {
            name: getattr(self, f"_{name}") for name in mixture.weights
        }

    async def run(self, until_s: float) -> None:
        world, node = self._world, self._stage.node
        while world.loop.time() < until_s and not self._model.violations:
            await world.sleep(self._random.between(*self._mixture.every_s))
            if node.is_unwell:
                self._end_somehow(node)
            if not node.host.alive:
                await self._come_back(node)
                continue
            await self._do(self._draw(), node)

    async def _do(self, name: str, node: BrokerNode) -> None:
        self._counts[name] = self._counts.get(name, 0) + 1
        self._world.trace.record("nemesis", name)
        await self._actions[name](node)

    async def calm(self) -> None:
        """No more faults; the broker is up when this returns."""
        self._world.net.heal()
        await self._bring_up(self._stage.node)

    async def _bring_up(self, node: BrokerNode, settle_s: float = SETTLE_S) -> None:
        """Its disk fails no more, and it is started again until it is well, and stays so for a while."""
        world = self._world
        node.host.drive.forgive()
        node.host.drive.faults = replace(node.host.drive.faults, capacity_bytes=None, short_write_rate=0.0)
        for _ in range(10_000):
            if not node.host.alive:
                node.start()
            elif node.is_unwell:
                self._end_somehow(node)
            elif node.is_up:
                await world.sleep(settle_s)
                if node.is_up:
                    return
            await world.sleep(POLL_S)
        self._model.fail(None, f"{node.name} to come up in a quiet world", "it does not")

    def _draw(self) -> str:
        weights = self._mixture.weights
        point = self._random.random() * sum(weights.values())
        for name, weight in weights.items():
            point -= weight
            if point < 0:
                return name
        return "reset"

    # The broker's ends

    def _may_lose_power(self, node: BrokerNode) -> bool:
        """Whether the promises hold when its power goes now."""
        return not self._mixture.keeps_power

    def _end_somehow(self, node: BrokerNode) -> None:
        if self._may_lose_power(node) and self._random.chance(0.5):
            node.crash()
        else:
            node.kill()

    async def _come_back(self, node: BrokerNode) -> None:
        await self._world.sleep(self._random.between(*DOWN_S))
        node.start()

    async def _power_cut(self, node: BrokerNode) -> None:
        node.crash()
        await self._come_back(node)

    async def _power_cut_in_a_change(self, node: BrokerNode) -> None:
        """The power goes in the middle of a write, a sync or a rename; perhaps of the next recovery."""
        drive = node.host.drive
        drive.crash_after(self._random.randrange(60))
        deadline_s = self._world.loop.time() + ARMED_CRASH_PATIENCE_S
        while node.host.alive and self._world.loop.time() < deadline_s:
            await self._world.sleep(POLL_S)
        if node.host.alive and drive.is_armed:
            node.crash()
        await self._come_back(node)
        if self._random.chance(0.3) and self._may_lose_power(node):
            drive.crash_after(self._random.randrange(60))

    async def _kill(self, node: BrokerNode) -> None:
        """What the process left unsynced is in the page cache still; a power cut may come for it."""
        node.kill()
        if self._may_lose_power(node) and self._random.chance(0.2):
            node.crash()
        await self._come_back(node)
        if self._may_lose_power(node) and self._random.chance(0.4):
            await self._world.sleep(self._random.between(*SOON_S))
            if self._may_lose_power(node):
                node.crash()
                await self._come_back(node)

    async def _clean_stop(self, node: BrokerNode) -> None:
        await node.stop()
        await self._come_back(node)

    # The clients

    async def _client_kill(self, _: BrokerNode) -> None:
        """A client's process is killed, and started again after a while."""
        names = self._stage.mortal_clients
        if names:
            name = names[self._random.randrange(len(names))]
            self._stage.kill_client(name)
            self._world.loop.in_world(self._random.between(*CLIENT_GONE_S), self._stage.revive, name)

    # The network

    async def _reset(self, node: BrokerNode) -> None:
        self._world.net.reset(self._client(), node.name)

    async def _cut(self, node: BrokerNode) -> None:
        self._part(self._client(), node.name)

    def _part(self, one: str, other: str) -> None:
        """Cut the path between two hosts for a while, in both directions or in one."""
        net = self._world.net
        source, target = (one, other) if self._random.chance(0.5) else (other, one)
        net.cut(source, target, one_way=self._random.chance(0.3))
        self._world.loop.in_world(self._random.between(*CUT_S), lambda: net.heal(one, other))

    def _client(self) -> str:
        names = self._stage.client_names
        return names[self._random.randrange(len(names))]

    # The disk and the clock

    async def _disk_error(self, node: BrokerNode) -> None:
        kind, path = (("write", ".log"), ("write", "index"), ("read", ".log"), ("read", ""))[
            self._random.randrange(4)
        ]
        count = 1 + self._random.randrange(3)
        node.host.drive.fail_next(
            "write" if kind == "write" else "read", path_contains=path, number=errno.EIO, count=count
        )

    async def _sync_error(self, node: BrokerNode) -> None:
        node.is_doubtful = True
        node.host.drive.fail_next("sync", number=errno.EIO)

    async def _full_disk(self, node: BrokerNode) -> None:
        drive = node.host.drive
        room = self._random.randrange(FULL_DISK_ROOM_BYTES)
        drive.faults = replace(drive.faults, capacity_bytes=drive.platter.used_bytes + room)

        def make_room() -> None:
            drive.faults = replace(drive.faults, capacity_bytes=None)

        self._world.loop.in_world(self._random.between(*FULL_DISK_S), make_room)

    async def _clock_jump(self, node: BrokerNode) -> None:
        node.host.clock.skew_ms = self._random.randrange(2 * CLOCK_JUMP_MS) - CLOCK_JUMP_MS
