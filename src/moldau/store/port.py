"""The cluster store: a small tree of versioned values, changed all at once or not at all.

Every path has a value and a version: 0 when created, one more with every change; a path that is deleted and
created again begins at 0. `multi` applies its operations together if every condition holds, and is durable
when it returns; else it raises Conflict and changes nothing. That is compare-and-set, and all that decisions
need to be fenced. Sessions and watches, which come with several brokers, are not part of this port yet.

What is kept where:
- `/cluster/id`: the cluster's id, as text.
- `/topics/<name>`: JSON: the topic's id and, for each partition, replicas, in-sync set, leader and epochs.
- `/configs/topics/<name>`, `/configs/brokers/<id or default>`, `/configs/groups/<name>`,
  `/configs/client_metrics/<name>`: JSON: the settings that the resource has of its own.
- `/brokers/<id>/log_dirs`: JSON: the directory id of each of the broker's data folders, by path.
- `/producer_ids/next_block`: the first producer id that no broker has reserved yet, as text. Names are quoted
  where they stand in a path (`quoted`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class Entry(NamedTuple):
    path: str
    value: bytes
    version: int

    @property
    def name(self) -> str:
        """The last part of the path, as it was before it was quoted."""
        return unquoted(self.path.rpartition("/")[2])


class Create(NamedTuple):
    """The path must not be there."""

    path: str
    value: bytes


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
    """A condition of `multi` did not hold: someone else was first."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is not as expected")
        self.path = path


class Unknown(Exception):
    """The connection was lost in mid-flight: `multi` may have been done or not."""


class Store(Protocol):
    async def get(self, path: str) -> Entry | None: ...

    async def children(self, path: str) -> list[Entry]:
        """The entries directly below a path, sorted by path."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None: ...

    async def close(self) -> None: ...


def quoted(name: str) -> str:
    """A name as one part of a path: letters, digits and `._-` as they are, all else as %XX."""
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
