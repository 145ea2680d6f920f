"""A log manager with two data folders on a simulated host, for the tests of logs that move between them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine
from typing import Any

from log_world import NOW_MS, PARTITION, append, batches_in, config, data_of, read_checked

from moldau.log import names
from moldau.log.host import LogHost, LogSettings, Owner
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.records.batch import read_header
from moldau.records.record import Record, build_batch, read_records
from moldau.sim.drive import DiskFaults
from moldau.sim.world import SimHost, World

A, B = "/a", "/b"
TOPIC_ID = uuid.UUID(int=7)


class Stage:
    def __init__(self, world: World, disk: DiskFaults | None = None, **overrides: str) -> None:
        self.host: SimHost = world.host("broker", disk=disk)
        self.settings = config(**({"segment_bytes": "2000"} | overrides))
        self.folders = [A, B]
        self.bytes_per_s: int | None = None
        self.failures: list[OSError] = []
        self.manager: LogManager

    async def open(self) -> Log:
        runtime = self.host.runtime if self.host.alive else self.host.restart()
        self.manager = LogManager(
            runtime,
            self.folders,
            Owner("cluster", 1, 1),
            LogHost(
                config_of=lambda topic: self.settings,
                topic_id_of=lambda topic: TOPIC_ID,
                on_failure=lambda log, error: self.failures.append(error),
            ),
            lambda: LogSettings(move_bytes_per_s=self.bytes_per_s),
        )
        await self.manager.open()
        return self.manager.create(PARTITION, TOPIC_ID)

    async def begin(self, log: Log, path: str) -> None:
        (folder,) = [folder for folder in self.manager.folders if folder.path == path]
        await self.manager.moves.begin(log, folder)

    async def until_moved(self, log: Log, path: str) -> None:
        while not log.folder.startswith(path + "/") or self.manager.moves._leaving:
            assert log.failure is None, log.failure
            await self.sleep(0.01)

    async def until(self, what: Callable[[], bool]) -> None:
        while not what():
            await self.sleep(0.001)

    async def sleep(self, seconds: float) -> None:
        await self.host.runtime.tasks.sleep(seconds)

    async def close(self) -> None:
        await self.manager.close()

    @property
    def places(self) -> list[str]:
        """The folders of the partition, whatever they are."""
        disk = self.host.runtime.disk
        return [
            f"{folder}/{name}"
            for folder in self.folders
            for name in disk.list(folder)
            if name.startswith(str(PARTITION))
        ]

    @property
    def futures(self) -> list[str]:
        return [path for path in self.places if path.endswith(names.FUTURE_FOLDER)]

    def content(self, folder: str) -> dict[str, bytes]:
        """The data of a log's segments by file name."""
        disk = self.host.runtime.disk
        return {name: disk.read(f"{folder}/{name}") for name in disk.list(folder) if name.endswith(names.LOG)}


def on_stage(
    test: Callable[[Stage], Coroutine[Any, Any, None]], seed: int | str = 1, **options: Any
) -> Stage:
    with World(seed) as world:
        stage = Stage(world, **options)

        async def run() -> None:
            await stage.host.runtime.tasks.spawn(test(stage), name="test")

        world.run(run())
        assert not world.failures
        return stage


def fill(log: Log, count: int = 60, first: int = 0, epoch: int = 0) -> None:
    """Batches of two records each of an idempotent producer, about twenty to a segment."""
    for number in range(first, first + count):
        records = [Record(i, NOW_MS + number, b"%d" % number, b"x" * 20) for i in range(2)]
        fields = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 2 * number}
        appended = append(log, build_batch(records, **fields), epoch=epoch)
        assert not appended.error, appended


def read_all(log: Log, offset: int | None = None) -> list[Record]:
    offset, found = log.log_start_offset if offset is None else offset, []
    while offset < log.next_offset:
        piece = data_of(read_checked(log, offset))
        assert piece, f"no progress at {offset}"
        for one in batches_in(piece):
            found += [record for record in read_records(one) if record.offset >= offset]
            offset = read_header(one).next_offset
    return found
