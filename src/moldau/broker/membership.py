"""A broker's membership in its cluster: its session in the store, its place in the controller's election, the
controller.

A session says that the broker lives: the controller fences whoever has none. Where it ends (the store was out of reach
for too long, the process was stopped) the broker begins another. Until the store can be reached again it goes on with
what it knows. Its incarnation, by which the controller tells one process from the next, stays the same (as Kafka's
does): where all sessions have ended together, since the store was gone, nobody was fenced, and nothing changes. R6, R7.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from moldau.controller.persistence import check_layout
from moldau.runtime.ports import Runtime
from moldau.store.port import Candidacy, Conflict, Create, Entry, SessionEnded, Store, Unknown, Watch

log = logging.getLogger(__name__)

CANDIDATES = "/controller/candidates"
LIVE = "/brokers/live"
RETRY_PAUSE_S = 0.2
ID_PATIENCE_S = 30.0
"""How long a broker waits for the session of its own last life, or of a double, to end."""


class Location(NamedTuple):
    """Where the controller is."""

    broker_id: int
    session: UUID
    host: str
    port: int


class IdInUse(Exception):
    """Another process is the broker with this id."""


class Membership:
    def __init__(
        self,
        store: Store,
        runtime: Runtime,
        node_id: int,
        *,
        on_elected: Callable[[], object],
        on_session_end: Callable[[], object],
        on_joined_again: Callable[[], object],
        on_controller: Callable[[], object],
    ) -> None:
        """`on_elected`: this broker is to be the controller. `on_session_end`: it is not, for certain, and others
        take it for dead. `on_joined_again`: it has a session again, and is to register. `on_controller`: look at
        `controller`."""
        self._store = store
        self._tasks = runtime.tasks
        self._clock = runtime.clock
        self._random = runtime.random.fork("membership")
        self._node_id = node_id
        self._on_elected = on_elected
        self._on_session_end = on_session_end
        self._on_joined_again = on_joined_again
        self._on_controller = on_controller
        self._address: tuple[str, int] = ("", 0)
        self._candidacy: Candidacy | None = None
        self._watch: Watch | None = None
        self._is_looking = False
        self._is_joining = False
        self._is_closed = False
        self.is_joined = False
        """It has a session: others may take it for alive."""
        self.incarnation: UUID = self._random.uuid()
        """Of the process."""
        self.session: UUID = UUID(int=0)
        self.began_again_s = float("-inf")
        """When the session began, if it is not the first: what has ended the one before may have ended all others."""
        self.controller: Location | None = None

    async def join(self, address: tuple[str, int]) -> None:
        """Begin the first session. IdInUse; OSError where the store cannot be used, TooNew where it is of a later
        version."""
        self._address = address
        await check_layout(self._store)
        await self._join()
        self._watch = self._store.watch(CANDIDATES, self._look_later)
        await self._look()

    async def leave(self) -> None:
        """End cleanly: others see it at once."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()
        await self._end_session()

    def abandon(self) -> None:
        """As a killed process: nothing more is done."""
        self._is_closed = True
        if self._watch is not None:
            self._watch.cancel()

    async def stand_again(self) -> None:
        """The office was lost, but not the session: go to the end of the line."""
        session_id = self._store.session_id
        candidacy, self._candidacy = self._candidacy, None
        try:
            if candidacy is not None:
                await candidacy.withdraw()
            if self.is_joined and self._store.session_id == session_id:
                await self._stand()
        except (OSError, Unknown, SessionEnded) as error:
            log.warning("cannot stand for controller: %s", error)
            if session_id is not None and self._store.session_id == session_id:
                await self._end_session()
                self._session_ended()

    # Sessions

    async def _join(self) -> None:
        is_first = not self.session.int
        self.session = self._random.uuid()
        await self._store.begin_session(self._session_ended)
        await self._create_live()
        if not is_first:
            self.began_again_s = self._clock.monotonic()
        await self._stand()
        self.is_joined = True

    async def _create_live(self) -> None:
        path, value = f"{LIVE}/{self._node_id}", _live_value(self.incarnation, self.session)
        for _ in range(int(ID_PATIENCE_S / RETRY_PAUSE_S)):
            try:
                await self._store.multi([Create(path, value, ephemeral=True)])
                return
            except Conflict:  # of this broker's last session, nearly always
                pass
            except Unknown:
                entry = await self._store.get(path)
                if entry is not None and entry.value == value:
                    return
            await self._tasks.sleep(RETRY_PAUSE_S)
        raise IdInUse(f"another process is broker {self._node_id} of this cluster")

    async def _stand(self) -> None:
        host, port = self._address
        value = {"broker": self._node_id, "session": self.session.hex, "host": host, "port": port}
        self._candidacy = await self._store.stand(CANDIDATES, json.dumps(value).encode(), self._elected)

    def _elected(self) -> None:
        if not self._is_closed:
            self._on_elected()

    def _session_ended(self) -> None:
        if self._is_closed:
            return
        log.warning("broker %d has lost its session, and joins the cluster again", self._node_id)
        self._candidacy = None
        self.is_joined = False
        self._on_session_end()
        if not self._is_joining:  # else whoever is at it finds that this session is over, too
            self._is_joining = True
            self._tasks.spawn(self._join_again(), name="join again")

    async def _join_again(self) -> None:
        while not self._is_closed:
            try:
                await self._join()
                break
            except (OSError, Unknown, SessionEnded, Conflict, IdInUse) as error:
                log.info("cannot join the cluster yet: %s", error)
            await self._tasks.sleep(RETRY_PAUSE_S)
            await self._end_session()
        self._is_joining = False
        if not self._is_closed:
            log.info("broker %d is in the cluster again", self._node_id)
            self._on_joined_again()

    async def _end_session(self) -> None:
        """It is over here in any case; others hear of it now or by its time-out."""
        try:
            await self._store.end_session()
        except (OSError, Unknown) as error:
            log.warning("the session could not be ended, and ends by its time-out: %s", error)

    # Who is the controller

    def _look_later(self) -> None:
        if not self._is_looking and not self._is_closed:
            self._is_looking = True
            self._tasks.spawn(self._look_until_known(), name="find the controller")

    async def _look_until_known(self) -> None:
        self._is_looking = True
        while not self._is_closed:
            try:
                self._is_looking = False
                await self._look()
                return
            except (OSError, Unknown):
                self._is_looking = True
                await self._tasks.sleep(RETRY_PAUSE_S)

    async def _look(self) -> None:
        entry = await self._store.first(CANDIDATES)
        location = None if entry is None else _location(entry)
        if location != self.controller and not self._is_closed:
            self.controller = location
            self._on_controller()


def _location(entry: Entry) -> Location | None:
    try:
        value = json.loads(entry.value)
        return Location(value["broker"], UUID(value["session"]), value["host"], value["port"])
    except (ValueError, KeyError, TypeError):
        log.error("a candidate for controller says nothing that can be read: %r", entry.value[:200])
        return None


async def live_brokers(store: Store) -> dict[int, UUID]:
    """Who has a session now, by broker id, with its incarnation."""
    entries = await store.children(LIVE)
    return {int(entry.name): UUID(hex=entry.value.decode().partition(" ")[0]) for entry in entries}


def _live_value(incarnation: UUID, session: UUID) -> bytes:
    """The session is there for the broker itself, which must not take the entry of an earlier one for its own."""
    return f"{incarnation.hex} {session.hex}".encode()
