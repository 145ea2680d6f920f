"""What the system says of this process and of the disks: read in threads, since it may wait.

The process is as /proc has it, on Linux; elsewhere there are no such figures. A disk that hangs holds up nobody: what
is not there in time is left out, and is not asked for again before it has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from moldau.base.limits import METRIC_WAIT_S
from moldau.broker.metrics.text import Sample, Samples, labelled, plain
from moldau.runtime.ports import Disk, Runtime

PROCESS = "the process"
TICKS_PER_S = 100
"""USER_HZ, which every Linux has in what it tells of processes."""
KILOBYTE = 1024
CPU_FIELDS, START_FIELD = slice(11, 13), 19  # behind the name of the process, in /proc/self/stat


class Machine:
    def __init__(self, runtime: Runtime) -> None:
        self._disk = runtime.disk
        self._tasks = runtime.tasks
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, Any] = {}
        """The process, and the folders by their paths, as they were found by the last look."""

    async def look(self, folders: Sequence[str]) -> None:
        for place, look in ((PROCESS, process_figures), *((path, _room_in(path)) for path in folders)):
            if place not in self._under_way:
                self._seen.pop(place, None)
                work = self._look(place, look)
                self._under_way[place] = self._tasks.spawn(work, name=f"look at {place}")
        with suppress(TimeoutError):
            async with asyncio.timeout(METRIC_WAIT_S):
                for task in list(self._under_way.values()):
                    await asyncio.shield(task)

    async def _look(self, place: str, look: Callable[[Disk], Any]) -> None:
        try:
            self._seen[place] = await self._tasks.in_thread(look, self._disk)
        except OSError:
            self._seen.pop(place, None)
        finally:
            del self._under_way[place]

    def samples(self, folders: Sequence[str]) -> Samples:
        for name, value in self._seen.get(PROCESS, {}).items():
            yield plain(name, value)
        rooms = [(labelled(folder=path), self._seen[path]) for path in folders if path in self._seen]
        for number, name in enumerate(("moldau_data_folder_free_bytes", "moldau_data_folder_disk_bytes")):
            yield Sample(name, tuple((labels, room[number]) for labels, room in rooms))


def _room_in(path: str) -> Callable[[Disk], tuple[int, int]]:
    return lambda disk: (disk.free_bytes(path), disk.total_bytes(path))


def process_figures(disk: Disk) -> dict[str, float]:
    """By the names that Prometheus' client libraries have for them. OSError where there is no /proc."""
    fields = disk.read("/proc/self/stat").rpartition(b")")[2].split()
    status = _words_of(disk.read("/proc/self/status"), b":")
    system = _words_of(disk.read("/proc/stat"), b" ")
    limits = disk.read("/proc/self/limits").partition(b"Max open files")[2].split()
    figures = {
        "process_cpu_seconds_total": sum(map(int, fields[CPU_FIELDS])) / TICKS_PER_S,
        "process_resident_memory_bytes": int(status[b"VmRSS"][0]) * KILOBYTE,
        "process_virtual_memory_bytes": int(status[b"VmSize"][0]) * KILOBYTE,
        "process_open_fds": _open_files(disk),
        "process_threads": int(status[b"Threads"][0]),
        "process_start_time_seconds": int(system[b"btime"][0]) + int(fields[START_FIELD]) / TICKS_PER_S,
    }
    if limits[0] != b"unlimited":
        figures["process_max_fds"] = int(limits[0])
    return figures


def _words_of(table: bytes, mark: bytes) -> dict[bytes, list[bytes]]:
    """What stands behind the first word of each line."""
    lines = (line.partition(mark) for line in table.splitlines())
    return {name: rest.split() for name, _, rest in lines}


def _open_files(disk: Disk) -> int:
    """Linux tells since 6.2; before, they are counted, less the one that looks."""
    folder = "/proc/self/fd"
    return disk.size(folder) or len(disk.list(folder)) - 1
