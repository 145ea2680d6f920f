"""The cluster store of a simulated run, on a host of its own that can end, pause and come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.runtime.ports import Runtime
from moldau.sim.store_client import SimStore
from moldau.sim.store_host import StoreHost, StoreTree
from moldau.sim.world import World
from moldau.store.port import Operation, Store

STORE = "store"
SESSION_TIMEOUT_S = 1.5


class WatchedTree(StoreTree):
    """Tells somebody what is written. `before_next` comes once, before something at a path is."""

    def __init__(self) -> None:
        super().__init__()
        self.on_written: Callable[[Sequence[Operation]], object] = lambda _operations: None

        self.before_next: tuple[str, Callable[[], object]] | None = None

    def multi(self, operations: Sequence[Operation], session_id: str | None = None) -> list[str]:
        if self.before_next is not None and any(one.path == self.before_next[0] for one in operations):
            (_, strike), self.before_next = self.before_next, None
            strike()
        changed = super().multi(operations, session_id)
        self.on_written(operations)
        return changed


class StoreNode:
    def __init__(self, world: World) -> None:
        self.host = world.host(STORE)
        self.tree = WatchedTree()
        self.server: StoreHost

    def start(self) -> None:
        runtime = self.host.runtime if self.host.alive else self.host.restart()
        self.server = StoreHost(runtime, self.tree)

    def come_back(self) -> None:
        """Let it serve, whatever has befallen it."""
        self.host.go_on()
        if not self.host.alive:
            self.start()

    async def open(self, runtime: Runtime) -> Store:
        """A broker's connection."""
        return await SimStore.open(runtime, STORE, session_timeout_s=SESSION_TIMEOUT_S)

    def expire(self, path: str) -> bool:
        """End the session to which an entry belongs; whether there was one."""
        session_id = self.tree.owners.get(path)
        if session_id is None or not self.host.alive:
            return False
        self.server.expire(session_id)
        return True
