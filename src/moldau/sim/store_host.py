"""The cluster store as a host of its own on the simulated network, with the manners of ZooKeeper.

Its `Tree` is its disk: what was answered survives every end of the host, sessions included; after a start they have
a whole time-out to come back. A session that is not heard of for its time-out expires. A client that connects anew
is known by its id, and whatever its former connection still brings is dropped: what a client has seen undone stays
undone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moldau.runtime.ports import Runtime, Stream, Timer
from moldau.sim.store_wire import CONFLICT, DONE, SESSION_ENDED, Talk
from moldau.store.port import Conflict, SessionEnded, parent_of
from moldau.store.tree import Tree

PORT = 2181


class StoreTree(Tree):
    """With what a host must know of sessions over its own end."""

    def __init__(self) -> None:
        super().__init__()
        self.timeouts_s: dict[str, float] = {}

    def end_session(self, session_id: str) -> list[str]:
        self.timeouts_s.pop(session_id, None)
        return super().end_session(session_id)


class _Guest:
    """One connection. What it watches goes with it."""

    def __init__(self, host: StoreHost, stream: Stream) -> None:
        self.client_id = ""
        self.session_id: str | None = None
        self.watched: dict[str, None] = {}
        self._host = host
        self.talk = Talk(stream, self._asked, self._ended)

    def _asked(self, message: tuple[int, str, tuple[Any, ...]]) -> None:
        number, kind, arguments = message
        if self.session_id is not None:
            self._host.heard(self.session_id)
        try:
            answer = (number, DONE, getattr(self._host, f"on_{kind}")(self, *arguments))
        except Conflict as conflict:
            answer = (number, CONFLICT, conflict.path)
        except SessionEnded as ended:
            answer = (number, SESSION_ENDED, str(ended))
        self.talk.send(answer)

    def _ended(self) -> None:
        self._host.guests.pop(self, None)


class StoreHost:
    """Serves from the moment it is made, on the runtime of one life of its host."""

    def __init__(self, runtime: Runtime, tree: StoreTree, *, port: int = PORT) -> None:
        self.guests: dict[_Guest, None] = {}
        self.counts: dict[str, int] = {}
        """How often each kind of thing has happened."""
        self._tree = tree
        self._clock = runtime.clock
        self._call_later: Callable[..., Timer] = runtime.tasks.call_later
        self._heard_s: dict[str, float] = {}
        for session_id, timeout_s in tree.timeouts_s.items():
            self.heard(session_id)
            self._call_later(timeout_s, self._expire_if_silent, session_id)
        runtime.net.listen("", port, self._accept)

    def heard(self, session_id: str) -> None:
        self._heard_s[session_id] = self._clock.monotonic()

    def expire(self, session_id: str) -> None:
        """End a session now, whether it is heard of or not."""
        if session_id in self._tree.sessions:
            self._count("sessions expired")
            self._changed(self._tree.end_session(session_id))
            self._heard_s.pop(session_id, None)
            for guest in [guest for guest in self.guests if guest.session_id == session_id]:
                guest.talk.close()  # it learns why when it comes back
                del self.guests[guest]

    # Requests: a method for each kind, with the guest who asks.

    def on_hello(self, guest: _Guest, client_id: str, session_id: str | None) -> bool:
        """Whether the session is alive."""
        for other in [other for other in self.guests if other.client_id == client_id and other is not guest]:
            other.talk.close()
            del self.guests[other]
        guest.client_id = client_id
        if session_id not in self._tree.sessions:
            return False
        guest.session_id = session_id
        self.heard(session_id)
        return True

    def on_ping(self, guest: _Guest) -> None:
        pass

    def on_get(self, guest: _Guest, path: str) -> Any:
        return self._tree.entries.get(path)

    def on_children(self, guest: _Guest, path: str) -> Any:
        return self._tree.children(path)

    def on_multi(self, guest: _Guest, operations: Any, session_id: str | None) -> None:
        self._count("multis")
        self._changed(self._tree.multi(operations, session_id))

    def on_candidate(self, guest: _Guest, path: str, value: bytes, session_id: str) -> str:
        created = self._tree.create_candidate(path, value, session_id)
        self._changed([created])
        return created

    def on_begin(self, guest: _Guest, timeout_s: float) -> str:
        session_id = self._tree.begin_session()
        self._tree.timeouts_s[session_id] = timeout_s
        guest.session_id = session_id
        self.heard(session_id)
        self._call_later(timeout_s, self._expire_if_silent, session_id)
        self._count("sessions begun")
        return session_id

    def on_end(self, guest: _Guest, session_id: str) -> None:
        guest.session_id = None
        self._changed(self._tree.end_session(session_id))

    def on_watch(self, guest: _Guest, paths: Sequence[str]) -> None:
        guest.watched.update(dict.fromkeys(paths))

    def on_unwatch(self, guest: _Guest, path: str) -> None:
        guest.watched.pop(path, None)

    # What happens by itself.

    def _accept(self, stream: Stream) -> None:
        self.guests[_Guest(self, stream)] = None

    def _changed(self, paths: Sequence[str]) -> None:
        touched = dict.fromkeys(place for path in paths for place in (path, parent_of(path)))
        for guest in list(self.guests):
            seen = [place for place in touched if place in guest.watched]
            if seen:
                guest.talk.send((0, "changed", seen))

    def _expire_if_silent(self, session_id: str) -> None:
        if session_id not in self._tree.sessions:
            return
        silent_s = self._clock.monotonic() - self._heard_s[session_id]
        timeout_s = self._tree.timeouts_s[session_id]
        if silent_s >= timeout_s:
            self.expire(session_id)
        else:
            self._call_later(timeout_s - silent_s, self._expire_if_silent, session_id)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
