"""Three brokers with one store on a simulated network, and a client that asks any of them anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from golden.recorder import build
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.topics import NewTopic
from moldau.metadata.records import PartitionState
from moldau.peers.connection import PeerConnection
from moldau.records.record import Record, build_batch
from moldau.replication.partition import Partition
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.schema import message_class

IDS = (1, 2, 3)
PORT = 9092
TOPIC = "topic"
POLL_S = 0.002
PATIENCE_S = 60.0
LAG_MS = 3000
SETTINGS = {
    "listeners": f"PLAINTEXT://:{PORT}",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "replica.lag.time.max.ms": str(LAG_MS),
    "offsets.topic.num.partitions": "3",
}


class Trio:
    def __init__(self, world: World, settings: Callable[[int], Mapping[str, str]] = lambda _: {}) -> None:
        """`settings`: what the broker of an id has of its own."""
        self.world = world
        self._settings = settings
        self._tree = Tree()
        self._hosts: dict[int, SimHost] = {node_id: world.host(host_of(node_id)) for node_id in IDS}
        self._client = world.host("client")
        self._connections: dict[int, PeerConnection] = {}
        self.brokers: dict[int, Broker] = {}

    async def start(self, *ids: int) -> None:
        starting = []
        for node_id in ids or IDS:
            host = self._hosts[node_id]
            runtime = host.runtime if host.alive else host.restart()
            config = BrokerConfig.parse(SETTINGS | {"node.id": str(node_id)} | dict(self._settings(node_id)))
            store = MemoryStore(self._tree, runtime.tasks, holder=host.name)
            broker = self.brokers[node_id] = Broker(
                config, runtime, store, boot_id=host.name, host_name=host.name
            )
            starting.append(runtime.tasks.spawn(broker.start(), name="start"))
        for task in starting:
            await task

    def kill(self, node_id: int) -> None:
        self._tree.stores[host_of(node_id)].abandon()
        self._hosts[node_id].kill()
        self.brokers.pop(node_id)
        self._connections.pop(node_id, None)

    def expire(self, node_id: int) -> None:
        """End its session."""
        self._tree.stores[host_of(node_id)].expire()

    async def fence(self, node_id: int) -> None:
        """The controller goes on without it."""
        (office,) = [broker for broker in self.brokers.values() if broker.active_controller is not None]
        lost = {node_id: self.brokers[node_id].membership.incarnation}
        await office.tasks.spawn(office.controller.fence(lost), name="fence")

    def cut(self, one: int, other: int) -> None:
        self.world.net.cut(host_of(one), host_of(other))

    def heal(self) -> None:
        self.world.net.heal()

    async def until(self, condition: Callable[[], bool], what: str = "") -> None:
        for _ in range(int(PATIENCE_S / POLL_S)):
            if condition():
                return
            await self.world.sleep(POLL_S)
        raise AssertionError(f"in vain: {what or condition}")

    # The cluster

    async def create(
        self, *assignment: tuple[int, ...], topic: str = TOPIC, configs: Mapping[str, str] | None = None
    ) -> None:
        """A topic, its partitions on these brokers, of which the first leads; served when this returns."""
        own = tuple((configs or {}).items())
        new = NewTopic(topic, assignments=tuple(enumerate(assignment)), configs=own)
        (controller,) = [broker for broker in self.brokers.values() if broker.active_controller is not None]
        (outcome,) = await controller.tasks.spawn(controller.controller.create_topics([new]), name="create")
        assert outcome.error is ErrorCode.none, outcome.message
        await self.until(lambda: self._is_served(topic, len(assignment)), "the topic to be served")

    def _is_served(self, topic: str, partitions: int) -> bool:
        return all(
            topic in broker.image.topics
            and (state := broker.image.topics[topic].partitions[index]).leader in self.brokers
            and self.partition(state.leader, index, topic=topic).leader is not None
            for broker in self.brokers.values()
            for index in range(partitions)
        )

    def partition(self, node_id: int, index: int = 0, *, topic: str = TOPIC) -> Partition:
        return self.brokers[node_id].partitions[TopicPartition(topic, index)]

    def state(self, index: int = 0, *, topic: str = TOPIC) -> PartitionState:
        """As the controller has it."""
        for broker in self.brokers.values():
            if (controller := broker.active_controller) is not None:
                return controller.image.topics[topic].partitions[index]
        return PartitionState(-1, -1, (), ())

    # A client

    async def ask(self, node_id: int, api_name: str, version: int, **values: Any) -> Any:
        connection = self._connections.get(node_id)
        if connection is None or connection.is_closed:
            connection = await self._client.runtime.tasks.spawn(
                PeerConnection.open(self._client.runtime, host_of(node_id), PORT, "client"), name="connect"
            )
            self._connections[node_id] = connection
        key = APIS_BY_NAME[api_name].key
        message = build(message_class("request", key, version), values)
        work = connection.ask(key, version, message, timeout_s=PATIENCE_S)
        return await self._client.runtime.tasks.spawn(work, name=api_name)

    async def produce(self, node_id: int, value: bytes = b"value", *, acks: int = -1, index: int = 0) -> Any:
        data = [{"name": TOPIC, "partition_data": [{"index": index, "records": batch(value)}]}]
        answer = await self.ask(node_id, "Produce", 12, acks=acks, timeout=30_000, topic_data=data)
        return answer.responses[0].partition_responses[0]

    async def list_offset(self, node_id: int, timestamp: int, *, version: int = 6, **values: Any) -> Any:
        replica_id = values.pop("replica_id", -1)
        wanted = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1} | values
        topics = [{"name": TOPIC, "partitions": [wanted]}]
        answer = await self.ask(node_id, "ListOffsets", version, replica_id=replica_id, topics=topics)
        return answer.topics[0].partitions[0]

    async def fetch(self, node_id: int, offset: int, *, version: int = 12, **values: Any) -> Any:
        """One partition by name (v12) or id; fields of the request and of the partition are told by their names."""
        topic_id = next(iter(self.brokers.values())).image.topics[TOPIC].topic_id
        wanted = {
            "partition": 0,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
        }
        wanted |= {name: values.pop(name) for name in list(values) if name in wanted}
        topics = [{"topic": TOPIC, "topic_id": topic_id, "partitions": [wanted]}]
        request = {"replica_id": -1, "max_bytes": 1 << 20, "session_epoch": -1, "topics": topics} | values
        return await self.ask(node_id, "Fetch", version, **request)


def host_of(node_id: int) -> str:
    return f"broker-{node_id}"


def batch(*values: bytes, timestamp_ms: int = 1_000) -> bytes:
    return build_batch([Record(i, timestamp_ms, b"key", value) for i, value in enumerate(values)])
