"""The driver of followers, with a leader whose answers the test writes. R2."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log.manager import LogManager
from moldau.metadata.image import PartitionState
from moldau.records.record import Record, build_batch
from moldau.replication.fetcher import Fetcher, FetcherSettings
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.sim.world import World
from moldau.wire.fetch import FetchedPartition, pack_fetch_response

T = TypeVar("T")
TOPIC_ID = uuid.UUID(int=7)
STATE = PartitionState(leader=1, leader_epoch=3, replicas=(1, 2), isr=(1, 2), partition_epoch=1)
VERSION = 17
SESSION = 5
HEADER_BYTES = 9  # size, correlation id, no tagged fields


class Leader:
    """Stands for the peer and its connection: requests are counted, answers come when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[memoryview]] = []
        self.requests = 0

    async def connection(self, _timeout_s: float, *, waits: bool) -> Leader:
        assert waits
        return self

    def version_of(self, _api_key: int, _max: int) -> int:
        return VERSION

    def send_raw(
        self, _api_key: int, _version: int, _body: bytes, _timeout_s: float
    ) -> asyncio.Future[memoryview]:
        self.requests += 1
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]

    def give_back(self, _frame: memoryview) -> None:
        pass

    def answer(self, partition: int, offset: int, values: int, high_watermark: int) -> None:
        """To the first request that waits: a batch of so many records, or none."""
        records = [Record(offset + i, 1, None, b"%d" % (offset + i)) for i in range(values)]
        batch = build_batch(records, leader_epoch=3) if records else b""
        found = FetchedPartition(
            partition,
            0,
            high_watermark=high_watermark,
            last_stable_offset=-1,
            log_start_offset=0,
            records=batch,
        )
        pieces = pack_fetch_response(1, VERSION, 0, 0, SESSION, [(TOPIC_ID.bytes, [found])])
        frame = b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]
        self.waiting.pop(0).set_result(memoryview(bytearray(frame[HEADER_BYTES:])))


class Stage:
    """Two partitions that are followed, on a simulated disk."""

    def __init__(self) -> None:
        self.world = World(1)
        self.host = self.world.host("follower")
        self.leader = Leader()
        self.partitions: list[Partition] = []
        self.run(self._open())

    async def _open(self) -> None:
        runtime = self.host.runtime
        config = topic_config(BrokerConfig.parse({}), {})
        manager = LogManager(
            runtime, ["/data"], cluster_id="c", node_id=2, process_id=1, config_of=lambda _topic: config
        )
        await manager.open()
        replication = Replication(2, runtime)
        self.fetcher = Fetcher(
            runtime,
            self.leader,
            2,
            lambda: 1,
            manager.write_checkpoints_of,
            FetcherSettings(),  # type: ignore[arg-type]
        )
        for index in range(2):
            held = manager.create(TopicPartition("orders", index), TOPIC_ID, config)
            self.partitions.append(Partition(replication, TOPIC_ID, STATE, held))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.host.runtime.tasks.spawn(work, name="test")

        async def wait() -> T:
            while not task.done():
                await self.world.sleep(0.001)
            return task.result()

        return self.world.run(wait())

    def do(self, step: Any, *arguments: Any) -> None:
        """Something on the host's loop, and what follows from it at once."""

        async def work() -> None:
            step(*arguments)
            await self.host.runtime.tasks.sleep(0.005)

        self.run(work())


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.do(stage.fetcher.close)
    stage.world.close()


def test_an_answer_to_a_request_sent_before_the_one_before_was_taken_brings_nothing_twice(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition to follow comes while a fetch waits: two requests are under way, both from the same place."""
    first, second = stage.partitions
    stage.do(stage.fetcher.follow, first)
    stage.do(stage.leader.answer, 0, 0, 0, 0)
    stage.do(stage.fetcher.follow, second)
    assert len(stage.leader.waiting) == 2, "the second request does not wait for the first answer"
    stage.do(stage.leader.answer, 0, 0, 3, 0)
    assert first.log.next_offset == 3
    stage.do(stage.leader.answer, 0, 0, 4, 3)
    assert first.log.next_offset == 3
    assert first.high_watermark == 3, "what is committed is news all the same"
    assert caplog.records == []
    stage.do(stage.leader.answer, 0, 3, 2, 5)
    assert (first.log.next_offset, first.high_watermark) == (5, 5)
