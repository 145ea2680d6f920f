"""A broker under test on its simulated host: starting it, and every way in which it can end.

Of the only broker the model learns where each log ended when it was opened: nobody has appended to it in
this life. A start that fails (a disk error while it recovers) leaves the host up with no broker on it, as a supervisor
finds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from moldau.broker.membership import IdInUse
from moldau.broker.node import Broker
from moldau.broker.registration import Refused
from moldau.config.broker import BrokerConfig
from moldau.log import names
from moldau.log.folder import AllFoldersFailed, DataFolderError
from moldau.runtime.ports import Runtime
from moldau.sim.client import PORT
from moldau.sim.disk import SimDisk
from moldau.sim.model import Model
from moldau.sim.random import SimRandom
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import SessionEnded, Store, Unknown

POLL_S = 0.005
STOP_PATIENCE_S = 30.0
EXIT_S = 0.01
SETTINGS = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://:{PORT}",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "socket.request.max.bytes": "4000000",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "100",
}


START_FAILURES = (OSError, DataFolderError, IdInUse, Refused, SessionEnded, Unknown)
"""Whoever looks after the process starts it again."""
OpenStore = Callable[[Runtime], Awaitable[Store]]


class BrokerNode:
    """Without `open_store` it is alone, with a store of its own."""

    def __init__(
        self,
        world: World,
        host: SimHost,
        model: Model,
        counts: dict[str, int],
        settings: dict[str, str],
        open_store: OpenStore | None = None,
    ) -> None:
        self.name = host.name
        self.host = host
        self.life = 0
        self.broker: Broker | None = None
        self.has_failed = False
        self.is_stopping = False
        self.is_doubtful = False
        """A sync has failed: what the page cache shows is not what the disk holds."""
        self._world = world
        self._model = model
        self._counts = counts
        self._config = BrokerConfig.parse(SETTINGS | settings)
        self.node_id = self._config.node_id
        self.is_tainted = False
        """It has lost its power, and with it perhaps what only its page cache held."""
        self.on_power_cut: Callable[[BrokerNode], object] = lambda _node: None
        """Called before what that means is noted."""
        self._tree = Tree()
        self._open_store = open_store
        self._power_lost = False
        self._boots = 1
        self._begun = 0
        """The life of the host in which a broker was last started."""
        self._disks: list[SimDisk] = []
        host.on_power_lost = self.on_power_lost

    # Life

    def start(self) -> None:
        if self.host.alive and self._begun == self.host.lives:
            return  # somebody else has started it
        runtime = self.host.runtime if self.host.alive else self.host.restart()
        self._begun = self.host.lives
        self.life += 1
        self.has_failed = self.is_stopping = False
        self._count("broker starts")
        assert isinstance(runtime.disk, SimDisk)
        self._disks.append(runtime.disk)
        runtime.tasks.spawn(self._serve(runtime), name="broker")

    async def _serve(self, runtime: Runtime) -> None:
        self.broker = None
        if self._open_store is None:
            store: Store = MemoryStore(self._tree, runtime.tasks)
        else:
            store = await self._open_store(runtime)
        boot_id = f"{self.name}, boot {self._boots}"
        broker = Broker(self._config, runtime, store, boot_id=boot_id, host_name=self.name)
        if self._open_store is None:
            broker.on_opened = self._on_opened
        self.broker = broker
        try:
            await broker.start()
        except START_FAILURES as reason:
            self._world.trace.record(self.name, "start failed", type(reason).__name__)
            self.has_failed = True
            self._count("failed starts")
            return
        if self._open_store is not None:
            await broker.wait_failed()
            self._check_failure(broker)
            self._world.loop.in_world(EXIT_S, self._exit, broker)

    def _exit(self, broker: Broker) -> None:
        """A broker that has stopped ends its process, and so gives up what others wait for."""
        if self.broker is broker and self.host.alive:
            self.kill()

    def _on_opened(self) -> None:
        assert self.broker is not None
        ends = {
            place: None if partition.is_offline else partition.log.next_offset
            for place, partition in self.broker.partitions.items()
        }
        self._world.trace.record(self.name, "logs end", *sorted(ends.items()))
        self._model.on_start(self.life, ends, power_lost=self._power_lost)
        self._power_lost = False

    @property
    def is_up(self) -> bool:
        return self.host.alive and self.broker is not None and self.broker.is_ready and not self.is_unwell

    @property
    def is_unwell(self) -> bool:
        """It runs, but needs a new start: it could not start, or a log is offline."""
        broker = self.broker
        if not self.host.alive or broker is None:
            return False
        if broker.failure is not None:
            return True
        return self.has_failed or any(partition.is_offline for partition in broker.partitions.values())

    def crash(self) -> None:
        """Cut the power."""
        self.host.crash()

    def on_power_lost(self) -> None:
        self.on_power_cut(self)
        self._power_lost = self.is_tainted = True
        self._boots += 1
        self.is_doubtful = False
        self.host.drive.forgive()
        self._count("power cuts")

    def kill(self) -> None:
        """kill -9; after a failed sync the power goes too, since the page cache can no longer be trusted."""
        if self.is_doubtful:
            self.crash()
        else:
            self.host.kill()
            self._count("kills")

    def lose_disk(self, random: SimRandom) -> None:
        """Its process ends, and somebody puts another disk, to begin anew, in the place of one or of all."""
        if self.host.alive:
            self.kill()
        platter = self.host.drive.platter
        folders = [folder for folder in self._config.log_dirs if platter.find(folder) is not None]
        chosen = [folder for folder in folders if random.chance(0.5)] or folders
        for folder in chosen:
            platter.replace(folder, names.META_PROPERTIES)
        self.is_tainted = bool(chosen) or self.is_tainted
        self._count("disks lost")

    async def stop(self) -> None:
        """A clean stop, and then the end of the process."""
        broker = self.broker
        if broker is None or not self.is_up:
            self.kill()
            return
        self.is_stopping = True
        stopping = self.host.runtime.tasks.spawn(broker.stop(), name="stop")
        is_over = await self._until(lambda: stopping.done() or not self.host.alive)
        if not is_over and self._open_store is None:  # in a cluster it may wait for others, in vain
            self._model.fail(None, "a clean stop to end", f"it takes more than {STOP_PATIENCE_S} s")
        if self.host.alive:
            self._count("clean stops")
            if self.is_doubtful:
                self.crash()
            else:
                self.host.kill()

    async def _until(self, condition: Callable[[], bool]) -> bool:
        for _ in range(int(STOP_PATIENCE_S / POLL_S)):
            if condition():
                return True
            await self._world.sleep(POLL_S)
        return condition()

    def check(self) -> None:
        """The broker never gives up by itself while it has a disk, and never waits for the disk on its loop."""
        if self.broker is not None:
            self._check_failure(self.broker)
        for disk in self._disks:
            if disk.stalls:
                self._model.fail(None, "no wait for the disk on the loop", str(disk.stalls))

    def _check_failure(self, broker: Broker) -> None:
        if broker.failure is not None and not isinstance(broker.failure, AllFoldersFailed):
            self._model.fail(None, f"no broken invariant on {self.name}", repr(broker.failure))

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1
