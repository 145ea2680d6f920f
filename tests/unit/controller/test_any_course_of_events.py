"""Whatever happens to brokers, controller and store: nothing that was acknowledged is led away from.

A model beside the controller knows which replicas have everything that was acknowledged: an acknowledged record is on
all who are in sync, and acknowledged only with min.insync.replicas of them; who enters the set has caught up; who has a
power cut loses all. While one such replica is in sync or eligible, only such a replica leads, unless an unclean
election was asked for.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.config.broker import BrokerConfig
from moldau.controller.alter_partition import InSync, Proposal
from moldau.controller.brokers import NO_EPOCH, Registration
from moldau.controller.configs import Alteration, Alterations
from moldau.controller.controller import Controller
from moldau.controller.leaders import Election
from moldau.controller.loading import load_image
from moldau.controller.persistence import PersistentImage
from moldau.controller.reassignments import Reassignment
from moldau.controller.topics import NewTopic, TopicReference
from moldau.metadata.image import ClusterImage, image_from, snapshot_of
from moldau.metadata.records import NO_LEADER, Delta, PartitionState, ResourceType
from moldau.sim.random import SimRandom
from moldau.store.memory import Tree

from .stores import TestTasks, TroubledStore

BROKERS = (1, 2, 3, 4, 5)
STEPS = 150
PARTITIONS = 4


class Life(NamedTuple):
    """A broker's process: the machine's boot, and the epoch that it has registered with."""

    boot: str
    epoch: int


class Course:
    """One course of events, by its seed."""

    def __init__(self, seed: int) -> None:
        self.random = SimRandom(seed)
        self.config = BrokerConfig.parse({"min.insync.replicas": "2"})
        self.tree = Tree()
        self.store = TroubledStore(self.tree)
        self.controller: Controller
        self.follower: ClusterImage
        self.lives: dict[int, Life] = {}
        self.has_all: dict[tuple[UUID, int], set[int]] = {}
        self.leaders: dict[tuple[UUID, int, int], int] = {}
        self.seen: dict[tuple[UUID, int], PartitionState] = {}
        self.unclean: set[tuple[UUID, int]] = set()
        self.counts: dict[str, int] = {}
        self.choices = 0  # elections in which one that serves lacked something

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    def one_of(self, *items: int) -> int:
        return items[self.random.randrange(len(items))]

    async def run(self) -> None:
        await self.replace_controller(is_warm=False)
        for broker_id in BROKERS[:3]:
            await self.join(broker_id)
        await self.controller.create_topics([NewTopic("a", PARTITIONS, 3)])
        self.check()
        for _ in range(STEPS):
            await self.step()
            self.check()
        stored = await load_image(self.store)
        assert stored.position == self.image.position
        assert stored.topics == self.image.topics
        assert stored.registered == self.image.registered
        assert snapshot_of(self.follower) == snapshot_of(self.image)

    async def step(self) -> None:
        events = (
            (25, self.acknowledge),
            (20, self.propose),
            (10, self.lose),
            (15, self.come_back),
            (5, self.shut_down),
            (4, self.fail_disk),
            (5, self.elect),
            (5, self.reassign),
            (3, self.configure),
            (3, self.change_topics),
            (4, self.replace),
            (3, self.tick),
        )
        drawn = self.random.randrange(sum(weight for weight, _ in events))
        if self.chance(0.1):
            troubles = ("full", "late", "lost")
            self.store.troubles = [troubles[self.random.randrange(3)]]
        for weight, event in events:
            drawn -= weight
            if drawn < 0:
                name = event.__name__
                self.counts[name] = self.counts.get(name, 0) + 1
                try:
                    await event()
                except KafkaError as error:
                    assert error.code in (
                        ErrorCode.kafka_storage_error,
                        ErrorCode.stale_broker_epoch,
                        ErrorCode.broker_id_not_registered,
                    )
                break
        self.store.troubles = []

    async def replace_controller(self, *, is_warm: bool) -> None:
        warm = image_from(snapshot_of(self.follower)) if is_warm else None
        state = await PersistentImage.take_over(self.store, self.random, 1, warm=warm)
        if not is_warm:
            self.follower = image_from(snapshot_of(state.image))
        else:
            for delta in state.begun:
                self.follower.apply_delta(delta)
        self.controller = Controller(state, self.random, self, TestTasks(), on_delta=self.on_delta)  # type: ignore[arg-type]
        await self.controller.elect_leaderless()

    def on_delta(self, delta: Delta) -> None:
        self.follower.apply_delta(delta)
        self.check()

    async def replace(self) -> None:
        self.store.troubles = []
        await self.replace_controller(is_warm=self.chance(0.5))

    async def join(self, broker_id: int, end: str = "clean") -> None:
        """One life of a broker ends in some way, and another begins, which may not get as far as to register."""
        life = self.lives.get(broker_id, Life("boot", NO_EPOCH))
        mark = life.epoch if end == "clean" else NO_EPOCH
        boot = life.boot
        if end == "power cut":
            boot = self.random.uuid().hex
            for held in self.has_all.values():
                held.discard(broker_id)
        self.lives[broker_id] = Life(boot, NO_EPOCH)
        registration = Registration(broker_id, self.random.uuid(), {}, boot_id=boot, previous_epoch=mark)
        if self.controller._live:
            self.controller._live[broker_id] = registration.incarnation
        epoch = await self.controller.register_broker(registration)
        self.lives[broker_id] = Life(boot, epoch)
        await self.controller.heartbeat(broker_id, epoch, self.controller.position)

    def serves(self, broker_id: int) -> bool:
        """Whether the process that runs is the one that the controller knows, and lets serve."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and self.lives[broker_id].epoch == broker.epoch

    def partition(self) -> tuple[UUID, int, PartitionState] | None:
        topics = list(self.image.topics.values())
        if not topics:
            return None
        topic = topics[self.random.randrange(len(topics))]
        index = self.random.randrange(len(topic.partitions))
        return topic.topic_id, index, topic.partitions[index]

    def min_isr(self, topic_id: UUID) -> int:
        return int(self.image.topic_by_id[topic_id].configs.get("min.insync.replicas", "2"))

    async def acknowledge(self) -> None:
        """A record is acknowledged: all who are in sync have it, and nobody else."""
        found = self.partition()
        if found is None:
            return
        topic_id, index, state = found
        least = min(self.min_isr(topic_id), len(state.replicas))
        if len(state.isr) >= least and all(map(self.serves, state.isr)):
            self.has_all[topic_id, index] = set(state.isr)

    async def propose(self) -> None:
        """The leader proposes another set; who enters it has all that the leader has."""
        found = self.partition()
        if found is None or not self.serves(found[2].leader):
            return
        topic_id, index, state = found
        others = [replica for replica in state.replicas if replica != state.leader and self.chance(0.7)]
        # Their fetches carry the epochs that they have registered with.
        known = [
            InSync(replica, self.lives[replica].epoch)
            for replica in (state.leader, *others)
            if replica in self.lives
        ]
        known = [member for member in known if member.broker_epoch != NO_EPOCH]
        proposal = Proposal(topic_id, index, state.leader_epoch, state.partition_epoch, known)
        held = self.has_all[topic_id, index]
        before = set(held)
        if state.leader in held or not held:
            held.add(state.leader)
            held |= {member.broker_id for member in known}
        self.controller.applied(state.leader, self.controller.position)
        try:
            (altered,) = await self.controller.alter_partition(
                state.leader, self.image.registered[state.leader].epoch, [proposal]
            )
        except KafkaError:
            held &= before
            raise
        if altered.error not in (ErrorCode.none, ErrorCode.new_leader_elected):
            assert altered.error is ErrorCode.ineligible_replica
            held &= before

    async def lose(self) -> None:
        gone = [broker_id for broker_id in BROKERS if broker_id in self.image.brokers and self.chance(0.4)]
        registered = self.image.registered
        await self.controller.brokers_live(
            {broker.id: broker.incarnation for broker in registered.values() if broker.id not in gone}
        )

    async def come_back(self) -> None:
        broker_id = self.one_of(*BROKERS)
        if broker_id not in self.image.brokers or self.chance(0.2):
            ends = ("clean", "killed", "power cut")
            await self.join(broker_id, ends[self.random.randrange(3)])

    async def shut_down(self) -> None:
        broker_id = self.one_of(*BROKERS)
        if broker_id in self.image.brokers:
            epoch = self.image.registered[broker_id].epoch
            await self.controller.heartbeat(broker_id, epoch, self.controller.position, wants_shut_down=True)

    async def fail_disk(self) -> None:
        broker_id = self.one_of(*BROKERS)
        broker = self.image.brokers.get(broker_id)
        if broker is not None and self.image.topics:
            name = next(iter(self.image.topics))
            places = [TopicPartition(name, 0)]
            offline, online = (places, []) if self.chance(0.5) else ([], places)
            await self.controller.report_replicas(broker_id, broker.epoch, offline=offline, online=online)

    async def elect(self) -> None:
        if self.chance(0.3):
            self.unclean |= {key for key, state in self.states().items() if state.leader == NO_LEADER}
            await self.controller.elect_leaders(Election.UNCLEAN, None)
        else:
            await self.controller.elect_leaders(Election.PREFERRED, None)

    async def reassign(self) -> None:
        found = self.partition()
        if found is None:
            return
        place = TopicPartition(self.image.topic_by_id[found[0]].name, found[1])
        start, count = self.random.randrange(5), 1 + self.random.randrange(3)
        replicas = [BROKERS[(start + step) % 5] for step in range(count)]
        await self.controller.alter_reassignments(
            [Reassignment(place, None if self.chance(0.3) else replicas)]
        )

    async def configure(self) -> None:
        if "a" in self.image.topics:
            value = str(1 + self.random.randrange(3))
            change = Alterations(ResourceType.TOPIC, "a", [Alteration("min.insync.replicas", value)])
            await self.controller.alter_configs([change])

    async def change_topics(self) -> None:
        name = f"t{self.random.randrange(3)}"
        if name in self.image.topics:
            await self.controller.delete_topics([TopicReference(name)])
        else:
            await self.controller.create_topics([NewTopic(name, 2, min(2, len(self.image.brokers) or 1))])

    async def tick(self) -> None:
        await self.controller.rebalance()
        await self.controller.elect_leaderless()

    def states(self) -> dict[tuple[UUID, int], PartitionState]:
        return {
            (topic.topic_id, index): state
            for topic in self.image.topics.values()
            for index, state in enumerate(topic.partitions)
        }

    def check(self) -> None:
        for key, state in self.states().items():
            before = self.seen.get(key)
            if before == state:
                continue
            self.seen[key] = state
            held = self.has_all.setdefault(key, set(state.isr))
            self.check_sound(key, before, state)
            is_new = before is not None and state.leader not in (NO_LEADER, *before.isr, *before.elr)
            if state.recovering and is_new:
                assert key in self.unclean, "an unclean election that nobody asked for"
                held.clear()
            if before is not None and not held & {*before.isr, *before.elr}:
                held.clear()  # all who could be known to have everything have lost something
            if held and self.serves(state.leader):
                has_choice = not held >= {replica for replica in state.replicas if self.serves(replica)}
                self.choices += has_choice and (before is None or before.leader != state.leader)
                assert state.leader in held, f"{state} where only {held} have everything"
            if not held and self.serves(state.leader):
                held.add(state.leader)

    def check_sound(
        self, key: tuple[UUID, int], before: PartitionState | None, state: PartitionState
    ) -> None:
        assert len(set(state.replicas)) == len(state.replicas) and state.replicas
        assert not set(state.isr) & set(state.elr)
        assert set(state.isr) | set(state.elr) <= set(state.replicas)
        if state.leader != NO_LEADER:
            assert state.leader in state.isr
            leader = self.leaders.setdefault((*key, state.leader_epoch), state.leader)
            assert leader == state.leader, "two leaders in one epoch"
        if before is not None:
            assert state.partition_epoch == before.partition_epoch + 1
            assert 0 <= state.leader_epoch - before.leader_epoch <= 1


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_only_those_lead_who_have_what_was_acknowledged(seed: int) -> None:
    course = Course(seed)
    asyncio.run(course.run())


def test_the_courses_do_what_they_are_made_for() -> None:
    counts: dict[str, int] = {}
    terms = choices = 0
    for seed in range(5):
        course = Course(seed)
        asyncio.run(course.run())
        terms += len(course.leaders)
        choices += course.choices
        for name, count in course.counts.items():
            counts[name] = counts.get(name, 0) + count
    assert len(counts) == 12 and min(counts.values()) >= 5, counts
    assert terms > 100 and choices > 10, (terms, choices)
