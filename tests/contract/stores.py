"""The engines of the cluster store as the contract suite uses them: several processes, one store, ways to end."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kazoo.client import KazooClient

from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.sim.fabric import Link
from moldau.sim.store_client import SimStore
from moldau.sim.store_host import StoreHost, StoreTree
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Store
from moldau.store.sqlite import SqliteStore
from moldau.store.zookeeper import ZookeeperStore
from moldau.store.zookeeper_url import Address, parse

T = TypeVar("T")
Scene = Callable[["Party"], Coroutine[Any, Any, None]]

POLL_S = 0.005
PATIENCE_S = 20.0


class Party(Protocol):
    """Who is there while a scene is played. Each `open` is a process of its own, as far as the store can see."""

    quiet_s: float
    """A watch that was not called for so long is not about to be called for what has happened before."""
    session_timeout_s: float

    async def open(self) -> Store: ...

    async def expire(self, store: Store) -> None:
        """The session's time runs out without its process noticing, as when it is stopped and goes on."""
        ...

    async def vanish(self, store: Store) -> None:
        """The process is gone, without a word."""
        ...

    async def sleep(self, delay_s: float) -> None: ...


async def until(party: Party, condition: Callable[[], Awaitable[bool]], what: str) -> None:
    for _ in range(int(PATIENCE_S / POLL_S)):
        if await condition():
            return
        await party.sleep(POLL_S)
    raise AssertionError(f"it never came to this: {what}")


class Stage(Protocol):
    def run(self, *scenes: Scene) -> None:
        """Play scenes one after the other on the same store, each with new processes."""
        ...


class RealParty:
    """Processes that are not: several stores of one loop on the real runtime."""

    quiet_s = 0.02
    session_timeout_s = 0.1

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.stores: list[Any] = []

    async def open(self) -> Store:
        raise NotImplementedError

    async def expire(self, store: Store) -> None:
        raise NotImplementedError

    async def vanish(self, store: Store) -> None:
        self.stores.remove(store)
        store.abandon()  # type: ignore[attr-defined]

    async def sleep(self, delay_s: float) -> None:
        await self.runtime.tasks.sleep(delay_s)

    async def close(self) -> None:
        for store in self.stores:
            await store.close()


class RealStage:
    def __init__(self, make: Callable[[Runtime], RealParty]) -> None:
        self._make = make

    def run(self, *scenes: Scene) -> None:
        for scene in scenes:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._play(scene))

    async def _play(self, scene: Scene) -> None:
        runtime = real_runtime()
        party = self._make(runtime)
        try:
            async with asyncio.timeout(3 * PATIENCE_S):
                await scene(party)
        finally:
            await party.close()
            close_runtime(runtime)


class MemoryParty(RealParty):
    def __init__(self, runtime: Runtime, tree: Tree) -> None:
        super().__init__(runtime)
        self._tree = tree

    async def open(self) -> Store:
        store = MemoryStore(self._tree, holder=str(len(self.stores)))
        self.stores.append(store)
        return store

    async def expire(self, store: Store) -> None:
        assert isinstance(store, MemoryStore)
        store.expire()


class SqliteParty(RealParty):
    quiet_s = 0.35
    session_timeout_s = 1.5

    def __init__(self, runtime: Runtime, path: Path) -> None:
        super().__init__(runtime)
        self._path = str(path)

    async def open(self) -> Store:
        store = await SqliteStore.open(
            self.runtime.tasks, self._path, session_timeout_s=self.session_timeout_s
        )
        store.compare_s = self.quiet_s * 0.7
        self.stores.append(store)
        return store

    async def expire(self, store: Store) -> None:
        """What others see of a stopped process: no renewal for as long as its lease lasts."""
        assert isinstance(store, SqliteStore)
        renew, store._file.renew = store._file.renew, lambda number: store._lease_s  # type: ignore[method-assign]
        await self.sleep(self.session_timeout_s * 1.1)
        store._file.renew = renew  # type: ignore[method-assign]


def memory_stage(_folder: Path) -> Stage:
    tree = Tree()
    return RealStage(lambda runtime: MemoryParty(runtime, tree))


def sqlite_stage(folder: Path) -> Stage:
    return RealStage(lambda runtime: SqliteParty(runtime, folder / "cluster.db"))


class SimParty:
    """Each store on a simulated host of its own, and the store's engine on another."""

    quiet_s = 0.05
    session_timeout_s = 6.0
    host = "store"

    def __init__(self, world: World, tree: StoreTree) -> None:
        self.world = world
        self._tree = tree
        if self.host in world.hosts:
            world.hosts[self.host].restart()
        else:
            world.host(self.host)
        self.server = StoreHost(world.hosts[self.host].runtime, tree)
        self._hosts: dict[int, SimHost] = {}

    async def open(self) -> Store:
        host = self.world.host(f"client-{len(self.world.hosts)}")
        opening = SimStore.open(host.runtime, self.host, session_timeout_s=self.session_timeout_s)
        store = await host.runtime.tasks.spawn(opening, name="open")
        self._hosts[id(store)] = host
        return store

    async def expire(self, store: Store) -> None:
        assert store.session_id is not None
        self.server.expire(store.session_id)

    async def vanish(self, store: Store) -> None:
        self._hosts[id(store)].kill()

    async def sleep(self, delay_s: float) -> None:
        await self.world.sleep(delay_s)


class SimStage:
    def __init__(self, seed: int) -> None:
        self._world = World(seed, link=Link(partial_rate=0.2))
        self._tree = StoreTree()

    def run(self, *scenes: Scene) -> None:
        with self._world:
            for scene in scenes:
                self._world.run(scene(SimParty(self._world, self._tree)))
            assert not self._world.failures


def sim_stage(seed: int) -> Callable[[Path], Stage]:
    return lambda _folder: SimStage(seed)


class ZookeeperParty(RealParty):
    quiet_s = 0.2
    session_timeout_s = 2.5

    def __init__(self, runtime: Runtime, address: Address) -> None:
        super().__init__(runtime)
        self._address = address

    async def open(self) -> Store:
        store = await ZookeeperStore.open(
            self.runtime.tasks, self._address, session_timeout_s=self.session_timeout_s
        )
        self.stores.append(store)
        return store

    async def expire(self, store: Store) -> None:
        await self.runtime.tasks.in_thread(expire_session, store)


def expire_session(store: object) -> None:
    """A second connection takes the session over and ends it, as ZooKeeper's own tests do."""
    assert isinstance(store, ZookeeperStore) and store._client is not None
    thief = KazooClient(store._address.hosts, client_id=store._client.client_id, timeout=10)
    thief.start(timeout=20)
    thief.stop()
    thief.close()


def zookeeper_stage(hosts: str) -> Stage:
    address = parse(f"{hosts}/test/{uuid.uuid4().hex}")
    return RealStage(lambda runtime: ZookeeperParty(runtime, address))


STAGES: dict[str, Callable[[Path], Stage]] = {
    "memory": memory_stage,
    "sqlite": sqlite_stage,
    "sim": sim_stage(1),
    "sim-2": sim_stage(2),
}
