"""The cluster store: a small tree of versioned values, changed all at once or not at all, with sessions.

Entries. Every path has a value and a version: 0 when created, one more with every change; a path that is deleted and
created again begins at 0. Entries above and below each other are independent; a path above others need not be one.

`multi` applies its operations together if every condition holds, and is durable when it returns. It has three
outcomes: done (it returns), `Conflict` (nothing was changed), and `Unknown` (the connection was lost in mid-flight:
find out by reading back a mark that the same multi writes, never guess). `Unavailable` means that nothing was done:
try again later.

Sessions. A session lives as long as its process can say so: it ends when the process dies, or is not heard of for
the session time-out. Its ephemeral entries go with it. Whoever has begun a session learns of its end by `on_end`,
called once; until then every `multi` that comes too late for the session raises `SessionEnded` and changes nothing.

Watches are level-triggered: after a change of the entry or of its direct children, by whomever, and after every
reconnect, the callback is called at least once, later than the change. Calls may be merged, and may come without a
change: whoever reads again at each call misses nothing.

What is kept where: the controller's entries are in `controller.layout`; each broker's own are `/brokers/live/<id>` and
`/controller/candidates/...` (both ephemeral, `broker.membership`) and `/brokers/<id>/log_dirs` (JSON: the directory id
of each of its data folders, by path). Names are quoted where they stand in a path (`quoted`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1
MULTI_OPERATIONS_MAX = 500
MULTI_BYTES_MAX = 256 * 1024
"""What one `multi` may hold: ZooKeeper takes 1 MB with everything around it."""
SESSION_TIMEOUT_S = 6.0
"""How long a process may be silent and keep its session, where the caller does not say otherwise."""


class Entry(NamedTuple):
    path: str
    value: bytes
    version: int

    @property
    def name(self) -> str:
        """The last part of the path, as it was before it was quoted."""
        return unquoted(self.path.rpartition("/")[2])


class Create(NamedTuple):
    """The path must not be there. An ephemeral entry belongs to the session, and goes with it."""

    path: str
    value: bytes
    ephemeral: bool = False


class Put(NamedTuple):
    """The path must be there, with this version."""

    path: str
    value: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """The path must be there, with this version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Changes nothing; the path must be there, with this version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class Conflict(Exception):
    """A condition of `multi` did not hold: someone else was first. Nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not as expected")
        self.path = path


class Unknown(Exception):
    """The connection was lost in mid-flight: `multi` is done, or is not, and will not be later."""


class Unavailable(OSError):
    """The store cannot be reached or used now. Nothing was done."""


class TooNew(OSError):
    """A newer version of Moldau has written what is there. Nothing was done."""


class SessionEnded(Exception):
    """The session in whose name this was asked is over, or none was begun. Nothing was done."""


class Watch(Protocol):
    def cancel(self) -> None:
        """No further call, not even one that is due already."""
        ...


class Candidacy(Protocol):
    """A place in an ordered election: whoever came first leads, and each waits for the one before only."""

    path: str
    """Of the candidate's entry; it is ephemeral."""

    @property
    def is_first(self) -> bool:
        """As far as this process knows. Writes are fenced by versions, not by this."""
        ...

    async def won(self) -> None:
        """Wait until it is first. SessionEnded where the candidacy is over before that."""
        ...

    async def withdraw(self) -> None:
        """Leave the election; no error where it is over already. Unavailable, Unknown: try again, or end the
        session."""
        ...


class Store(Protocol):
    @property
    def session_id(self) -> str | None:
        """Of the session that was begun here and is not known to be over."""
        ...

    async def get(self, path: str) -> Entry | None: ...

    async def children(self, path: str) -> list[Entry]:
        """The entries directly below a path, sorted by path. No snapshot: others may write meanwhile."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None: ...

    async def begin_session(self, on_end: Callable[[], object]) -> str:
        """Begin a session; its id. `on_end` is called once, on the loop, when it is over, unless `end_session` or
        `close` ended it; the next one may be begun from then on. It must not raise."""
        ...

    async def end_session(self) -> None:
        """End the session now, with its ephemeral entries; no error where there is none.

        Unavailable, Unknown: it is over here, and ends by its time-out for the others."""
        ...

    def watch(self, path: str, callback: Callable[[], object]) -> Watch: ...

    async def stand(self, path: str, value: bytes, on_first: Callable[[], object] | None = None) -> Candidacy:
        """Enter the election at `path`, once in a session. SessionEnded where there is none."""
        ...

    async def first(self, path: str) -> Entry | None:
        """Who leads, in the election at `path`."""
        ...

    async def close(self) -> None:
        """End the session and let go of the store."""
        ...


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def quoted(name: str) -> str:
    """A name as one part of a path: letters, digits and `._-` as they are, all else as %XX. `.` and `..` would be other
    folders."""
    if name in (".", ".."):
        return "%2E" * len(name)
    if name.isascii() and name.replace("_", "a").replace("-", "a").replace(".", "a").isalnum():
        return name
    return "".join(_quoted_letter(byte) for byte in name.encode())


def _quoted_letter(byte: int) -> str:
    letter = chr(byte)
    return letter if byte < 128 and (letter.isalnum() or letter in "._-") else f"%{byte:02X}"


def unquoted(part: str) -> str:
    if "%" not in part:
        return part
    head, *rest = part.split("%")
    data = head.encode()
    for piece in rest:
        data += bytes.fromhex(piece[:2]) + piece[2:].encode()
    return data.decode()
