"""The one door to a partition: what is appended is answered when it is as safe as was asked for. P1, R3, R5."""

from __future__ import annotations

import uuid
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.config.topic import topic_config
from moldau.log.host import LogHost, Owner
from moldau.log.manager import LogManager
from moldau.metadata.image import PartitionState
from moldau.records.record import Record, build_batch
from moldau.replication.fetch_session import WantedPartition
from moldau.replication.follower_session import FollowerSession
from moldau.replication.long_polls import LongPoll
from moldau.replication.partition import NO_SIZES, NO_WRITES, Partition
from moldau.replication.replication import Replication
from moldau.sim.drive import DiskFaults
from moldau.sim.world import World

T = TypeVar("T")
PLACE = TopicPartition("orders", 0)
ALONE = PartitionState(leader=1, leader_epoch=3, replicas=(1,), isr=(1,), partition_epoch=1)
THREE = PartitionState(leader=1, leader_epoch=3, replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=1)
FAR_S = 1e9


class Stage:
    """A partition on a simulated disk."""

    def __init__(self, state: PartitionState, **configs: str) -> None:
        self.world = World(1)
        self.host = self.world.host("disk")
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.config = topic_config(BrokerConfig.parse({}), settings)
        self.replication = Replication(1, self.host.runtime)
        self.wishes: list[Partition] = []
        self.replication.on_wish = self.wishes.append
        self.answers: list[ErrorCode] = []
        self.partition = self.run(self._open(state))

    async def _open(self, state: PartitionState) -> Partition:
        manager = LogManager(
            self.host.runtime,
            ["/data"],
            Owner("c", 1, 1),
            LogHost(
                config_of=lambda _topic: self.config,
                on_failure=lambda _log, _error: self.partition.take_offline(),
            ),
        )
        await manager.open()
        return Partition(
            self.replication,
            uuid.UUID(int=7),
            state,
            manager.create(PLACE, uuid.UUID(int=7), self.config),
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        task = self.host.runtime.tasks.spawn(work, name="test")

        async def wait() -> T:
            while not task.done():
                await self.world.sleep(0.001)
            return task.result()

        return self.world.run(wait())

    def append(self, *, acks_all: bool = True, timeout_s: float = FAR_S, sequence: int = -1) -> None:
        """Append a record on the host's loop; how it is acknowledged comes in `answers`."""

        async def work() -> None:
            producer = {"producer_id": 9, "producer_epoch": 0} if sequence >= 0 else {}
            batch = build_batch([Record(0, 1, b"k", b"v")], base_sequence=sequence, **producer)
            buffer = memoryview(bytearray(batch))
            appended = self.partition.append(buffer, 0, len(buffer), 1)
            assert not appended.error
            deadline_s = self.host.runtime.clock.monotonic() + timeout_s
            self.partition.when_acknowledged(appended, deadline_s, self.answers.append, acks_all=acks_all)

        self.run(work())

    def fetch(self, replica: int, offset: int) -> None:
        self.partition.follower_fetched(replica, 1, offset, 0)

    def sleep(self, seconds: float) -> None:
        self.world.run(self.world.sleep(seconds))

    def poll(self) -> LongPoll:
        watchers = self.partition.watchers
        poll = LongPoll(lambda _: None, FAR_S, 1, [watchers])
        watchers[poll] = None
        return poll

    def follower_poll(self) -> LongPoll:
        session = FollowerSession(2, self.replication.long_polls, self.replication.leader_throttle, 0.0)
        session.watch(self.partition, WantedPartition("orders", 0))
        session.poll = LongPoll(lambda _: None, FAR_S, 1, ())
        return session.poll


@pytest.fixture
def three() -> Iterator[Stage]:
    stage = Stage(THREE)
    yield stage
    stage.world.close()


def test_acks_all_is_answered_when_the_whole_in_sync_set_has_the_record(three: Stage) -> None:
    three.append()
    three.fetch(2, 1)
    assert three.answers == []
    three.fetch(3, 1)
    assert three.answers == [ErrorCode.none]


def test_partitions_that_nobody_writes_to_share_their_empty_queues(three: Stage) -> None:
    other = Stage(THREE)
    three.append()
    assert three.partition._writes and three.partition._uncommitted
    assert other.partition._writes is NO_WRITES and other.partition._uncommitted is NO_SIZES
    assert not NO_WRITES and not NO_SIZES
    other.world.close()


def test_acks_1_is_answered_at_once_and_readers_wait_all_the_same(three: Stage) -> None:
    reader, follower = three.poll(), three.follower_poll()
    three.append(acks_all=False)
    assert three.answers == [ErrorCode.none]
    assert follower.is_woken and not reader.is_woken
    three.fetch(2, 1)
    three.fetch(3, 1)
    assert reader.is_woken and three.partition.high_watermark == 1


def test_a_write_that_is_not_replicated_in_time_is_timed_out(three: Stage) -> None:
    three.append(timeout_s=0.5)
    three.sleep(1.0)
    assert three.answers == [ErrorCode.request_timed_out]
    assert three.replication.writes_waiting == 0


def test_a_leader_that_is_replaced_acknowledges_nothing_that_waits(three: Stage) -> None:
    three.append()
    three.partition.change(THREE._replace(leader=2, leader_epoch=4, partition_epoch=2))
    assert three.answers == [ErrorCode.not_leader_or_follower]
    assert three.partition.refusal is ErrorCode.not_leader_or_follower


def test_a_leader_in_a_new_epoch_acknowledges_nothing_of_the_old_one(three: Stage) -> None:
    three.append()
    three.partition.change(THREE._replace(leader_epoch=4, partition_epoch=2))
    assert three.answers == [ErrorCode.not_leader_or_follower]


def test_what_waits_is_told_when_too_few_are_left_in_sync() -> None:
    stage = Stage(THREE, min_insync_replicas="2")
    stage.append()
    stage.partition.change(THREE._replace(isr=(1,), partition_epoch=2))
    assert stage.answers == [ErrorCode.not_enough_replicas_after_append]
    assert not stage.partition.has_enough_in_sync() and not stage.partition.is_open


def test_a_retry_waits_for_its_batch_to_be_committed_and_wakes_nobody(three: Stage) -> None:
    """Promise 3."""
    three.append(sequence=0)
    reader, follower = three.poll(), three.follower_poll()
    three.append(sequence=0)
    assert three.partition.log.next_offset == 1
    assert three.answers == [] and not follower.is_woken and not reader.is_woken
    three.fetch(2, 1)
    three.fetch(3, 1)
    assert three.answers == [ErrorCode.none] * 2


def test_a_retry_of_a_committed_batch_wakes_nobody() -> None:
    stage = Stage(ALONE)
    stage.append(sequence=0)
    reader = stage.poll()
    stage.append(sequence=0)
    assert stage.answers == [ErrorCode.none] * 2 and not reader.is_woken


def test_a_sync_that_ends_after_the_leader_was_replaced_commits_nothing() -> None:
    stage = Stage(ALONE, flush_messages="1")
    stage.append()
    assert stage.answers == []
    stage.partition.change(ALONE._replace(leader=2, leader_epoch=4, partition_epoch=2))
    stage.sleep(1.0)
    assert stage.partition.high_watermark == 0
    assert ErrorCode.none not in stage.answers


def test_what_waits_for_the_disk_is_not_visible_in_the_next_epoch_either() -> None:
    stage = Stage(ALONE, flush_messages="1")
    stage.append()
    stage.partition.change(ALONE._replace(leader_epoch=4, partition_epoch=2))
    assert stage.partition.high_watermark == 0
    stage.sleep(1.0)
    assert stage.partition.high_watermark == 1


def test_what_an_earlier_epoch_waits_for_on_the_disk_does_not_hold_up_the_next_one_for_ever() -> None:
    stage = Stage(ALONE, flush_messages="2")
    stage.append()
    stage.append()
    stage.partition.change(ALONE._replace(leader_epoch=4, partition_epoch=2))
    while stage.partition.log._flusher._unflushed:  # until the sync has begun, which takes longer than this
        stage.sleep(0.0002)
    stage.append()
    assert len(stage.answers) < 3
    stage.sleep(1.0)
    assert stage.answers == [ErrorCode.none, ErrorCode.none, ErrorCode.none]
    assert stage.partition.high_watermark == 3


def test_nothing_is_visible_before_an_earlier_record_is_flushed() -> None:
    stage = Stage(ALONE, flush_messages="2")
    stage.append(acks_all=False)
    assert stage.partition.high_watermark == 1  # not due yet
    stage.append(acks_all=False)
    stage.append(acks_all=False)
    assert stage.partition.high_watermark == 1
    stage.sleep(1.0)
    assert stage.partition.high_watermark == 3


def test_a_disk_that_fails_ends_what_waits() -> None:
    stage = Stage(ALONE, flush_messages="1")
    stage.host.drive.faults = DiskFaults(sync_error_rate=1.0)
    stage.append()
    stage.sleep(1.0)
    assert stage.answers == [ErrorCode.kafka_storage_error]
    assert stage.partition.is_offline and stage.partition.high_watermark == 0


def test_a_follower_that_catches_up_is_proposed_to_the_controller() -> None:
    stage = Stage(THREE._replace(isr=(1, 2)))
    stage.fetch(3, 0)
    assert stage.wishes == [stage.partition]
    leader = stage.partition.leader
    assert leader is not None
    leader.take_wish()
    stage.partition.in_sync_answered(leader, ErrorCode.none, THREE._replace(partition_epoch=2))
    assert stage.partition.state.isr == (1, 2, 3)


def test_who_leaves_the_in_sync_set_counts_until_the_controllers_word_comes_in_its_order() -> None:
    """Between the answer and what the leader knows, `min.insync.replicas` may have been raised: then the one that left
    is eligible, and must not miss anything."""
    stage = Stage(THREE, min_insync_replicas="2")
    stage.append()
    stage.fetch(2, 1)
    stage.sleep(60.0)
    stage.fetch(2, 1)
    stage.partition.tick()
    leader = stage.partition.leader
    assert leader is not None and stage.wishes == [stage.partition]
    assert [replica for replica, _ in leader.take_wish().isr] == [1, 2]
    smaller = THREE._replace(isr=(1, 2), partition_epoch=2)
    stage.partition.in_sync_answered(leader, ErrorCode.none, smaller)
    assert stage.partition.high_watermark == 0
    stage.partition.change(smaller)
    assert stage.partition.high_watermark == 1
    assert stage.answers == [ErrorCode.none]


def test_a_wish_of_an_earlier_leader_epoch_changes_nothing() -> None:
    stage = Stage(THREE._replace(isr=(1, 2)))
    stage.fetch(3, 0)
    leader = stage.partition.leader
    assert leader is not None
    leader.take_wish()
    later = THREE._replace(isr=(1, 2), leader_epoch=4, partition_epoch=3)
    stage.partition.change(later)
    stage.partition.in_sync_answered(leader, ErrorCode.none, THREE._replace(partition_epoch=2))
    assert stage.partition.state == later


def test_a_fetch_of_an_earlier_life_of_a_follower_says_nothing_of_its_log() -> None:
    """It was on the way for long: since then the follower may have lost what it had (KIP-903)."""
    stage = Stage(THREE)
    partition = stage.partition
    assert partition.is_followed_by(2, 10)
    partition.follower_fetched(2, 20, 0, 0)
    assert partition.is_followed_by(2, 20) and partition.is_followed_by(2, 30)
    assert not partition.is_followed_by(2, 10)
    assert partition.is_followed_by(2, -1), "a broker that does not know of lives says none"
    assert not partition.is_followed_by(4, 20)


def test_the_high_watermark_goes_on_from_where_it_was_checkpointed() -> None:
    stage = Stage(THREE)
    for _ in range(5):
        stage.append(acks_all=False)
    reopened = Partition(stage.replication, uuid.UUID(int=7), THREE, stage.partition.log, 3)
    assert reopened.high_watermark == 3
    beyond = Partition(stage.replication, uuid.UUID(int=7), THREE, stage.partition.log, 30)
    assert beyond.high_watermark == 5


def test_a_follower_sees_as_far_as_its_leader_says_and_its_log_goes() -> None:
    stage = Stage(THREE._replace(leader=2))
    stage.partition.follow(10)
    assert stage.partition.high_watermark == 0
