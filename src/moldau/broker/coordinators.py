"""The coordinators of a broker: which of them it is, where their topics come from, and what they hear of the cluster.

The broker coordinates what it leads: it takes up a partition of an internal topic when it comes to lead it, and gives
it up when it does not any more. An internal topic is made when a client first asks for its coordinator.

What decides for groups and transactions is imported with the first partition that is led (`loading`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from moldau.broker.identity import decide_identity
from moldau.broker.interface import CoordinatorHost, Found
from moldau.broker.markers import MarkerWriter
from moldau.broker.shortage import REPLICATION_FACTORS, shortage_of
from moldau.broker.verification import verifications
from moldau.controller.topics import NewTopic
from moldau.coordinator.group.consumer.messages import Resolved
from moldau.coordinator.group.consumer.resolver import Resolver
from moldau.coordinator.group.consumer.settings import ConsumerSettings, Times, times_of
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.journal import PartitionJournal
from moldau.coordinator.runtime import CoordinatorRuntime, partition_for
from moldau.coordinator.shard import Shard
from moldau.coordinator.transaction.ending import Ending
from moldau.coordinator.transaction.messages import Markers, TimedOut
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.metadata.records import NO_LEADER, ConfigResource, ResourceType
from moldau.records.compression import Codec
from moldau.replication.partition import Partition

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard
    from moldau.coordinator.transaction.shard import TransactionShard

log = logging.getLogger(__name__)

TRANSACTION_WRITE_TIMEOUT_MS = 5000
TOPIC_KNOWN_TIMEOUT_S = 1.0
TOPIC_KNOWN_PAUSE_S = 0.005
OTHERS_JOIN_S = 10.0
"""How long after it begins to serve clients a broker takes a lack of brokers for a cluster that is just starting."""


class Coordinators:
    """`broker` is the node: its image, its controller, its partitions' readers."""

    def __init__(self, broker: CoordinatorHost) -> None:
        self._broker = broker
        self._markers = MarkerWriter(broker)
        self.verifications = verifications(broker.tasks, broker.peers)
        """Of transactions that are coordinated elsewhere."""
        self.groups = self._group_coordinator()
        self.transactions = self._transaction_coordinator()
        self._by_topic: dict[str, CoordinatorRuntime[Any]] = {
            CONSUMER_OFFSETS: self.groups,
            TRANSACTION_STATE: self.transactions,
        }
        self._epochs: dict[tuple[str, int], int] = {}
        self._complaints: dict[str, str] = {}  # why a topic could not be made
        self._serves_since_s: float | None = None

    def _group_coordinator(self) -> CoordinatorRuntime[GroupShard]:
        broker = self._broker
        settings = GroupSettings.of(broker.config)
        consumer = ConsumerSettings.of(broker.config, self._times_of)
        random = broker.runtime.random.fork("group members")
        resolver = Resolver(broker.runtime.tasks, broker.image, self._tell_resolved)

        def make(_index: int) -> GroupShard:
            from moldau.coordinator.group.shard import GroupShard

            return GroupShard(settings, lambda: str(random.uuid()), broker.image, consumer)

        return self._runtime(
            CONSUMER_OFFSETS,
            make,
            broker.config["offsets.commit.timeout.ms"],
            lambda _index, effect: resolver.begin(effect),
        )

    def _tell_resolved(self, resolved: Resolved) -> None:
        self.groups.write(
            resolved.group_id,
            lambda shard, moment, _reply: shard.on_resolved(resolved, moment),
            lambda error: error,
        )

    def _times_of(self, group_id: str) -> Times:
        own = self._broker.image.configs(ConfigResource(ResourceType.GROUP, group_id))
        return times_of(self._broker.config, own)

    def _transaction_coordinator(self) -> CoordinatorRuntime[TransactionShard]:
        broker = self._broker
        settings = TransactionSettings.of(broker.config)
        tasks = broker.runtime.tasks
        ending = Ending(tasks, self._write_markers, self._complete, self._note_markers, self._leads)

        def perform(_index: int, effect: Markers | TimedOut) -> None:
            if isinstance(effect, Markers):
                ending.begin(effect)
            else:
                tasks.spawn(self._time_out(effect), name=f"time out {effect.transactional_id}")

        def make(index: int) -> TransactionShard:
            from moldau.coordinator.transaction.shard import TransactionShard

            return TransactionShard(settings, broker.partition(TRANSACTION_STATE, index).leader_epoch)

        return self._runtime(
            TRANSACTION_STATE,
            make,
            TRANSACTION_WRITE_TIMEOUT_MS,
            perform,
        )

    def _runtime(
        self,
        topic: str,
        make_shard: Any,
        write_timeout_ms: int,
        perform: Callable[[int, Any], object] = lambda _index, _effect: None,
    ) -> CoordinatorRuntime[Any]:
        return CoordinatorRuntime[Shard](
            topic,
            make_shard,
            self._broker.runtime.tasks,
            self._broker.runtime.clock,
            partition_count=lambda: self._partition_count(topic),
            no_topic=lambda: self.error_without(topic),
            write_timeout_ms=write_timeout_ms,
            perform=perform,
        )

    # ---- the ends of transactions ---------------------------------------------------------------------------

    async def _write_markers(self, markers: Markers) -> dict[TopicPartition, ErrorCode]:
        return await self._markers.write(markers)

    async def _complete(self, markers: Markers) -> ErrorCode:
        error: ErrorCode = await self.transactions.write(
            markers.transactional_id,
            lambda shard, moment, reply: shard.complete(markers, reply, moment),
            lambda error: error,
        )
        return error

    def _note_markers(self, markers: Markers, unmarked: tuple[TopicPartition, ...]) -> None:
        self.transactions.write(
            markers.transactional_id,
            lambda shard, _moment, _reply: shard.note_markers(markers, unmarked),
            lambda error: error,
        )

    async def _time_out(self, timed_out: TimedOut) -> None:
        """Whatever comes between: the coordinator looks again for transactions whose time is up."""
        await decide_identity(
            self._broker,
            timed_out.transactional_id,
            lambda shard, new_id, reply, moment: shard.time_out(timed_out, new_id, reply, moment),
        )

    def _leads(self, markers: Markers) -> bool:
        """Whether this broker coordinates the transaction still, in the same epoch."""
        count = self._partition_count(TRANSACTION_STATE)
        index = partition_for(markers.transactional_id, count) if count else NO_LEADER
        return self._epochs.get((TRANSACTION_STATE, index)) == markers.coordinator_epoch

    def on_serving(self) -> None:
        """Clients are served from now on."""
        self._serves_since_s = self._broker.clock.monotonic()

    # ---- what the cluster tells -----------------------------------------------------------------------------

    def on_partition(self, partition: Partition) -> None:
        """A partition was opened, or changed: lead it, go on to lead it, or give it up."""
        place = partition.topic_partition
        runtime = self._by_topic.get(place.topic)
        if runtime is None:
            return
        if partition.refusal:
            self._epochs.pop(place, None)
            runtime.resign(place.partition)
        elif self._epochs.get(place) != partition.leader_epoch:
            self._epochs[place] = partition.leader_epoch
            codec = Codec.NONE
            if runtime is self.groups:
                codec = Codec(self._broker.config["offsets.topic.compression.codec"])
            runtime.lead(place.partition, PartitionJournal(partition, codec=codec))

    def on_topic_changed(self, name: str) -> None:
        """A topic was created, or has more partitions: the groups that read it assign anew."""
        self.groups.note_all(lambda shard, _moment: shard.on_topics_changed([name]))

    def on_topic_deleted(self, name: str) -> None:
        """The coordinators of an internal topic have heard of it with its partitions, and those of one that was made
        anew may be at work already."""
        if name not in self._by_topic:
            self.groups.note_all(
                lambda shard, _moment: shard.on_topics_deleted([name]),
                takes_long=lambda shard: shard.deletion_takes_long(name),
            )

    def on_brokers_changed(self) -> None:
        """Brokers have come, gone, or were fenced."""
        alive = self._broker.image.brokers
        for outbox in (self._markers.outbox, self.verifications):
            outbox.on_brokers_changed(lambda broker_id: broker_id in alive)

    def close(self) -> None:
        self._epochs.clear()
        self._markers.outbox.close()
        self.verifications.close()
        for runtime in self._by_topic.values():
            runtime.close()

    # ---- who coordinates ------------------------------------------------------------------------------------

    async def find(self, topic: str, key: str) -> Found:
        """The broker that coordinates a key; its topic is made where it is not there yet.

        A topic in the making is waited for: that is over sooner than a client that was refused comes back.
        """
        leader = self._coordinator_of(topic, key)
        if leader == NO_LEADER:
            await self._create(topic)
            leader = self._coordinator_of(topic, key)
        return self._none_found(topic) if leader == NO_LEADER else Found(ErrorCode.none, leader)

    def _none_found(self, topic: str) -> Found:
        """While a cluster starts its clients ask again, as they do for ever after COORDINATOR_NOT_AVAILABLE and without
        a word. Those that need a topic which cannot be made are then sent here, to hear the reason from
        `error_without`. FindCoordinator itself does not fail: who reads without a group asks for one, too.
        """
        shortage = shortage_of(topic, self._broker.config, self._broker.image)
        if shortage is None:
            return Found(ErrorCode.coordinator_not_available, NO_LEADER)
        if self._may_be_starting:
            return Found(ErrorCode.coordinator_not_available, NO_LEADER, shortage.sentences)
        return Found(ErrorCode.none, self._broker.node_id)

    def error_without(self, topic: str) -> ErrorCode:
        """What a client gets that takes this broker for its coordinator, where there is no such topic: an error that it
        shows where the brokers are too few to make it, and else one by which it looks for another coordinator.
        """
        is_short = shortage_of(topic, self._broker.config, self._broker.image) is not None
        if is_short and not self._may_be_starting:
            return ErrorCode.invalid_replication_factor
        return ErrorCode.not_coordinator

    def reason_of(self, error: ErrorCode, topic: str) -> str | None:
        """For the answers that have a text."""
        shortage = shortage_of(topic, self._broker.config, self._broker.image)
        return shortage.sentences if shortage and error is ErrorCode.invalid_replication_factor else None

    @property
    def _may_be_starting(self) -> bool:
        since_s = self._serves_since_s
        return since_s is None or self._broker.clock.monotonic() - since_s < OTHERS_JOIN_S

    def leader_of(self, topic: str, key: str) -> int:
        """Who leads the key's partition of an internal topic, by this broker's image."""
        found = self._broker.image.topics.get(topic)
        if found is None:
            return NO_LEADER
        leader: int = found.partitions[partition_for(key, len(found.partitions))].leader
        return leader

    def _coordinator_of(self, topic: str, key: str) -> int:
        """Who leads the key's partition; this broker counts when it has taken the partition up."""
        leader = self.leader_of(topic, key)
        is_elsewhere = leader != self._broker.node_id
        serves = leader in self._broker.image.brokers and (
            is_elsewhere or self._by_topic[topic].leads_key(key)
        )
        return leader if serves else NO_LEADER

    async def partition_of(self, topic: str, key: str) -> int | None:
        """The partition that a key belongs to, whoever leads it; None where its topic cannot be made."""
        if self._partition_count(topic) == 0:
            await self._create(topic)
        count = self._partition_count(topic)
        return partition_for(key, count) if count else None

    def _partition_count(self, topic: str) -> int:
        found = self._broker.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    async def _create(self, name: str) -> None:
        """One change of the cluster waits for the other: whoever comes second finds the topic made, and led."""
        make = self._offsets_topic if name == CONSUMER_OFFSETS else self._transaction_topic
        topic = make()
        try:
            ((error, message),) = await self._broker.channel.create_topics([topic])
        except KafkaError as failure:
            error, message = failure.code, failure.message
        await self._until_known(name, error)
        reason = message or error.name
        if error in (ErrorCode.none, ErrorCode.topic_already_exists):
            self._complaints.pop(name, None)
        elif self._complaints.get(name) != reason:  # said once: clients ask again several times a second
            self._complaints[name] = reason
            log.error("cannot create %s, so its coordinator is not available: %s", name, reason)

    async def _until_known(self, name: str, error: ErrorCode) -> None:
        """The controller says that a topic is there; this broker hears of it at the same time, or a little later."""
        if error not in (ErrorCode.none, ErrorCode.topic_already_exists):
            return
        deadline_s = self._broker.clock.monotonic() + TOPIC_KNOWN_TIMEOUT_S
        while not self._partition_count(name) and self._broker.clock.monotonic() < deadline_s:
            await self._broker.tasks.sleep(TOPIC_KNOWN_PAUSE_S)

    def _offsets_topic(self) -> NewTopic:
        config = self._broker.config
        return NewTopic(
            CONSUMER_OFFSETS,
            config["offsets.topic.num.partitions"],
            config[REPLICATION_FACTORS[CONSUMER_OFFSETS]],
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config["offsets.topic.segment.bytes"])),
            ),
        )

    def _transaction_topic(self) -> NewTopic:
        config = self._broker.config
        return NewTopic(
            TRANSACTION_STATE,
            config["transaction.state.log.num.partitions"],
            config[REPLICATION_FACTORS[TRANSACTION_STATE]],
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "uncompressed"),
                ("min.insync.replicas", str(config["transaction.state.log.min.isr"])),
                ("segment.bytes", str(config["transaction.state.log.segment.bytes"])),
                ("unclean.leader.election.enable", "false"),
            ),
        )
