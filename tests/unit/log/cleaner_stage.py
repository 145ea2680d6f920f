"""A log manager and its cleaner on a simulated host, for the tests of compaction in a broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from log_world import NOW_MS, PARTITION, append, batches_in, config, data_of, read_checked

from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log.checkpoints import read_offsets
from moldau.log.cleaner.cleaner import CleanerSettings, LogCleaner
from moldau.log.host import LogHost, Owner
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.log.reader import Slice
from moldau.log.transactions import Marker
from moldau.records.batch import read_header
from moldau.records.record import Record, build_batch, read_records
from moldau.sim.drive import DiskFaults
from moldau.sim.world import SimHost, World

COMPACTED = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "segment_bytes": "2000"}
FOLDER = "/data"
LOG_FOLDER = f"{FOLDER}/{PARTITION}"


class Stage:
    """A log manager and its cleaner on a simulated host, life after life."""

    def __init__(self, world: World, disk: DiskFaults | None = None, **overrides: str) -> None:
        self.host: SimHost = world.host("broker", disk=disk)
        self.settings: TopicConfig = config(**(COMPACTED | overrides))
        self.folders = [FOLDER]
        self.backoff_ms = 1000
        self.stable_offset: int | None = None
        self.manager: LogManager
        self.cleaner: LogCleaner

    async def open(self) -> Log:
        runtime = self.host.runtime if self.host.alive else self.host.restart()
        self.manager = LogManager(
            runtime, self.folders, Owner("cluster", 1, 1), LogHost(lambda topic: self.settings)
        )
        await self.manager.open()
        self.cleaner = LogCleaner(
            runtime,
            self.manager,
            lambda: CleanerSettings(backoff_ms=self.backoff_ms),
            stable_offset_of=lambda log: (
                log.next_offset if self.stable_offset is None else self.stable_offset
            ),
        )
        return self.manager.create(PARTITION, uuid.UUID(int=7))

    async def close(self) -> None:
        await self.cleaner.stop()
        await self.manager.close()

    @property
    def names(self) -> list[str]:
        return self.host.runtime.disk.list(LOG_FOLDER)

    @property
    def cleaned_to(self) -> dict[TopicPartition, int]:
        return read_offsets(self.host.runtime.disk.read(f"{FOLDER}/cleaner-offset-checkpoint"))


def on_stage(
    test: Callable[[Stage, World], Coroutine[Any, Any, None]], seed: int = 1, **options: Any
) -> Stage:
    with World(seed) as world:
        stage = Stage(world, **options)

        async def run() -> None:
            await stage.host.runtime.tasks.spawn(test(stage, world), name="test")

        world.run(run())
        assert not world.failures
        return stage


def fill(log: Log, count: int = 60, keys: int = 7, first: int = 0) -> None:
    """Batches of two records each, over a few keys, in segments of about twenty batches."""
    for number in range(first, first + count):
        pairs = [(b"%d" % (number % keys), b"%d" % number), (b"%d" % ((number + 1) % keys), b"x" * 30)]
        records = [Record(i, NOW_MS + number, key, value) for i, (key, value) in enumerate(pairs)]
        append(log, build_batch(records))


def read_all(log: Log, max_bytes: int = 1 << 20) -> list[Record]:
    """Everything, as a consumer reads it: it goes on behind the last batch, whether or not that has records."""
    offset, found = log.log_start_offset, []
    while offset < log.next_offset:
        piece = data_of(read_checked(log, offset, max_bytes))
        assert piece, f"no progress at {offset}"
        for one in batches_in(piece):
            found += [record for record in read_records(one) if record.offset >= offset]
            offset = read_header(one).next_offset
    return found


def last_of_each_key(records: list[Record], end_offset: int) -> list[Record]:
    """What is left of a log that was compacted up to an offset."""
    last = {record.key: record.offset for record in records if record.offset < end_offset}
    return [r for r in records if r.offset >= end_offset or last[r.key] == r.offset]


async def slice_from(log: Log, offset: int) -> Slice:
    """As a fetch reads it that waits for the disk."""
    for _ in range(5):
        try:
            return log.read(offset, 1 << 20, below_offset=log.next_offset, whole_first_batch=True)
        except BlockingIOError:
            await log.warm(offset, 1 << 20)
    raise AssertionError(f"offset {offset} cannot be read")


def transact(log: Log, producer_id: int, key: bytes, *, commit: bool) -> None:
    """A transaction with one record, of an epoch of its own."""
    producing = log.producing
    entry = producing.state.get(producer_id)
    epoch = 0 if entry is None else entry.epoch
    guard = producing.begin_verification(producer_id, epoch, 0, True)
    fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": 0}
    record = Record(0, NOW_MS, key, b"%s of %d" % (b"committed" if commit else b"aborted", producer_id))
    data = memoryview(bytearray(build_batch([record], transactional=True, **fields)))
    assert not log.append(data, 0, len(data), 0, NOW_MS, True, guard).error
    assert not producing.append_marker(Marker(commit, 0), producer_id, epoch + 1, 0, NOW_MS, 2).error
