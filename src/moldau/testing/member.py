"""One broker of a `Cluster`, on an event loop and a thread of its own: it can be stopped, killed, paused and started
without the others noticing more than they would of another process.

`kill` ends it as kill -9 does: nothing is closed, its session and its connections end at once, and what it had in its
memory is gone. What it had written is there, as it would be in the page cache of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.runtime.ports import Runtime
from moldau.runtime.real.machine import boot_id
from moldau.runtime.real.web import fetch
from moldau.store.port import Store
from moldau.testing.links import CuttableNet, Links
from moldau.testing.loop_thread import LoopThread

HOST = "127.0.0.1"
TIMEOUT_S = 30.0


class OwnStore(Store, Protocol):
    """A store that can end as its process does."""

    def abandon(self) -> None: ...


OpenStore = Callable[[Runtime, int], Awaitable[OwnStore]]


class Member:
    def __init__(self, number: int, settings: dict[str, str], open_store: OpenStore, links: Links) -> None:
        self.number = number
        self.broker: Broker | None = None
        """While it runs, or is paused."""
        self.settings = settings
        self._open_store = open_store
        self._links = links
        self._thread: LoopThread | None = None
        self._store: OwnStore | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """Where clients find it, also while it is down."""
        return self._address

    @property
    def is_running(self) -> bool:
        return self.broker is not None and not self.is_paused

    @property
    def is_paused(self) -> bool:
        return self._thread is not None and self._thread.is_paused

    def begin_start(self, folder: str) -> Future[None]:
        """Start; RuntimeError where it runs already."""
        if self._thread is not None:
            raise RuntimeError(f"broker {self.number} is running already")
        thread = self._thread = LoopThread(f"moldau-broker-{self.number}")
        log_dir = os.path.join(folder, f"broker-{self.number}")
        config = BrokerConfig.parse(self.settings | {"log.dirs": log_dir})
        return thread.begin(lambda: self._start(thread.runtime, config))

    async def _start(self, runtime: Runtime, config: BrokerConfig) -> None:
        runtime = replace(runtime, net=CuttableNet(runtime.net, self.number, self._links))
        self._store = store = await self._open_store(runtime, self.number)
        try:
            broker = Broker(config, runtime, store, process_id=os.getpid(), boot_id=boot_id(), fetch=fetch)
            await broker.start()
        except BaseException:
            await store.close()
            self._store = None
            raise
        self.broker = broker
        self._address = broker.bootstrap_servers
        # A restart must be found where clients look for it.
        self.settings["listeners"] = ",".join(
            f"{name}://{bracketed(listener.address[0])}:{listener.address[1]}"
            for name, listener in broker.listeners.items()
        )
        for listener in broker.listeners.values():
            self._links.know(self.number, listener.address[1])

    def stop(self) -> None:
        """End cleanly: others lead what it has led. It goes on first where it is paused."""
        thread, broker, store = self._thread, self.broker, self._store
        if thread is None:
            return

        async def stop() -> None:
            if broker is not None and store is not None:
                try:
                    await broker.stop()
                finally:
                    await store.close()

        thread.resume()
        try:
            thread.call(stop, timeout_s=TIMEOUT_S)
        finally:
            self._forget()

    def kill(self) -> None:
        thread, broker, store = self._thread, self.broker, self._store
        if thread is None:
            return

        def crash() -> None:
            if broker is not None:
                broker.crash()
            if store is not None:
                store.abandon()

        async def crashed() -> None:
            crash()

        if thread.is_paused:
            thread.resume(crash)
        else:
            thread.call(crashed, timeout_s=TIMEOUT_S)
        self._forget()

    def _forget(self) -> None:
        thread, self._thread = self._thread, None
        self.broker = self._store = None
        if thread is not None:
            thread.close()

    def pause(self) -> None:
        self.thread.pause()

    def resume(self) -> None:
        if self._thread is not None:
            self._thread.resume()

    @property
    def thread(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError(f"broker {self.number} is not running")
        return self._thread


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
