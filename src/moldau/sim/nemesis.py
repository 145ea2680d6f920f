"""What goes wrong in a run: the broker's ends, the network's and the disk's faults, at times that the seed decides.

Each run has its own mixture (`Mixture`), so that some runs see many power cuts and no full disk, and others the
reverse: faults that always come together hide each other.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from moldau.sim.drive import DiskFaults
from moldau.sim.node import POLL_S
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
        self._node = stage.node
        self._model = stage.model
        self._clients = stage.client_names
        self._mixture = mixture
        self._counts = stage.counts
        self._random = world.random.fork("nemesis")
        self._actions: dict[str, Callable[[], Awaitable[None]]] = {
            name: getattr(self, f"_{name}") for name in mixture.weights
        }

    async def run(self, until_s: float) -> None:
        world = self._world
        while world.loop.time() < until_s and not self._model.violations:
            await world.sleep(self._random.between(*self._mixture.every_s))
            if self._node.is_unwell:
                self._end_somehow()
            if not self._node.host.alive:
                await self._come_back()
                continue
            name = self._draw()
            self._counts[name] = self._counts.get(name, 0) + 1
            world.trace.record("nemesis", name)
            await self._actions[name]()

    async def calm(self) -> None:
        """No more faults; the broker is up when this returns."""
        world, node = self._world, self._node
        world.net.heal()
        node.host.drive.forgive()
        node.host.drive.faults = replace(node.host.drive.faults, capacity_bytes=None, short_write_rate=0.0)
        for _ in range(10_000):
            if not node.host.alive:
                node.start()
            elif node.is_unwell:
                self._end_somehow()
            elif node.is_up:
                await world.sleep(SETTLE_S)
                if node.is_up:
                    return
            await world.sleep(POLL_S)
        self._model.fail(None, "the broker to come up in a quiet world", "it does not")

    def _draw(self) -> str:
        weights = self._mixture.weights
        point = self._random.random() * sum(weights.values())
        for name, weight in weights.items():
            point -= weight
            if point < 0:
                return name
        return "reset"

    # The broker's ends

    def _end_somehow(self) -> None:
        if not self._mixture.keeps_power and self._random.chance(0.5):
            self._node.crash()
        else:
            self._node.kill()

    async def _come_back(self) -> None:
        await self._world.sleep(self._random.between(*DOWN_S))
        self._node.start()

    async def _power_cut(self) -> None:
        self._node.crash()
        await self._come_back()

    async def _power_cut_in_a_change(self) -> None:
        """The power goes in the middle of a write, a sync or a rename; perhaps of the next recovery."""
        drive, node = self._node.host.drive, self._node
        drive.crash_after(self._random.randrange(60))
        deadline_s = self._world.loop.time() + ARMED_CRASH_PATIENCE_S
        while node.host.alive and self._world.loop.time() < deadline_s:
            await self._world.sleep(POLL_S)
        if node.host.alive:
            node.crash()
        await self._come_back()
        if self._random.chance(0.3):
            drive.crash_after(self._random.randrange(60))

    async def _kill(self) -> None:
        """What the process left unsynced is in the page cache still; a power cut may come for it."""
        has_power = self._mixture.keeps_power
        self._node.kill()
        if not has_power and self._random.chance(0.2):
            self._node.crash()
        await self._come_back()
        if not has_power and self._random.chance(0.4):
            await self._world.sleep(self._random.between(*SOON_S))
            self._node.crash()
            await self._come_back()

    async def _clean_stop(self) -> None:
        await self._node.stop()
        await self._come_back()

    # The clients

    async def _client_kill(self) -> None:
        """A client's process is killed, and started again after a while."""
        names = self._stage.mortal_clients
        if names:
            name = names[self._random.randrange(len(names))]
            self._stage.kill_client(name)
            self._world.loop.in_world(self._random.between(*CLIENT_GONE_S), self._stage.revive, name)

    # The network

    async def _reset(self) -> None:
        self._world.net.reset(self._client(), self._node.name)

    async def _cut(self) -> None:
        client, node = self._client(), self._node.name
        source, target = (client, node) if self._random.chance(0.5) else (node, client)
        self._world.net.cut(source, target, one_way=self._random.chance(0.3))
        self._world.loop.in_world(self._random.between(*CUT_S), lambda: self._world.net.heal(client, node))

    def _client(self) -> str:
        return self._clients[self._random.randrange(len(self._clients))]

    # The disk and the clock

    async def _disk_error(self) -> None:
        kind, path = (("write", ".log"), ("write", "index"), ("read", ".log"), ("read", ""))[
            self._random.randrange(4)
        ]
        count = 1 + self._random.randrange(3)
        self._node.host.drive.fail_next(
            "write" if kind == "write" else "read", path_contains=path, number=errno.EIO, count=count
        )

    async def _sync_error(self) -> None:
        self._node.is_doubtful = True
        self._node.host.drive.fail_next("sync", number=errno.EIO)

    async def _full_disk(self) -> None:
        drive = self._node.host.drive
        room = self._random.randrange(FULL_DISK_ROOM_BYTES)
        drive.faults = replace(drive.faults, capacity_bytes=drive.platter.used_bytes + room)

        def make_room() -> None:
            drive.faults = replace(drive.faults, capacity_bytes=None)

        self._world.loop.in_world(self._random.between(*FULL_DISK_S), make_room)

    async def _clock_jump(self) -> None:
        self._node.host.clock.skew_ms = self._random.randrange(2 * CLOCK_JUMP_MS) - CLOCK_JUMP_MS
