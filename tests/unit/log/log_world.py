"""A small world for the log's tests: a disk in memory that can crash and fail, and threads that run when told to."""

from __future__ import annotations

import asyncio
import errno
import random
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import TopicConfig, topic_config
from moldau.log.host import LogHost, LogSettings, Owner
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.reader import Slice
from moldau.log.search import _bring_in, _note
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch, read_records
from moldau.runtime.ports import Runtime

NOW_MS = 1_700_000_000_000
FOLDER = "/data"
PARTITION = TopicPartition("topic", 0)


def config(**overrides: str) -> TopicConfig:
    """`config(segment_bytes="1048576")`: a topic's settings over the defaults."""
    settings = {key.replace("_", "."): value for key, value in overrides.items()}
    if "segment.bytes" in settings:  # below Kafka's minimum, so that tests need no megabytes
        settings["internal.segment.bytes"] = settings.pop("segment.bytes")
    return topic_config(BrokerConfig.parse({}), settings)


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self.disk = disk
        self.path = path
        self.nowait = disk.nowait

    def pwrite(self, data: Any, position: int) -> int:
        self.disk.happens("pwrite", self.path)
        content = self.disk.files[self.path]
        data = bytes(data)[: self.disk.room(len(data))]
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        return len(data)

    def pread(self, length: int, position: int) -> bytes:
        self.disk.happens("pread", self.path)
        return bytes(self.disk.files[self.path][position : position + length])

    def pread_nowait(self, length: int, position: int) -> bytes:
        self.disk.happens("pread_nowait", self.path)
        if any(self.path.endswith(suffix) for suffix in self.disk.cold):
            raise BlockingIOError(errno.EAGAIN, "cold", self.path)
        return bytes(self.disk.files[self.path][position : position + length])

    def is_cached(self, position: int, length: int) -> bool:
        return True

    def warm(self, position: int, length: int) -> None:
        self.disk.happens("warm", self.path)

    def size(self) -> int:
        return len(self.disk.files[self.path])

    def truncate(self, size: int) -> None:
        self.disk.happens("truncate", self.path)
        before = len(self.disk.files[self.path])
        del self.disk.files[self.path][size:]
        self.disk.freed(max(before - size, 0))
        self.disk.durable[self.path] = self.disk.durable.get(self.path, b"")[:size]

    def sync(self) -> None:
        self.disk.happens("sync", self.path)
        self.disk.durable[self.path] = bytes(self.disk.files[self.path])

    def rename(self, target: str) -> None:
        self.disk.rename(self.path, target)
        self.path = target

    def close(self) -> None:
        pass


class MemoryLock:
    def __init__(self, disk: MemoryDisk, path: str) -> None:
        self.disk = disk
        self.path = path

    def release(self) -> None:
        self.disk.locks.discard(self.path)


class MemoryDisk:
    """Names are durable at once, content when it is synced. `crash` loses, tears or keeps the rest."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.durable: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.locks: set[str] = set()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.failing: dict[tuple[str, str], int] = {}
        """(operation, end of the path) -> errno."""
        self.cold: set[str] = set()
        self.nowait = True
        self.free: int | None = None

    def happens(self, operation: str, path: str) -> None:
        self.calls[operation, path.rsplit("/", 1)[-1]] += 1
        for (failing, suffix), code in self.failing.items():
            if operation == failing and path.endswith(suffix):
                raise OSError(code, "injected", path)

    def room(self, wanted: int) -> int:
        if self.free is None:
            return wanted
        if self.free == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(wanted, self.free)
        self.free -= taken
        return taken

    def freed(self, size: int) -> None:
        if self.free is not None:
            self.free += size

    def reads_of(self, suffix: str) -> int:
        reading = ("pread", "pread_nowait", "read", "warm")
        return sum(n for (what, name), n in self.calls.items() if what in reading and name.endswith(suffix))

    def crash(self, rng: random.Random) -> None:
        for path, content in self.files.items():
            kept = self.durable.get(path, b"")
            unsynced = bytes(content[len(kept) :])
            fate = rng.randrange(4)
            if fate == 0:
                unsynced = b""
            elif fate == 1:
                unsynced = unsynced[: rng.randrange(len(unsynced) + 1)]
            elif fate == 2 and unsynced:
                hole = rng.randrange(len(unsynced))
                unsynced = unsynced[:hole] + bytes(len(unsynced) - hole)
            self.files[path] = bytearray(kept + unsynced)
            self.durable[path] = bytes(self.files[path])
        self.locks.clear()

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.happens("create", path)
            self.files[path] = bytearray()
        return MemoryFile(self, path)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def size(self, path: str) -> int:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return len(self.files[path])

    def modified_ms(self, path: str) -> int:
        return NOW_MS

    def list(self, folder: str) -> list[str]:
        inside = [p for p in [*self.files, *self.folders] if p.startswith(folder + "/")]
        return sorted({path[len(folder) + 1 :].split("/")[0] for path in inside})

    def is_folder(self, path: str) -> bool:
        return path in self.folders

    def make_folder(self, path: str) -> None:
        self.happens("make_folder", path)
        self.folders.add(path)

    def rename(self, source: str, target: str) -> None:
        self.happens("rename", source)
        if source not in self.files and source not in self.folders:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        for names in (self.files, self.durable):
            for path in [p for p in names if p == source or p.startswith(source + "/")]:
                names[target + path[len(source) :]] = names.pop(path)  # type: ignore[index, attr-defined]
        if source in self.folders:
            self.folders.remove(source)
            self.folders.add(target)

    def remove(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.freed(len(self.files.pop(path)))
        self.durable.pop(path, None)

    def remove_tree(self, folder: str) -> None:
        for path in [p for p in self.files if p.startswith(folder + "/")]:
            self.remove(path)
        self.folders.discard(folder)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.happens("read", path)
        return bytes(self.files[path])

    def write_atomic(self, path: str, data: bytes) -> None:
        self.happens("write_atomic", path)
        self.files[path] = bytearray(data)
        self.durable[path] = data

    def sync_folder(self, folder: str) -> None:
        self.happens("sync_folder", folder)

    def lock(self, path: str) -> MemoryLock:
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "held", path)
        self.happens("lock", path)
        self.files.setdefault(path, bytearray())
        self.locks.add(path)
        return MemoryLock(self, path)

    def free_bytes(self, folder: str) -> int:
        return self.free if self.free is not None else 1 << 40


class ManualTasks:
    """Time passes when told to; work for threads runs on the loop, at once or (while `held`) when released."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[ManualTimer] = []
        self.held = False
        self.waiting: list[Callable[[], None]] = []
        self.tasks: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object:
        return asyncio.get_running_loop().call_soon(callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Any:
        timer = ManualTimer(self.now_s + delay_s, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything that becomes due happen in order."""
        end = self.now_s + seconds
        await settle()
        while due := [timer for timer in self.timers if timer.at <= end]:
            first = min(due, key=lambda timer: timer.at)
            self.timers.remove(first)
            self.now_s = max(self.now_s, first.at)
            first.fire()
            await settle()
        self.now_s = end
        await settle()

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def in_thread(self, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(work(*args))
            except BaseException as error:
                future.set_exception(error)

        if self.held:
            self.waiting.append(run)
        else:
            loop.call_soon(run)
        return future

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for run in waiting:
            run()

    async def sleep(self, delay_s: float) -> None:
        if delay_s == 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_later(delay_s, lambda: woken.done() or woken.set_result(None))
        await woken


class ManualTimer:
    def __init__(self, at: float, callback: Callable[[], object]) -> None:
        self.at = at
        self.callback = callback
        self.cancelled = False

    def fire(self) -> None:
        if not self.cancelled:
            self.callback()

    def cancel(self) -> None:
        self.cancelled = True


async def settle() -> None:
    """Let everything happen that waits for nothing but its turn."""
    for _ in range(20):
        await asyncio.sleep(0)


class FixedClock:
    def monotonic(self) -> float:
        return 0.0

    def wall_ms(self) -> int:
        return NOW_MS


class SeededRandom:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def fork(self, label: str) -> SeededRandom:
        return SeededRandom(hash(label))

    def random(self) -> float:
        return self._random.random()

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)

    def bytes(self, length: int) -> bytes:
        return self._random.randbytes(length)

    def uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)


def _taken(options: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options.pop(name) for name in names if name in options}


class World:
    """One broker's data folder in memory."""

    def __init__(self, settings: TopicConfig | None = None) -> None:
        self.disk = MemoryDisk()
        self.tasks = ManualTasks()
        self.settings = settings or config()
        self.runtime = Runtime(FixedClock(), SeededRandom(), self.tasks, None, self.disk)  # type: ignore[arg-type]
        self.failures: list[tuple[Log, OSError]] = []

    async def open(self, **options: Any) -> LogManager:
        """With options of `Owner`, `LogHost` and `LogSettings` by their names."""
        folders = options.pop("folders", [FOLDER])
        identity = {"cluster_id": "cluster", "node_id": 1, "process_id": 42, **_taken(options, Owner._fields)}
        host: dict[str, Any] = {
            "config_of": lambda topic: self.settings,
            "on_failure": lambda log, error: self.failures.append((log, error)),
            **_taken(options, LogHost.__slots__),
        }
        settings = LogSettings(**options)
        manager = LogManager(self.runtime, folders, Owner(**identity), LogHost(**host), lambda: settings)
        self.manager = manager
        await manager.open()
        return manager

    async def new_log(self) -> Log:
        manager = await self.open()
        return manager.create(PARTITION, uuid.UUID(int=7))

    async def reopen(self, *, clean: bool, rng: random.Random | None = None) -> Log:
        """The log after a clean stop, or after a crash of the machine."""
        self.tasks.held = False
        if clean:
            await self.manager.close()
        else:
            for task in list(self.tasks.tasks):
                task.cancel()
            self.disk.crash(rng or random.Random(0))
        self.disk.calls.clear()
        manager = await self.open()
        return manager.logs[PARTITION]


def records(*values: bytes | None, timestamp: int = NOW_MS, key: bytes | None = b"k") -> list[Record]:
    return [Record(i, timestamp, key, value) for i, value in enumerate(values)]


def batch(*values: bytes | None, timestamp: int = NOW_MS, **options: Any) -> bytes:
    return build_batch(records(*values, timestamp=timestamp), **options)


def append(log: Log, data: bytes, *, epoch: int = 0, now_ms: int = NOW_MS) -> Any:
    return log.append(memoryview(bytearray(data)), 0, len(data), leader_epoch=epoch, now_ms=now_ms)


def data_of(found: Slice) -> bytes:
    return found.file.pread(found.length, found.position) if found.file else b""


def batches_in(data: bytes) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        size = int.from_bytes(data[position + 8 : position + 12], "big") + 12
        found.append(data[position : position + size])
        position += size
    return found


def read_checked(log: Log, offset: int, max_bytes: int = 1 << 20) -> Slice:
    """`Log.read` up to the end, with what is on the disk from before checked on the way, as `warm` does it."""

    def read() -> Slice:
        return log.read(offset, max_bytes, below_offset=log.next_offset, whole_first_batch=True)

    try:
        return read()
    except BlockingIOError:
        seen = _bring_in(log._reader.for_checking(), offset, log.next_offset, max_bytes)
        if seen is not None:
            _note(log.segments.at(seen.base_offset), seen)
        return read()


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[Record]:
    """Everything from an offset on, as a consumer reads it."""
    offset = log.log_start_offset if offset is None else offset
    found: list[Record] = []
    while offset < log.next_offset:
        piece = data_of(read_checked(log, offset, max_bytes))
        for one in batches_in(piece):
            found += [record for record in read_records(one) if record.offset >= offset]
        assert found and found[-1].offset >= offset, f"no progress at {offset}"
        offset = found[-1].offset + 1
    return found


__all__ = ["Codec"]
