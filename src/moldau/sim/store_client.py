"""A broker's side of the simulated store: the Store port over the simulated network.

It behaves as a client of ZooKeeper does: it pings, gives a connection up that is silent for two thirds of the
session time-out, and connects anew with its session. What was asked and not answered then is Unknown if it writes,
and Unavailable if it only reads; what is asked without a connection is Unavailable. Whether its session is over it
learns from the store alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from moldau.runtime.ports import Runtime
from moldau.sim.store_host import PORT
from moldau.sim.store_wire import CONFLICT, SESSION_ENDED, Talk
from moldau.store.engine import Engine, PathWatch
from moldau.store.port import (
    SESSION_TIMEOUT_S,
    Conflict,
    Entry,
    Operation,
    SessionEnded,
    Unavailable,
    Unknown,
)

RECONNECT_S = 0.05
CONNECT_TIMEOUT_S = 2.0
SILENCE = 2 / 3
PINGS = 3


class SimStore(Engine):
    def __init__(
        self, runtime: Runtime, host: str, *, port: int = PORT, session_timeout_s: float = SESSION_TIMEOUT_S
    ) -> None:
        super().__init__(runtime.tasks)
        self._runtime = runtime
        self._address = (host, port)
        self._timeout_s = session_timeout_s
        self._client_id = str(runtime.random.uuid())
        self._talk: Talk | None = None
        self._is_closed = False
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._heard_s = 0.0
        self._connected = asyncio.Event()
        self._lost = asyncio.Event()
        self._task = runtime.tasks.spawn(self._stay_connected(), name="store connection")

    @classmethod
    async def open(
        cls, runtime: Runtime, host: str, *, port: int = PORT, session_timeout_s: float = SESSION_TIMEOUT_S
    ) -> SimStore:
        """Waits until it is connected, as long as that takes."""
        store = cls(runtime, host, port=port, session_timeout_s=session_timeout_s)
        await store._connected.wait()
        return store

    async def get(self, path: str) -> Entry | None:
        entry: Entry | None = await self._read("get", path)
        return entry

    async def children(self, path: str) -> list[Entry]:
        entries: list[Entry] = await self._read("children", path)
        return entries

    async def multi(self, operations: Sequence[Operation]) -> None:
        await self._write("multi", list(operations), self.session_id)

    async def create_candidate(self, path: str, value: bytes) -> str:
        session_id = self.session_id
        while self.session_id == session_id is not None:
            try:
                created: str = await self._write("candidate", path, value, session_id)
                return created
            except Unknown:
                await self._connected.wait()  # asked again, the host gives the same candidate
        raise SessionEnded("the session is over")

    async def begin_session(self, on_end: Callable[[], object]) -> str:
        if self.session_id is not None:
            raise RuntimeError("there is a session already")
        session_id: str = await self._read("begin", self._timeout_s)
        self.session_begun(session_id, on_end)
        return session_id

    async def end_session(self) -> None:
        session_id = self.session_id
        if session_id is not None:
            try:
                await self._write("end", session_id)
            finally:
                self.session_over(session_id, tell=False)

    def watch(self, path: str, callback: Callable[[], object]) -> PathWatch:
        watch = super().watch(path, callback)
        if self._connected.is_set():
            self._say("watch", [path])
            self.watches.call_later(watch)  # changed while the request was under way
        return watch

    def unwatched(self, path: str) -> None:
        if self._connected.is_set():
            self._say("unwatch", path)

    async def close(self) -> None:
        if not self._is_closed:
            try:
                await self.end_session()
            except (Unavailable, Unknown):
                pass
            self.abandon()

    def abandon(self) -> None:
        """Let go of the connection; the store finds out by itself that the session is over."""
        self.session_over(self.session_id, tell=False)
        self._is_closed = True
        self.watches.clear()
        self._disconnected()
        self._task.cancel()

    # Asking

    async def _read(self, kind: str, *arguments: Any) -> Any:
        try:
            return await self._write(kind, *arguments)
        except Unknown as lost:
            raise Unavailable(str(lost)) from None

    async def _write(self, kind: str, *arguments: Any) -> Any:
        session_id = self.session_id
        if not self._connected.is_set():
            raise Unavailable("there is no connection to the cluster store")
        answer = self._say(kind, *arguments)
        try:
            outcome, value = await answer
        except ConnectionError as lost:
            raise Unknown(str(lost)) from None
        if outcome == CONFLICT:
            raise Conflict(value)
        if outcome == SESSION_ENDED:
            self.session_over(session_id)
            raise SessionEnded(value)
        return value

    def _say(self, kind: str, *arguments: Any) -> asyncio.Future[Any]:
        assert self._talk is not None
        self._requests += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._requests] = answer
        self._talk.send((self._requests, kind, arguments))
        return answer

    def _heard(self, message: tuple[int, str, Any]) -> None:
        self._heard_s = self._runtime.clock.monotonic()
        number, outcome, value = message
        if number:
            answer = self._waiting.pop(number)
            if not answer.done():
                answer.set_result((outcome, value))
        else:
            for path in value:
                self.watches.touched_at(path)

    # The connection

    async def _stay_connected(self) -> None:
        while not self._is_closed:
            try:
                host, port = self._address
                stream = await self._runtime.net.connect(host, port, timeout_s=CONNECT_TIMEOUT_S)
            except OSError:
                await self._runtime.tasks.sleep(RECONNECT_S)
                continue
            self._lost.clear()
            self._talk = Talk(stream, self._heard, self._disconnected)
            self._heard_s = self._runtime.clock.monotonic()
            watchdog = self._runtime.tasks.spawn(self._ping(self._talk), name="store ping")
            await self._introduce()
            await self._lost.wait()
            watchdog.cancel()

    async def _introduce(self) -> None:
        session_id = self.session_id
        try:
            _, is_alive = await self._say("hello", self._client_id, session_id)
            if not is_alive:
                self.session_over(session_id)
            await self._say("watch", self.watches.paths)
        except ConnectionError:
            return
        self._connected.set()
        self.watches.touched_all()

    async def _ping(self, talk: Talk) -> None:
        while not talk.is_closed:
            await self._runtime.tasks.sleep(self._timeout_s / PINGS)
            if self._runtime.clock.monotonic() - self._heard_s > self._timeout_s * SILENCE:
                self._disconnected()
                return
            if not talk.is_closed:
                self._say("ping")

    def _disconnected(self) -> None:
        self._connected.clear()
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the connection to the cluster store was lost"))
                answer.exception()  # nobody waits for pings and watches
        self._lost.set()
