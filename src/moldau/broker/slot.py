"""An answer of a connection, and the place of one that is not there yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from moldau.broker.metrics.counters import UNTIMED
from moldau.runtime.ports import File

if TYPE_CHECKING:
    from moldau.broker.connection import Connection


class FilePart(Protocol):
    """Bytes of an answer that still lie in a file."""

    @property
    def file(self) -> File: ...
    @property
    def position(self) -> int: ...
    @property
    def length(self) -> int: ...


class Sending:
    """A file part on its way out."""

    __slots__ = ("file", "left", "position")

    def __init__(self, part: FilePart) -> None:
        self.file = part.file
        self.position = part.position
        self.left = part.length


Answer = bytes | list[Any]
"""A whole frame, or its pieces in order: bytes and file parts."""


class Slot:
    """The place of an answer that is not there yet. `on_cancel` is called when the client goes away before it is,
    `hurry` when another request of the client waits behind it."""

    __slots__ = (
        "answer",
        "began_s",
        "connection",
        "durations",
        "held_bytes",
        "hurry",
        "is_filled",
        "is_produce",
        "on_cancel",
    )

    def __init__(self, connection: Connection, is_produce: bool, held_bytes: int = 0) -> None:
        self.connection = connection
        self.is_produce = is_produce
        self.held_bytes = held_bytes
        """Of the request, which is kept until it is answered."""
        self.durations = UNTIMED
        self.began_s = 0.0
        """When the request was taken up, and where it is noted how long it took."""
        self.answer: Answer | None = None
        self.is_filled = False
        self.on_cancel: Callable[[], object] | None = None
        self.hurry: Callable[[], object] | None = None

    def fill(self, answer: Answer | None) -> None:
        """Give the answer, or None where the request gets none (acks=0). A closed connection takes no notice."""
        self.answer = answer
        self.is_filled = True
        self.on_cancel = self.hurry = None
        self.connection.on_slot_filled(self)

    def abandon(self, reason: str) -> None:
        """Nothing can be answered: the connection ends, and the client will ask again on a new one."""
        self.connection.close(reason)

    @property
    def is_wanted(self) -> bool:
        return not self.connection.is_closed
