"""What /metrics has of the system, also where a disk hangs and where there is no /proc; and of the loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

from moldau.broker.metrics import machine
from moldau.broker.metrics.loop_delay import INTERVAL_S, LoopDelay
from moldau.broker.metrics.machine import Machine, process_figures
from moldau.runtime.real import close_runtime, real_runtime

STAT = b"42 (a ) name) S 1 1 1 0 -1 4194560 1 0 0 0 250 150 0 0 20 0 3 0 5000 1 1 1"
FILES = {
    "/proc/self/stat": STAT,
    "/proc/self/status": b"Name:\tpython\nVmSize:\t   2048 kB\nVmRSS:\t 1024 kB\nThreads:\t3\n",
    "/proc/self/limits": b"Limit   Soft Limit   Hard Limit   Units\nMax open files   1024   4096   files\n",
    "/proc/stat": b"cpu  1 2 3\nbtime 1700000000\n",
}


class Disk:
    def __init__(self, files: dict[str, bytes], fds: int = 0) -> None:
        self._files = files
        self._fds = fds
        self.hangs = threading.Event()
        self.hangs.set()
        self.looks = 0

    def read(self, path: str) -> bytes:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def size(self, path: str) -> int:
        return self._fds

    def list(self, folder: str) -> list[str]:
        return ["0", "1", "2", "3"]

    def free_bytes(self, folder: str) -> int:
        self.looks += 1
        if folder == "/hangs":
            self.hangs.wait(30)
        return 5

    def total_bytes(self, folder: str) -> int:
        return 9


def test_a_process_is_told_as_proc_has_it() -> None:
    disk: Any = Disk(FILES, fds=17)
    assert process_figures(disk) == {
        "process_cpu_seconds_total": 4.0,
        "process_resident_memory_bytes": 1 << 20,
        "process_virtual_memory_bytes": 2 << 20,
        "process_open_fds": 17,
        "process_max_fds": 1024,
        "process_threads": 3,
        "process_start_time_seconds": 1_700_000_050.0,
    }
    older: Any = Disk(FILES | {"/proc/self/limits": b"Max open files   unlimited   unlimited   files\n"})
    figures = process_figures(older)
    assert figures["process_open_fds"] == 3 and "process_max_fds" not in figures


async def look(disk: Disk, folders: list[str], times: int = 1) -> list[dict[str, float]]:
    runtime = real_runtime()
    world: Any = SimpleNamespace(disk=disk, tasks=runtime.tasks)
    system = Machine(world)
    told = []
    try:
        for _ in range(times):
            await system.look(folders)
            samples = [sample for sample in system.samples(folders) if sample is not None]
            told.append(
                {sample.name + behind: value for sample in samples for behind, value in sample.values}
            )
    finally:
        disk.hangs.set()
        close_runtime(runtime)
    return told


def test_where_there_is_no_proc_the_disks_are_told_alone() -> None:
    (told,) = asyncio.run(look(Disk({}), ["/data"]))
    assert told == {
        'moldau_data_folder_free_bytes{folder="/data"}': 5,
        'moldau_data_folder_disk_bytes{folder="/data"}': 9,
    }


def test_a_disk_that_hangs_is_left_out_and_not_asked_again(monkeypatch: Any) -> None:
    monkeypatch.setattr(machine, "METRIC_WAIT_S", 0.05)
    disk = Disk(FILES)
    disk.hangs.clear()
    told = asyncio.run(look(disk, ["/hangs", "/data"], times=3))
    for found in told:
        assert found['moldau_data_folder_free_bytes{folder="/data"}'] == 5
        assert found["process_cpu_seconds_total"] == 4.0
        assert not any("/hangs" in name for name in found)
    assert disk.looks == 1 + 3


def test_the_delay_of_the_loop_is_how_late_a_timer_comes() -> None:
    now_s = 100.0
    timers: list[tuple[float, Any]] = []
    clock = SimpleNamespace(monotonic=lambda: now_s)
    tasks = SimpleNamespace(
        call_later=lambda delay_s, callback: (
            timers.append((delay_s, callback)) or SimpleNamespace(cancel=timers.clear)
        )
    )
    world: Any = SimpleNamespace(clock=clock, tasks=tasks)
    delay = LoopDelay(world)
    delay.start()
    for late_s in (0.0, 0.02, 0.0, 7.0):
        delay_s, callback = timers.pop()
        assert delay_s == INTERVAL_S
        now_s += delay_s + late_s
        callback()
    assert sum(delay.delays.counts) == 4
    assert delay.delays.counts[-1] == 1 and 7.0 < delay.delays.seconds < 7.1
    delay.stop()
    assert not timers
