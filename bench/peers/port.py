"""What a peer is: a server that is started and measured, and a client that writes and reads a log of messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.server import Server

TIMEOUT_S = 120


class Client(Protocol):
    """One connection, for one thread. A write returns, or is timed, when the server has confirmed the message."""

    def make(self, log: str) -> None: ...
    def write_one_by_one(self, log: str, count: int, value: bytes) -> list[float]:
        """Seconds that each took."""

    def write_all(self, log: str, count: int, value: bytes) -> None:
        """As fast as the client can."""

    def write_paced(self, log: str, rate: int, count: int, value: Callable[[], bytes]) -> None: ...
    def read(self, log: str, count: int, take: Callable[[bytes], object]) -> None:
        """From the beginning, also what comes only later."""

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    client_name: str
    """Its distribution on PyPI."""
    server: Callable[[Path], Server]
    client: Callable[[Server], Client]
    version: Callable[[], str]
