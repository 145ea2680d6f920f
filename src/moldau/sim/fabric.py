"""The wires between simulated hosts: who can be reached, how long it takes, and what is lost on the way.

A connection is two pipes, one per direction. Bytes keep their order in a pipe, arrive after a seeded delay,
and wait at the other end until they are received; a pipe holds a bounded number of bytes, so a slow reader
stops its writer.

What faults look like is what TCP makes of them:
- a cut path loses packets, which are sent again: bytes wait until the path is healed, and after `give_up_s`
  the sender's end fails with ETIMEDOUT. A path can be cut in one direction; then acknowledgements are what is
  lost;
- a host without power answers nothing. Once it is back, what still comes for its old connections is answered
  by a reset;
- a process that ends on a living host closes its connections with a reset;
- bytes that arrive at a closed end are answered by a reset.
"""

from __future__ import annotations

import asyncio
import enum
import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from moldau.sim.errors import os_error
from moldau.sim.loop import SimLoop
from moldau.sim.random import SimRandom
from moldau.sim.trace import Trace


@dataclass(frozen=True, slots=True)
class Link:
    """How the path between two hosts behaves."""

    delay_s: tuple[float, float] = (0.000_05, 0.002)
    """The shortest and longest time that bytes are under way."""
    buffer_bytes: int = 128 * 1024
    """What one direction of a connection holds between the sender and the receiver's program."""
    partial_rate: float = 0.05
    """How often a send or a receive takes fewer bytes than it could."""
    reset_rate: float = 0.0
    """How often a send ends in a reset of the connection."""
    give_up_s: float = 900.0
    """How long TCP sends again what is not acknowledged."""


class Packet(enum.Enum):
    DATA = "data"
    FIN = "fin"
    RST = "rst"


class End(Protocol):
    """One end of a connection, as its pipes see it."""

    gone: bool
    """Closed, or its host's life is over: nothing can be delivered to it."""

    def arrived(self, packet: Packet) -> None: ...
    def room_made(self) -> None: ...
    def failed(self, error: OSError) -> None: ...


class Pipe:
    """One direction of one connection: what was sent and not yet received, in order."""

    __slots__ = (
        "_fabric",
        "_in_flight",
        "_last_due",
        "_owed",
        "_stalled",
        "_timer",
        "_waiting_bytes",
        "back",
        "link",
        "source",
        "source_end",
        "target",
        "target_end",
        "unread",
    )

    def __init__(self, fabric: Fabric, source: str, target: str, link: Link) -> None:
        self._fabric = fabric
        self.source = source
        self.target = target
        self.link = link
        self.source_end: End | None = None
        self.target_end: End | None = None
        self.back: Pipe | None = None
        self.unread = bytearray()
        self._in_flight: deque[tuple[float, Packet, bytes]] = deque()
        self._waiting_bytes = 0
        self._owed = 0
        self._last_due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    @property
    def room_bytes(self) -> int:
        return self.link.buffer_bytes - self._waiting_bytes - self._owed - len(self.unread)

    def push(self, packet: Packet, data: bytes = b"") -> None:
        delay_s = self._fabric.random.between(*self.link.delay_s) + self._fabric.detour_s(
            self.source, self.target
        )
        due = max(self._fabric.loop.time() + delay_s, self._last_due)
        self._last_due = due
        self._in_flight.append((due, packet, data))
        self._waiting_bytes += len(data)
        if self._timer is None and self._stalled is None:
            self._schedule()

    def received(self, count: int) -> None:
        """The receiver's program has taken `count` bytes; the sender learns of it by an acknowledgement."""
        del self.unread[:count]
        if self._fabric.is_cut(self.target, self.source):
            self._owed += count
        elif self.source_end is not None:
            self.source_end.room_made()

    def resume(self) -> None:
        """The path may be open again."""
        if self._owed and not self._fabric.is_cut(self.target, self.source):
            self._owed = 0
            if self.source_end is not None:
                self.source_end.room_made()
        if self._stalled is not None and self._fabric.reaches(self.source, self.target):
            self._stalled.cancel()
            self._stalled = None
            self._schedule()

    def lose(self) -> None:
        """The sender's host lost its power: what had not left it yet never will."""
        for _ in range(self._fabric.random.randrange(len(self._in_flight) + 1)):
            self._waiting_bytes -= len(self._in_flight.pop()[2])

    def clear(self) -> None:
        self._in_flight.clear()
        self._waiting_bytes = 0
        for timer in (self._timer, self._stalled):
            if timer is not None:
                timer.cancel()
        self._timer = self._stalled = None

    def _schedule(self) -> None:
        if self._in_flight:
            delay = max(0.0, self._in_flight[0][0] - self._fabric.loop.time())
            self._timer = self._fabric.loop.in_world(delay, self._deliver)

    def _deliver(self) -> None:
        self._timer = None
        if not self._fabric.reaches(self.source, self.target):
            self._stalled = self._fabric.loop.in_world(self.link.give_up_s, self._give_up)
            return
        now = self._fabric.loop.time()
        while self._in_flight and self._in_flight[0][0] <= now:
            _, packet, data = self._in_flight.popleft()
            self._waiting_bytes -= len(data)
            self._hand_over(packet, data)
        self._schedule()
        self.forget_if_done()

    def forget_if_done(self) -> None:
        ends = (self.source_end, self.target_end)
        if not self._in_flight and all(end is None or end.gone for end in ends):
            self._fabric.forget(self)

    def _hand_over(self, packet: Packet, data: bytes) -> None:
        assert self.target_end is not None and self.back is not None
        if not self.target_end.gone:
            self.unread += data
            self._fabric.trace.record(self.target, "arrived", self.source, packet.value, len(data))
            self.target_end.arrived(packet)
        elif packet is Packet.DATA:
            self.back.push(Packet.RST)

    def _give_up(self) -> None:
        self._stalled = None
        self.clear()
        if self.source_end is not None:
            self.source_end.failed(os_error(errno.ETIMEDOUT))


class Fabric:
    """All hosts and paths of a world, and the switches that a scenario turns."""

    def __init__(self, loop: SimLoop, random: SimRandom, trace: Trace, link: Link) -> None:
        self.loop = loop
        self.random = random
        self.trace = trace
        self._link = link
        self._links: dict[tuple[str, str], Link] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._detours_s: dict[tuple[str, str], float] = {}
        self._dark: set[str] = set()
        self._pipes: dict[Pipe, None] = {}
        self._waiting: dict[Callable[[], None], None] = {}

    def link(self, one: str, other: str) -> Link:
        return self._links.get((one, other), self._link)

    def set_link(self, one: str, other: str, link: Link) -> None:
        """For connections made from now on, in both directions."""
        self._links[one, other] = self._links[other, one] = link

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Lose every packet from `source` to `target`, and back unless `one_way`."""
        self._cuts.add((source, target))
        if not one_way:
            self._cuts.add((target, source))
        self.trace.record(source, "cut", target, one_way)

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Mend the path between two hosts, or every path, and let it be as fast as before."""
        if one is None or other is None:
            self._cuts.clear()
            self._detours_s.clear()
        else:
            for path in ((one, other), (other, one)):
                self._cuts.discard(path)
                self._detours_s.pop(path, None)
        self.trace.record(one or "*", "heal", other or "*")
        self._resume()

    def delay(self, source: str, target: str, detour_s: float) -> None:
        """Let everything from `source` to `target` take this much longer from now on."""
        self._detours_s[source, target] = detour_s
        self.trace.record(source, "delay", target, detour_s)

    def detour_s(self, source: str, target: str) -> float:
        return self._detours_s.get((source, target), 0.0)

    def reset(self, one: str, other: str) -> None:
        """Break every connection between two hosts, as a firewall does that has forgotten them."""
        self.trace.record(one, "reset", other)
        for pipe in list(self._pipes):
            if {pipe.source, pipe.target} == {one, other} and pipe.target_end and not pipe.target_end.gone:
                pipe.clear()
                pipe.target_end.arrived(Packet.RST)

    def power(self, host: str, *, on: bool) -> None:
        if on:
            self._dark.discard(host)
            self._resume()
        else:
            self._dark.add(host)

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cuts

    def reaches(self, source: str, target: str) -> bool:
        return (source, target) not in self._cuts and target not in self._dark

    def is_open(self, one: str, other: str) -> bool:
        return self.reaches(one, other) and self.reaches(other, one)

    def delay_s(self, one: str, other: str) -> float:
        return self.random.between(*self.link(one, other).delay_s) + self.detour_s(one, other)

    def pipes(self, source: str, target: str) -> tuple[Pipe, Pipe]:
        """A new connection's two directions, there and back."""
        there = Pipe(self, source, target, self.link(source, target))
        back = Pipe(self, target, source, self.link(target, source))
        there.back, back.back = back, there
        self._pipes[there] = self._pipes[back] = None
        return there, back

    def forget(self, pipe: Pipe) -> None:
        self._pipes.pop(pipe, None)

    def _resume(self) -> None:
        for pipe in list(self._pipes):
            pipe.resume()
