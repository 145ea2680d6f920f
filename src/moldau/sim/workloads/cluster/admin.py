"""Those who run the cluster: they move replicas, elect leaders, make, grow and delete topics, while all else goes on.

What they ask for may be refused or lost; what they must not do is harm the topics of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.sim.client import CREATE_TOPICS, Client, Disconnected

ALTER_REPLICA_LOG_DIRS = 34
DELETE_TOPICS, CREATE_PARTITIONS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS = (
    20,
    37,
    43,
    44,
    45,
)
PAUSE_S = (0.2, 1.5)
PREFERRED = 0
TOPIC_RESOURCE, SET = 2, 0
TIMEOUT_MS = 1000
PARTITIONS_MAX = 4


class Admin:
    """`places` are the partitions of which it moves the replicas; its own topics are its own."""

    def __init__(
        self,
        client: Client,
        places: Sequence[TopicPartition],
        brokers: int,
        replicas: int,
        folders: Sequence[str] = (),
    ) -> None:
        """`folders`: the data folders of every broker; where there are several, logs are moved between them."""
        self._client = client
        self._random = client.random
        self._folders = folders
        self._logs_random = client.random.fork("logs")
        self._places = places
        self._brokers = brokers
        self._replicas = replicas
        self._number = 0
        self._topics: dict[str, int] = {}
        """Its own, with the number of their partitions."""

    async def run(self) -> None:
        acts = (
            self._reassign,
            self._reassign,
            self._elect,
            self._create,
            self._grow,
            self._delete,
            self._configure,
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
        """For a quiet world: what is under way is called off, and its own topics go."""
        cancelled = [self._target(place, None) for place in self._places]
        await self._ask(ALTER_REASSIGNMENTS, 0, topics=tuple(cancelled))
        while self._topics:
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

    async def _create(self) -> None:
        self._number += 1
        name = f"of-{self._client.name}-{self._number}"
        count = 1 + self._random.randrange(2)
        topic = SimpleNamespace(
            name=name, num_partitions=count, replication_factor=self._replicas, assignments=(), configs=()
        )
        self._topics[name] = count
        await self._ask(CREATE_TOPICS, 7, topics=(topic,), validate_only=False)
        self._client.count("topics made")

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
            config = SimpleNamespace(
                name="segment.ms", config_operation=SET, value=str(1000 + self._random.randrange(9000))
            )
            resource = SimpleNamespace(
                resource_type=TOPIC_RESOURCE, resource_name=self._some_topic(), configs=(config,)
            )
            wire = await self._client.wire()
            message = SimpleNamespace(resources=(resource,), validate_only=False)
            await wire.ask(INCREMENTAL_ALTER_CONFIGS, 1, message)

    def _some_topic(self) -> str:
        return list(self._topics)[self._random.randrange(len(self._topics))]

    async def _ask(self, api_key: int, version: int, **fields: object) -> None:
        wire = await self._client.wire()
        await wire.ask(api_key, version, SimpleNamespace(timeout=TIMEOUT_MS, **fields))
