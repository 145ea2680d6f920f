"""A broker as others talk to it: one connection, made when it is needed, and made again after a pause when it is lost.

Pauses grow with every attempt that fails, and with every connection that ends soon after it was made (Kafka's
`reconnect.backoff.ms` and `reconnect.backoff.max.ms`, with the same jitter). During a pause a caller is refused at
once, or waits for the next attempt: its choice. Nothing is sent again: what became of a lost request is for its caller
to find out.

A connection begins with ApiVersions, so that brokers of two releases can work together during an upgrade: `version_of`
is the newest version of an API that both sides know. Then comes SASL, where the listener has it (`peers.login`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.base.limits import PEER_CALLERS_WAITING_MAX
from moldau.peers.connection import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, PeerConnection
from moldau.peers.errors import BadAnswer, Busy, Disconnected, UnsupportedVersion
from moldau.runtime.ports import Address, Random, Runtime, Timer
from moldau.runtime.tls import TlsEnded, TlsError
from moldau.wire.apis import API_VERSIONS, APIS

if TYPE_CHECKING:
    from moldau.security.sasl.client import Login

logger = logging.getLogger("moldau.peers")

API_VERSIONS_VERSION = 3  # known to every broker of Moldau, and to Kafka since 2.4
SOFTWARE_NAME = "moldau"
SOFTWARE_VERSION = "0"
BACKOFF_S = 0.05
BACKOFF_S_MAX = 1.0
BACKOFF_JITTER = 0.2
SESSION_SHARE_USED = 0.85
"""Of a session's time, as Kafka's clients use at least of it."""
SPENT_LOOK_S = 1.0


class Versions(NamedTuple):
    """Of one API, as a broker serves it."""

    min_version: int
    max_version: int


class Peer:
    """Takes `runtime`'s ports for itself: its random numbers are of a stream of their own."""

    def __init__(
        self, runtime: Runtime, address: Address | None, client_id: str, login: Login | None = None
    ) -> None:
        """`login`: who this side is, where the other's listener has SASL."""
        self._runtime = runtime
        self._login = login
        self._random: Random = runtime.random.fork(f"peer {client_id}")
        self._client_id = client_id
        self._address = address
        self._is_closed = False
        self._connection: PeerConnection | None = None
        self._connected_s = 0.0
        self._versions: dict[int, Versions] = {}
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before_s = float("-inf")  # when the pause is over
        self._spent: list[PeerConnection] = []  # whose sessions end soon
        self._pause: Timer | None = None  # running while somebody waits for the end of the pause
        self._waiting: deque[_Waiting] = deque()

    @property
    def address(self) -> Address | None:
        return self._address

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    @property
    def is_idle(self) -> bool:
        """Nobody waits for it."""
        return not self._waiting and (self._connection is None or not self._connection.in_flight)

    def version_of(self, api_key: int, max_version: int | None = None) -> int:
        """The newest version of an API that both sides know, as of the last connection; ours, before the first one.

        `max_version` is ours where it is not that of the codecs. UnsupportedVersion where there is none.
        """
        ours = APIS[api_key].max_version if max_version is None else max_version
        if not self._versions:
            return ours
        theirs = self._versions.get(api_key)
        least = APIS[api_key].min_version if api_key in APIS else 0
        if theirs is None or theirs.min_version > ours or theirs.max_version < least:
            raise UnsupportedVersion(f"{self} serves no version of API {api_key} that is known here")
        return min(ours, theirs.max_version)

    async def ask(
        self, api_key: int, message: object, timeout_s: float = REQUEST_TIMEOUT_S, *, waits: bool = False
    ) -> Any:
        """The answer to a request, in the newest version that both sides know.

        Without a connection one is made; during a pause, and when it cannot be made, Disconnected is raised, or,
        where the caller `waits`, attempts go on for as long as there is time.
        """
        begun_s = self._runtime.clock.monotonic()
        connection = self._connection or await self.connection(timeout_s, waits=waits)
        left_s = timeout_s - (self._runtime.clock.monotonic() - begun_s)
        return await connection.ask(api_key, self.version_of(api_key), message, left_s)

    async def ask_raw(
        self,
        api_key: int,
        version: int,
        body: bytes,
        timeout_s: float = REQUEST_TIMEOUT_S,
        *,
        waits: bool = False,
    ) -> memoryview:
        """Like `ask`, of a body that is coded already; the answer is its body as it was received."""
        begun_s = self._runtime.clock.monotonic()
        connection = self._connection or await self.connection(timeout_s, waits=waits)
        left_s = timeout_s - (self._runtime.clock.monotonic() - begun_s)
        return await connection.ask_raw(api_key, version, body, left_s)

    def give_back(self, answer: memoryview) -> None:
        """The caller of `ask_raw` is done with an answer (see `PeerConnection.give_back`)."""
        if self._connection is not None:
            self._connection.give_back(answer)

    async def connection(
        self, timeout_s: float = REQUEST_TIMEOUT_S, *, waits: bool = False
    ) -> PeerConnection:
        """The connection, as soon as there is one. It is the peer's: callers do not close it."""
        if self._connection is not None:
            return self._connection
        if self._is_closed:
            raise Disconnected(f"{self} was closed")
        if len(self._waiting) >= PEER_CALLERS_WAITING_MAX:
            raise Busy(f"too many wait for {self} already")
        if not waits and not self._may_connect:
            raise Disconnected(f"{self} is not connected")
        waiting = _Waiting(asyncio.get_running_loop().create_future(), waits)
        self._waiting.append(waiting)
        self._connect_when_due()
        reason = f"{self} could not be connected in time"
        timer = self._runtime.tasks.call_later(timeout_s, _fail, waiting.connection, reason)
        try:
            return await waiting.connection
        finally:
            timer.cancel()
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            del waiting

    def on_address_changed(self, address: Address | None) -> None:
        """The broker is elsewhere now: what is under way is lost, and the next attempt is made at once."""
        if address == self._address or self._is_closed:
            return
        self._address = address
        self._drop(f"{self} has another address now")
        self._failures = 0
        self._not_before_s = float("-inf")
        if address is None:
            self._refuse(f"{self} cannot be connected")
        if self._waiting:
            self._connect_when_due()

    def end_pause(self) -> None:
        """There is news of the broker: the next attempt is made at once, and pauses are short again."""
        if self._connection is None and self._connecting is None:
            self._failures = 0
            self._not_before_s = float("-inf")
            if self._pause is not None:
                self._pause.cancel()
                self._pause = None
            if self._waiting:
                self._connect_when_due()

    def close(self, reason: str = "it was closed") -> None:
        """Whoever waits gets Disconnected, now and from now on."""
        self._is_closed = True
        self._drop(f"{self}: {reason}")
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            _fail(one.connection, reason)

    def __str__(self) -> str:
        return f"{self._address[0]}:{self._address[1]}" if self._address else "a broker without an address"

    @property
    def _may_connect(self) -> bool:
        """Whether an attempt is under way, or may begin now."""
        if self._connecting is not None:
            return True
        return self._address is not None and self._runtime.clock.monotonic() >= self._not_before_s

    def _connect_when_due(self) -> None:
        if self._address is None or self._connecting is not None or self._pause is not None:
            return
        tasks = self._runtime.tasks
        left_s = self._not_before_s - self._runtime.clock.monotonic()
        if left_s > 0:
            self._pause = tasks.call_later(left_s, self._on_pause_over)
        else:
            self._connecting = tasks.spawn(self._connect(self._address), name=f"connecting to {self}")

    def _on_pause_over(self) -> None:
        self._pause = None
        self._not_before_s = float("-inf")
        if self._waiting:
            self._connect_when_due()

    async def _connect(self, address: Address) -> None:
        connection: PeerConnection | None = None
        try:
            connection = await PeerConnection.open(
                self._runtime, *address, self._client_id, timeout_s=CONNECT_TIMEOUT_S
            )
            versions = await self._ask_versions(connection)
            lifetime_ms = 0
            if self._login is not None:
                from moldau.peers.login import log_in  # most listeners have no SASL

                lifetime_ms = await log_in(self._runtime, connection, self._login)
        except (OSError, Disconnected) as error:
            if connection is not None:
                connection.close()
            self._connecting = None
            self._on_failure(
                str(error), is_flaw=isinstance(error, TlsError) and not isinstance(error, TlsEnded)
            )
        except BaseException:  # cancelled
            if connection is not None:
                connection.close()
            raise
        else:
            self._connecting = None
            self._on_connected(connection, versions)
            if lifetime_ms:
                delay_s = lifetime_ms / 1000 * SESSION_SHARE_USED
                self._runtime.tasks.call_later(delay_s, self._retire, connection)

    def _retire(self, connection: PeerConnection) -> None:
        """Its session ends soon: who asks from now on has a new one. Who still uses it has it until it is ended."""
        if connection is self._connection:
            self._connection = None
            self._spent = [one for one in self._spent if not one.is_closed]
            self._spent.append(connection)
        if not connection.is_closed and connection.in_flight:
            self._runtime.tasks.call_later(SPENT_LOOK_S, self._retire, connection)
        else:
            connection.close()

    async def _ask_versions(self, connection: PeerConnection) -> dict[int, Versions]:
        request = SimpleNamespace(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        answer = await connection.ask(API_VERSIONS, API_VERSIONS_VERSION, request, CONNECT_TIMEOUT_S)
        if answer.error_code:
            raise BadAnswer(f"ApiVersions was answered {answer.error_code.name}")
        return {api.api_key: Versions(api.min_version, api.max_version) for api in answer.api_keys}

    def _on_connected(self, connection: PeerConnection, versions: dict[int, Versions]) -> None:
        if connection.is_closed:  # in the turn of the loop between the answer and here
            self._on_failure("the connection was closed")
            return
        self._connection = connection
        self._versions = versions
        self._connected_s = self._runtime.clock.monotonic()
        connection.on_closed = self._on_closed
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if not one.connection.done():
                one.connection.set_result(connection)

    def _on_closed(self, connection: PeerConnection, error: Disconnected) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if isinstance(error, BadAnswer):
            logger.warning("the connection to %s was given up: %s", self, error)
        if self._runtime.clock.monotonic() - self._connected_s >= BACKOFF_S_MAX:
            self._failures = 0
        self._back_off()

    def _on_failure(self, reason: str, *, is_flaw: bool = False) -> None:
        """`is_flaw`: of certificates or settings, which does not pass by itself."""
        if not self._failures:
            level = logging.WARNING if is_flaw else logging.INFO
            logger.log(level, "%s cannot be connected: %s", self, reason)
        self._back_off()
        self._refuse(reason)
        if self._waiting:
            self._connect_when_due()

    def _refuse(self, reason: str) -> None:
        """Tell those who do not wait for another attempt."""
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            if one.waits:
                self._waiting.append(one)
            else:
                _fail(one.connection, reason)

    def _back_off(self) -> None:
        delay_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(self._failures, 16))
        delay_s *= 1 + BACKOFF_JITTER * (2 * self._random.random() - 1)
        self._failures += 1
        self._not_before_s = self._runtime.clock.monotonic() + delay_s

    def _drop(self, reason: str) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        connection, self._connection = self._connection, None
        for one in (*self._spent, *([] if connection is None else [connection])):
            one.close(reason)
        self._spent.clear()


class _Waiting(NamedTuple):
    connection: asyncio.Future[PeerConnection]
    waits: bool
    """Through failed attempts and pauses."""


def _fail(connection: asyncio.Future[PeerConnection], reason: str) -> None:
    if not connection.done():
        connection.set_exception(Disconnected(reason))
        connection.exception()  # seen
