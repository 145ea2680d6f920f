"""A partition as a journal: appends become committed, refusals are a coordinator's, replay gives all of it back."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.coordinator.journal import PartitionJournal
from moldau.log.host import LogHost, Owner
from moldau.log.manager import LogManager
from moldau.metadata.image import PartitionState
from moldau.records.compression import Codec
from moldau.replication.long_polls import LongPoll
from moldau.replication.partition import Partition
from moldau.replication.replication import Replication
from moldau.sim.drive import DiskFaults
from moldau.sim.world import SimHost, World

T = TypeVar("T")
PLACE = TopicPartition("__consumer_offsets", 0)
LED = PartitionState(leader=1, leader_epoch=3, replicas=(1,), isr=(1,), partition_epoch=1)


class Stage:
    """A partition on a simulated disk."""

    def __init__(self, world: World, disk: DiskFaults | None = None, **configs: str) -> None:
        self.world = world
        self.host: SimHost = world.host("disk", disk=disk)
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self._config = topic_config(BrokerConfig.parse({}), settings)
        self.partition = self.run(self._open())

    async def _open(self) -> Partition:
        manager = LogManager(
            self.host.runtime, ["/data"], Owner("c", 1, 1), LogHost(lambda _topic: self._config)
        )
        await manager.open()
        log = manager.create(PLACE, uuid.UUID(int=7), self._config)
        return Partition(Replication(1, self.host.runtime), uuid.UUID(int=7), LED, log)

    def journal(self, codec: Codec = Codec.NONE) -> PartitionJournal:
        return PartitionJournal(self.partition, codec=codec)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.host.runtime.tasks.spawn(work, name="test")

        async def wait() -> T:
            while not task.done():
                await self.world.sleep(0.001)
            return task.result()

        return self.world.run(wait())

    def replay(self, journal: PartitionJournal) -> list[tuple[int, bytes | None, bytes | None]]:
        async def read_all() -> list[tuple[int, bytes | None, bytes | None]]:
            found, offset = [], journal.first_offset
            while offset < journal.next_offset:
                entries, offset = await journal.read(offset)
                found += [(entry.offset, entry.key, entry.value) for entry in entries]
            return found

        return self.run(read_all())


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_what_is_appended_is_committed_and_replayed(world: World, codec: Codec) -> None:
    stage = Stage(world, cleanup_policy="compact")
    journal = stage.journal(codec)

    assert journal.append([(b"a", b"1"), (b"b", None)], 5) == 2
    assert journal.append([(b"a", b"2")], 6) == 3
    assert journal.committed_offset == 3
    assert stage.replay(journal) == [(0, b"a", b"1"), (1, b"b", None), (2, b"a", b"2")]


def test_a_flushed_topic_commits_with_the_flush(world: World) -> None:
    stage = Stage(world, flush_messages="1")
    journal = stage.journal()
    told: list[int] = []
    journal.on_committed(lambda: told.append(journal.committed_offset))
    stage.run(_append(journal))

    world.run(world.sleep(0.1))
    assert told == [1]


async def _append(journal: PartitionJournal) -> None:
    journal.append([(b"a", b"1")], 5)
    assert journal.committed_offset == 0


def test_replay_waits_for_cold_pages_without_stopping_the_loop(world: World) -> None:
    stage = Stage(world, DiskFaults(cold_rate=0.5))
    journal = stage.journal()
    for number in range(50):
        journal.append([(b"%d" % number, bytes(4000))], 5)

    assert [offset for offset, _, _ in stage.replay(journal)] == list(range(50))


def test_readers_of_the_topic_are_woken(world: World) -> None:
    stage = Stage(world)
    poll = LongPoll(lambda _: None, 1e9, 1, [stage.partition.watchers])
    stage.partition.watchers[poll] = None
    stage.journal().append([(b"a", b"1")], 5)

    assert poll.is_woken


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (LED._replace(leader=2, leader_epoch=4), ErrorCode.not_coordinator),
        (LED._replace(leader_epoch=4), ErrorCode.not_coordinator),
        (LED._replace(replicas=(1, 2, 3), isr=(1,), partition_epoch=2), ErrorCode.coordinator_not_available),
    ],
    ids=["another leads", "a later epoch of its own", "too few in sync"],
)
def test_a_journal_that_may_not_write_says_so_as_a_coordinator(
    world: World, state: PartitionState, error: ErrorCode
) -> None:
    stage = Stage(world, min_insync_replicas="2")
    journal = stage.journal()
    stage.partition.change(state)

    with pytest.raises(KafkaError) as refused:
        journal.append([(b"a", b"1")], 5)
    assert refused.value.code is error
    assert journal.next_offset == 0


def test_a_failed_disk_is_the_end_of_the_coordinator_here(world: World) -> None:
    stage = Stage(world)
    stage.partition.take_offline()
    with pytest.raises(KafkaError) as refused:
        stage.journal().append([(b"a", b"1")], 5)
    assert refused.value.code is ErrorCode.not_coordinator


def test_a_batch_that_is_too_large_is_refused(world: World) -> None:
    stage = Stage(world, max_message_bytes="1000")
    journal = stage.journal()
    with pytest.raises(KafkaError) as refused:
        journal.append([(b"a", bytes(2000))], 5)

    assert refused.value.code is ErrorCode.unknown_server_error
    assert journal.append([(b"a", bytes(journal.batch_bytes_max - 32))], 5) == 1


def test_what_another_leader_commits_at_the_same_offsets_is_not_committed_here(world: World) -> None:
    """Between the loss of leadership and the news of it a follower may move the high watermark on."""
    stage = Stage(world)
    stage.partition.change(LED._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=2))
    journal = stage.journal()
    journal.append([(b"a", b"1")], 5)
    assert journal.committed_offset == 0

    stage.partition.change(LED._replace(leader=2, leader_epoch=4, replicas=(1, 2), isr=(1, 2)))
    stage.partition.follow(1)
    assert stage.partition.high_watermark == 1
    assert journal.committed_offset == 0
