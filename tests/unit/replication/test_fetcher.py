"""The driver of followers, with a leader whose answers the test writes. R2."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.handlers import list_offsets
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log.host import LogHost, Owner
from moldau.log.log import Log
from moldau.log.manager import LogManager
from moldau.metadata.image import PartitionState
from moldau.records.record import Record, build_batch
from moldau.replication.fetcher import Fetcher, FetcherSettings
from moldau.replication.leader_bounds import EARLIEST, LATEST
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.sim.world import World
from moldau.wire.codec import encode_request
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
        self.is_asked = False
        self.is_silent = False
        """It does not say where its log begins and ends."""

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

    async def ask(self, api_key: int, request: Any) -> Any:
        """ListOffsets, by a log from 2 to 3. What is asked is written as it is for a real leader."""
        assert api_key == list_offsets.API_KEY
        self.is_asked = True
        if self.is_silent:
            await asyncio.get_running_loop().create_future()
        for version in range(list_offsets.VERSIONS[0], list_offsets.VERSIONS[1] + 1):
            assert encode_request(api_key, version, request)
        wanted = request.topics[0].partitions[0]
        row = SimpleNamespace(error_code=0, offset={EARLIEST: 2, LATEST: 3}[wanted.timestamp])
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])

    def answer(
        self,
        partition: int,
        offset: int,
        values: int,
        high_watermark: int,
        *,
        error: ErrorCode = ErrorCode.none,
        log_start_offset: int = 0,
    ) -> None:
        """To the first request that waits: a batch of so many records, or none."""
        records = [Record(offset + i, 1, None, b"%d" % (offset + i)) for i in range(values)]
        batch = build_batch(records, leader_epoch=3) if records else b""
        found = FetchedPartition(
            partition,
            error,
            high_watermark=high_watermark,
            last_stable_offset=-1,
            log_start_offset=log_start_offset,
            records=batch,
        )
        pieces = pack_fetch_response(1, VERSION, 0, 0, SESSION, [(TOPIC_ID.bytes, [found])])
        frame = b"".join(bytes(piece) for piece in pieces)  # type: ignore[arg-type]
        self.waiting.pop(0).set_result(memoryview(bytearray(frame[HEADER_BYTES:])))


class Throttle:
    """There is room when the test says so."""

    def __init__(self) -> None:
        self.is_full = False
        self.waiting: dict[Fetcher, None] = {}
        self.bytes = 0

    def is_exceeded(self) -> bool:
        return self.is_full

    def record(self, bytes_: int) -> None:
        self.bytes += bytes_

    def when_room(self, fetcher: Fetcher) -> None:
        self.waiting[fetcher] = None

    def leave(self, _fetcher: Fetcher) -> None:
        pass


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
        manager = LogManager(runtime, ["/data"], Owner("c", 2, 1), LogHost(lambda _topic: config))
        await manager.open()
        self.throttle = Throttle()
        self.fetcher = Fetcher(
            runtime,
            lambda: self.leader,  # type: ignore[arg-type,return-value]
            2,
            lambda: 1,
            manager.write_checkpoints_of,
            FetcherSettings(),
            self.throttle,  # type: ignore[arg-type]
        )
        for index in range(2):
            log = manager.create(TopicPartition("orders", index), TOPIC_ID, config)
            self.partitions.append(Partition(Replication(2, runtime), TOPIC_ID, STATE, log))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.host.runtime.tasks.spawn(work, name="test")

        async def wait() -> T:
            while not task.done():
                await self.world.sleep(0.001)
            return task.result()

        return self.world.run(wait())

    def do(self, step: Any, *arguments: Any, **named: Any) -> None:
        """Something on the host's loop, and what follows from it at once."""

        async def work() -> None:
            step(*arguments, **named)
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


def test_a_throttled_partition_is_asked_for_when_there_is_room(stage: Stage) -> None:
    first, second = stage.partitions
    for partition in stage.partitions:
        partition.state = STATE._replace(isr=(1,))
    first.is_throttled_as_follower = True
    stage.do(stage.fetcher.follow, first)
    stage.do(stage.leader.answer, 0, 0, 3, 10)
    assert stage.throttle.bytes > 0
    stage.throttle.is_full = True
    stage.do(stage.leader.answer, 0, 3, 3, 10)
    assert first.log.next_offset == 6
    requests = stage.leader.requests
    stage.do(stage.leader.answer, 0, 6, 0, 10)  # to the request that leaves it out
    assert stage.leader.requests == requests and not stage.leader.waiting, "it waits"
    assert list(stage.throttle.waiting) == [stage.fetcher]
    stage.do(stage.fetcher.follow, second)
    assert len(stage.leader.waiting) == 1, "others go on"
    stage.throttle.is_full = False
    stage.do(stage.fetcher.on_room)
    stage.do(stage.leader.answer, 1, 0, 0, 0)
    stage.do(stage.leader.answer, 0, 6, 3, 10)
    assert first.log.next_offset == 9


@pytest.mark.parametrize(
    ("isr", "high_watermark"), [((1, 2), 10), ((1,), 3)], ids=["in the set", "has all that is committed"]
)
def test_a_throttled_partition_that_is_in_sync_is_never_left_out(
    stage: Stage, isr: tuple[int, ...], high_watermark: int
) -> None:
    partition = stage.partitions[0]
    partition.state = STATE._replace(isr=isr)
    partition.is_throttled_as_follower = True
    stage.do(stage.fetcher.follow, partition)
    stage.throttle.is_full = True
    stage.do(stage.leader.answer, 0, 0, 3, high_watermark)
    assert not stage.throttle.waiting
    stage.do(stage.leader.answer, 0, 3, 1, high_watermark)
    assert partition.log.next_offset == 4


def test_a_follower_begins_with_the_batch_in_the_middle_of_which_its_leader_does(stage: Stage) -> None:
    """DeleteRecords lets a log begin anywhere, and a batch is sent as a whole."""
    partition, _ = stage.partitions
    stage.do(stage.fetcher.follow, partition)
    stage.do(stage.leader.answer, 0, 0, 0, 0, error=ErrorCode.offset_out_of_range)
    for _ in range(20):  # the first answers may be to requests that were sent before the log began anew
        if stage.leader.waiting and partition.log.next_offset == 2:
            stage.do(stage.leader.answer, 0, 0, 3, 3, log_start_offset=2)
        elif stage.leader.waiting and partition.log.next_offset == 3:
            stage.do(stage.leader.answer, 0, 3, 0, 3, log_start_offset=2)
        stage.run(stage.host.runtime.tasks.sleep(0.1))
    assert (partition.log.log_start_offset, partition.log.next_offset, partition.high_watermark) == (2, 3, 3)


def test_a_leader_that_does_not_say_where_its_log_begins_holds_up_nobody_who_takes_its_place(
    stage: Stage,
) -> None:
    followed, _ = stage.partitions
    stage.leader.is_silent = True
    stage.do(stage.fetcher.follow, followed)
    stage.do(stage.leader.answer, 0, 0, 0, 0, error=ErrorCode.offset_out_of_range)
    assert stage.leader.is_asked
    began_s = stage.host.runtime.clock.monotonic()
    stage.run(asyncio.wait_for(stage.fetcher.forget(followed), 60.0))
    assert stage.host.runtime.clock.monotonic() - began_s < 0.1


def test_a_partition_that_cannot_be_appended_to_for_any_reason_does_not_end_the_fetches_of_the_others(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = stage.partitions
    append = Log.append_fetched

    def append_fetched(log: Log, *arguments: Any) -> Any:
        if log is first.log:
            raise RuntimeError("a bug")
        return append(log, *arguments)

    monkeypatch.setattr(Log, "append_fetched", append_fetched)
    stage.do(stage.fetcher.follow, first)
    stage.do(stage.leader.answer, 0, 0, 3, 0)
    stage.do(stage.fetcher.follow, second)
    stage.do(stage.leader.answer, 1, 0, 0, 0)
    stage.do(stage.leader.answer, 1, 0, 3, 0)
    assert (first.log.next_offset, second.log.next_offset) == (0, 3)
