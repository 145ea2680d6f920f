"""A simulated host's disk drive: what it holds, and how it fails.

It outlives its host's crashes; `disk.SimDisk` is the port that one life of the host has on it. Faults come by
rate (`DiskFaults`) or on demand (`fail_next`, `crash_after`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from moldau.sim.errors import os_error
from moldau.sim.loop import HostCrashed
from moldau.sim.platter import Platter
from moldau.sim.random import SimRandom

Kind = Literal["read", "write", "sync"]
FREE_BYTES_UNBOUNDED = 1 << 50


@dataclass(frozen=True, slots=True)
class DiskFaults:
    read_error_rate: float = 0.0
    write_error_rate: float = 0.0
    sync_error_rate: float = 0.0
    cold_rate: float = 0.0
    """How often a page is not in the cache."""
    short_write_rate: float = 0.0
    """How often a write takes only a part of what it is given."""
    capacity_bytes: int | None = None

    def error_rate(self, kind: Kind) -> float:
        if kind == "read":
            return self.read_error_rate
        return self.write_error_rate if kind == "write" else self.sync_error_rate


@dataclass(slots=True)
class Failure:
    kind: Kind
    path_contains: str
    number: int
    count: int


class Drive:
    def __init__(self, random: SimRandom, faults: DiskFaults) -> None:
        self.random = random
        self.faults = faults
        self.platter = Platter(random.fork("platter"))
        self.locks: dict[str, int] = {}
        """Path of a lock file to the number of the life that holds it."""
        self.crash_host: Callable[[], None] = lambda: None
        self._failures: list[Failure] = []
        self._changes_left: int | None = None

    def fail_next(
        self, kind: Kind, *, path_contains: str = "", number: int = errno.EIO, count: int = 1
    ) -> None:
        """The next `count` operations of a kind, on paths that contain a text, fail with an errno."""
        self._failures.append(Failure(kind, path_contains, number, count))

    def forgive(self) -> None:
        """Failures and crashes that were asked for and have not come yet will not."""
        self._failures.clear()
        self._changes_left = None

    def crash_after(self, changes: int) -> None:
        """Crash the host in the middle of a change (write, sync, rename, ...) after this many more of
        them."""
        self._changes_left = changes

    @property
    def is_armed(self) -> bool:
        """Whether a crash is to come."""
        return self._changes_left is not None

    def host_ended(self) -> None:
        """Locks end with the process that held them, and so does a crash that was to come."""
        self.locks.clear()
        self._changes_left = None

    def operate(self, kind: Kind, path: str) -> None:
        """Called before every operation: raises what the faults decide."""
        for failure in self._failures:
            if failure.kind == kind and failure.path_contains in path:
                failure.count -= 1
                if not failure.count:
                    self._failures.remove(failure)
                raise os_error(failure.number, path)
        if self.random.chance(self.faults.error_rate(kind)):
            raise os_error(errno.EIO, path)

    def crash_due(self) -> bool:
        """Count one change; whether the host crashes in it."""
        if self._changes_left is None:
            return False
        self._changes_left -= 1
        return self._changes_left < 0

    def crash_now(self) -> None:
        self.crash_host()
        raise HostCrashed("the host has crashed during a change of its disk")

    def room_for(self, length: int) -> int:
        """Bytes of `length` that fit."""
        if self.faults.capacity_bytes is None:
            return length
        return max(0, min(length, self.faults.capacity_bytes - self.platter.used_bytes))

    def free_bytes(self) -> int:
        return self.room_for(FREE_BYTES_UNBOUNDED)

    def total_bytes(self) -> int:
        capacity = self.faults.capacity_bytes
        return FREE_BYTES_UNBOUNDED + self.platter.used_bytes if capacity is None else capacity
