"""Those who run the cluster: they move replicas, elect leaders, make, fill, grow, change and delete topics, while all
else goes on.

What they ask for may be refused or lost; what they must not do is harm the topics of the others. Of their own ones
there are a few names only, so that a topic comes again under the name of one that is gone: nothing of that one may be
found in it. What is written says for which topic, by its id, it is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.records.record import Record, build_batch
from moldau.sim.client import CREATE_TOPICS, METADATA, PRODUCE, Client, Disconnected
from moldau.sim.routes import METADATA_VERSION, metadata_request

ALTER_REPLICA_LOG_DIRS = 34
DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS = (
    20,
    37,
    43,
    44,
    45,
)
PAUSE_S = (0.2, 1.5)
PREFERRED, UNCLEAN = 0, 1
TOPIC_RESOURCE, SET = 2, 0
TIMEOUT_MS = 1000
PARTITIONS_MAX = 4
OWN = "of-operator-"
NAMES = 2
"""Of its own topics, which begin like that."""
BY_ID_VERSION = 13  # of Produce
ACKS = (-1, 1)


class Admin:
    """`places` are the partitions of which it moves the replicas; its own topics are its own. Those of `strict` want
    more replicas in sync for a while, and of `lossy` anybody may lead when there is nobody else. Where brokers have
    several data folders, it moves logs between them."""

    def __init__(
        self,
        client: Client,
        places: Sequence[TopicPartition],
        *,
        strict: Sequence[str],
        lossy: Sequence[TopicPartition],
        brokers: int,
        replicas: int,
        min_insync: int,
        folders: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._random = client.random
        self._folders = folders
        self._logs_random = client.random.fork("logs")
        self._places = places
        self._brokers = brokers
        self._strict = strict
        self._lossy = lossy
        self._replicas = replicas
        self._min_insync = min_insync
        self._written = 0
        self._topics: dict[str, int] = {}
        """Its own, with the number of their partitions."""

    async def run(self) -> None:
        acts = (
            self._reassign,
            self._reassign,
            self._elect,
            self._elect_anyone,
            self._create,
            self._create,
            self._write,
            self._write,
            self._grow,
            self._delete,
            self._configure,
            self._demand,
        )
        while not self._client.is_stopping:
            await self._client.runtime.tasks.sleep(self._random.between(*PAUSE_S))
            try:
                await acts[self._random.randrange(len(acts))]()
                if len(self._folders) > 1:
                    await self._move_logs()
            except Disconnected:
                continue

    def act_as(self, client: Client) -> None:
        """Go on as another client."""
        self._client = client

    async def end(self) -> None:
        """For a quiet world: what is under way is called off, and some of its own topics go."""
        cancelled = [self._target(place, None) for place in self._places]
        await self._ask(ALTER_REASSIGNMENTS, 0, topics=tuple(cancelled))
        left = self._random.randrange(NAMES + 1)
        while len(self._topics) > left:
            await self._delete()
            await self._client.pause()

    async def _reassign(self) -> None:
        """Some partitions go to other brokers, or what is under way is called off."""
        chosen = [place for place in self._places if self._random.chance(0.4)]
        topics = tuple(self._target(place, self._some_brokers()) for place in chosen)
        if self._random.chance(0.2):
            topics = tuple(self._target(place, None) for place in chosen)
        await self._ask(ALTER_REASSIGNMENTS, 0, topics=topics)
        self._client.count("reassignments asked for", len(chosen))

    def _target(self, place: TopicPartition, replicas: tuple[int, ...] | None) -> SimpleNamespace:
        row = SimpleNamespace(partition_index=place.partition, replicas=replicas)
        return SimpleNamespace(name=place.topic, partitions=(row,))

    def _some_brokers(self) -> tuple[int, ...]:
        left = list(range(1, self._brokers + 1))
        return tuple(left.pop(self._random.randrange(len(left))) for _ in range(self._replicas))

    async def _move_logs(self) -> None:
        """Some logs of the broker that happens to be asked go to one of its folders, or are to be created there."""
        path = self._folders[self._logs_random.randrange(len(self._folders))]
        chosen = [place for place in self._places if self._logs_random.chance(0.5)]
        topics = tuple(SimpleNamespace(name=place.topic, partitions=(place.partition,)) for place in chosen)
        await self._ask(ALTER_REPLICA_LOG_DIRS, 2, dirs=(SimpleNamespace(path=path, topics=topics),))
        self._client.count("log moves asked for", len(chosen))

    async def _elect(self) -> None:
        await self._ask(ELECT_LEADERS, 2, election_type=PREFERRED, topic_partitions=None)
        self._client.count("elections asked for")

    async def _elect_anyone(self) -> None:
        if self._lossy:
            await elect_anyone(self._client, self._lossy)

    async def _create(self) -> None:
        name = f"{OWN}{self._random.randrange(NAMES)}"
        if name in self._topics:
            return
        count = 1 + self._random.randrange(2)
        topic = SimpleNamespace(
            name=name, num_partitions=count, replication_factor=self._replicas, assignments=(), configs=()
        )
        self._topics[name] = count
        await self._ask(CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
        self._client.count("topics made")

    async def _write(self) -> None:
        """To a topic of its own, by its id: what has another one does not take it."""
        if not self._topics:
            return
        name = self._some_topic()
        wire = await self._client.wire()
        (topic,) = (await wire.ask(METADATA, METADATA_VERSION, metadata_request([name]))).topics
        for part in topic.partitions:
            self._written += 1
            record = Record(0, self._client.runtime.clock.wall_ms(), None, _meant_for(topic.topic_id))
            row = SimpleNamespace(index=part.partition_index, records=build_batch([record]))
            data = SimpleNamespace(name=name, topic_id=topic.topic_id, partition_data=(row,))
            message = SimpleNamespace(
                transactional_id=None,
                acks=ACKS[self._written % len(ACKS)],
                timeout=TIMEOUT_MS,
                topic_data=(data,),
            )
            leader = await self._client.wire_to(part.leader_id)
            if leader is not None:
                await leader.ask(PRODUCE, BY_ID_VERSION, message)
                self._client.count("written to own topics")

    async def _grow(self) -> None:
        if self._topics:
            name = self._some_topic()
            self._topics[name] = min(PARTITIONS_MAX, self._topics[name] + 1)
            topic = SimpleNamespace(name=name, count=self._topics[name], assignments=None)
            await self._ask(CREATE_PARTITIONS, 3, topics=(topic,), validate_only=False)

    async def _delete(self) -> None:
        if self._topics:
            name = self._some_topic()
            topic = SimpleNamespace(name=name, topic_id=None)
            wire = await self._client.wire()
            message = SimpleNamespace(topics=(topic,), timeout=TIMEOUT_MS)
            (answer,) = (await wire.ask(DELETE_TOPICS, 6, message)).responses
            if answer.error_code in (ErrorCode.none, ErrorCode.unknown_topic_or_partition):
                del self._topics[name]
                self._client.count("topics deleted")

    async def _configure(self) -> None:
        if self._topics:
            await self._set(self._some_topic(), "segment.ms", 1000 + self._random.randrange(9000))

    async def _demand(self) -> None:
        """A topic takes writes only with more replicas in sync than before, or with as many as at first."""
        counts = range(self._min_insync, self._replicas + 1)
        name = self._strict[self._random.randrange(len(self._strict))]
        await self._set(name, "min.insync.replicas", counts[self._random.randrange(len(counts))])
        self._client.count("min.insync.replicas changed")

    async def _set(self, topic: str, name: str, value: int) -> None:
        config = SimpleNamespace(name=name, config_operation=SET, value=str(value))
        resource = SimpleNamespace(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=(config,))
        message = SimpleNamespace(resources=(resource,), validate_only=False)
        await (await self._client.wire()).ask(INCREMENTAL_ALTER_CONFIGS, 1, message)

    def _some_topic(self) -> str:
        return list(self._topics)[self._random.randrange(len(self._topics))]

    async def _ask(self, api_key: int, version: int, **fields: object) -> None:
        await _ask(self._client, api_key, version, **fields)


async def elect_anyone(client: Client, places: Sequence[TopicPartition]) -> None:
    """Where nobody can lead who has everything, whoever is there does."""
    rows = tuple(SimpleNamespace(topic=place.topic, partitions=(place.partition,)) for place in places)
    await _ask(client, ELECT_LEADERS, 2, election_type=UNCLEAN, topic_partitions=rows)
    client.count("unclean elections asked for")


async def _ask(client: Client, api_key: int, version: int, **fields: object) -> None:
    wire = await client.wire()
    await wire.ask(api_key, version, SimpleNamespace(timeout=TIMEOUT_MS, **fields))


def _meant_for(topic_id: UUID) -> bytes:
    return topic_id.bytes


def is_meant_for(topic_id: UUID, record: Record) -> bool:
    return record.value == _meant_for(topic_id)
