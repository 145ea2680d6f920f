"""Clients over their quotas, on a simulated host with its own time: what they are told, how long they are not heard,
and that nobody else waits for them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.node import Broker
from moldau.config.broker import BrokerConfig
from moldau.controller.topics import NewTopic
from moldau.peers.connection import PeerConnection
from moldau.peers.errors import Disconnected
from moldau.records.record import Record, build_batch
from moldau.security import quota_meters
from moldau.sim.world import SimHost, World
from moldau.store.memory import MemoryStore, Tree
from moldau.wire.apis import APIS_BY_NAME

SETTINGS = {
    "listeners": "PLAINTEXT://:9092",
    "log.dirs": "/data",
    "moldau.http.port": "-1",
    "offsets.topic.replication.factor": "1",
}
TOPIC = "topic"
PATIENCE_S = 100_000.0
LAST = 32767


class Stage:
    """One broker, and clients on a host of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.host: SimHost = world.host("broker")
        self.client_host = world.host("client")
        self.broker: Broker

    async def start(self, **settings: str) -> None:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        runtime = self.host.runtime
        store = MemoryStore(Tree(), runtime.tasks)
        self.broker = Broker(BrokerConfig.parse(SETTINGS | own), runtime, store, host_name="broker")
        await runtime.tasks.spawn(self.broker.start(), name="start")
        await self.on_broker(self.broker.controller.create_topics([NewTopic(TOPIC, 1, 1)]))

    async def on_broker(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await self.host.runtime.tasks.spawn(work, name="test")

    async def client(self, client_id: str | None = "app", port: int = 9092) -> Client:
        runtime = self.client_host.runtime
        opening = PeerConnection.open(runtime, "broker", port, client_id)
        connection = await runtime.tasks.spawn(opening, name="connect")
        return Client(self, connection)

    async def quota(self, *entity: tuple[str, str | None], **values: float | None) -> None:
        """Set these of one entity's quotas, as a client does it."""
        admin = await self.client("admin")
        ops = tuple(
            SimpleNamespace(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        )
        parts = tuple(SimpleNamespace(entity_type=type_, entity_name=name) for type_, name in entity)
        entry = SimpleNamespace(entity=parts, ops=ops)
        answer = await admin.ask("AlterClientQuotas", entries=(entry,), validate_only=False)
        assert [one.error_code for one in answer.entries] == [ErrorCode.none], answer

    @property
    def now_s(self) -> float:
        return self.host.runtime.clock.monotonic()

    @property
    def wall_ms(self) -> int:
        return self.host.runtime.clock.wall_ms()

    @property
    def timers(self) -> int:
        return sum(1 for connection in self.broker._server.connections if connection._unmuting is not None)


class Client:
    def __init__(self, stage: Stage, connection: PeerConnection) -> None:
        self._stage = stage
        self.connection = connection

    async def ask(self, api: str, version: int | None = None, **fields: Any) -> Any:
        known = APIS_BY_NAME[api]
        route = self._stage.broker.routes[known.key]
        number = min(known.max_version, route.max_version) if version is None else version
        asking = self.connection.ask(known.key, number, SimpleNamespace(**fields), PATIENCE_S)
        return await self._stage.client_host.runtime.tasks.spawn(asking, name=api)

    async def produce(self, size: int, version: int = 9, acks: int = -1) -> Any:
        records = build_batch([Record(0, self._stage.wall_ms, None, bytes(size))])
        partition = SimpleNamespace(index=0, records=records)
        topic = SimpleNamespace(name=TOPIC, partition_data=(partition,))
        fields = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": (topic,)}
        if acks:
            return await self.ask("Produce", version, **fields)
        self.connection.send_only(0, version, SimpleNamespace(**fields))
        return None

    async def fetch(self, offset: int = 0, version: int = 12, max_bytes: int = 1 << 20, **more: Any) -> Any:
        partition = SimpleNamespace(
            partition=0,
            fetch_offset=offset,
            partition_max_bytes=1 << 20,
            current_leader_epoch=-1,
            last_fetched_epoch=-1,
            log_start_offset=-1,
        )
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": max_bytes,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": (SimpleNamespace(topic=TOPIC, partitions=(partition,)),),
            "forgotten_topics_data": (),
            "rack_id": "",
        }
        return await self.ask("Fetch", version, **(fields | more))

    async def metadata(self) -> Any:
        return await self.ask("Metadata", 9, topics=(), allow_auto_topic_creation=False,
                              include_cluster_authorized_operations=False,
                              include_topic_authorized_operations=False)  # fmt: skip


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(1) as world:
        yield Stage(world)
        assert not world.failures


def run(stage: Stage, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    stage.world.run(scene())


def throttle_ms(answer: Any) -> int:
    return round(answer.throttle_time.total_seconds() * 1000)


def record_bytes(answer: Any) -> int:
    return sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)


def test_a_producer_over_its_quota_is_told_and_not_heard_for_as_long(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", "app"), producer_byte_rate=1000)
        client = await stage.client()
        answer = await client.produce(5000)
        assert throttle_ms(answer) == 0, "5 kB within 10 s"
        answer = await client.produce(10_000)
        told_s = throttle_ms(answer) / 1000
        assert 5 < told_s < 7, "15 kB and some bytes of frames, at 1 kB a second"
        assert answer.responses[0].partition_responses[0].base_offset == 1, (
            "what came is appended all the same"
        )
        start_s = stage.now_s
        await client.metadata()
        assert told_s <= stage.now_s - start_s < told_s + 0.5, (
            "the next request is read when the time is over"
        )
        assert stage.broker.metrics.throttled == {"produce": 1}

    run(stage, scene)


@pytest.mark.parametrize("version", [3, 5, 8, 9, 13])
def test_every_version_of_produce_says_how_long(stage: Stage, version: int) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("user", "ANONYMOUS"), producer_byte_rate=100)
        client = await stage.client(None)
        fields = SimpleNamespace(index=0, records=build_batch([Record(0, 1, None, bytes(5000))]))
        topic_id = stage.broker.image.topics[TOPIC].topic_id
        topic = SimpleNamespace(name=TOPIC, topic_id=topic_id, partition_data=(fields,))
        answer = await client.ask(
            "Produce", version, transactional_id=None, acks=1, timeout=1000, topic_data=(topic,)
        )
        assert 35_000 < throttle_ms(answer) < 45_000
        assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none

    run(stage, scene)


def test_a_refused_produce_counts_and_waits_as_well(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("user", None), producer_byte_rate=100)
        client = await stage.client()
        fields = SimpleNamespace(index=7, records=build_batch([Record(0, 1, None, bytes(5000))]))
        topic = SimpleNamespace(name=TOPIC, partition_data=(fields,))
        answer = await client.ask(
            "Produce", 9, transactional_id=None, acks=1, timeout=1000, topic_data=(topic,)
        )
        error = answer.responses[0].partition_responses[0].error_code
        assert error is ErrorCode.unknown_topic_or_partition
        assert throttle_ms(answer) > 35_000

    run(stage, scene)


def test_a_producer_that_wants_no_answers_is_not_heard_either(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", None), producer_byte_rate=1000)
        client = await stage.client()
        await client.produce(20_000, acks=0)
        start_s = stage.now_s
        await client.metadata()
        assert 9 < stage.now_s - start_s < 12

    run(stage, scene)


def test_a_muted_client_costs_nobody_else_anything(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", "loud"), producer_byte_rate=10)
        loud, other = await stage.client("loud"), await stage.client("quiet")
        assert throttle_ms(await loud.produce(10_000)) > 500_000
        start_s = stage.now_s
        for _ in range(50):
            assert throttle_ms(await other.produce(1000)) == 0
            assert record_bytes(await other.fetch()) > 0
        assert stage.now_s - start_s < 5
        assert stage.broker._server.connections and stage.timers == 1

    run(stage, scene)


def test_a_muted_connection_that_is_closed_leaves_nothing(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", "loud"), producer_byte_rate=10)
        loud = await stage.client("loud")
        before = set(stage.broker._server.connections)
        await loud.produce(10_000)
        (muted,) = [one for one in before if one._unmuting is not None]
        timer = muted._unmuting
        muted.close("the test ends it")
        assert muted not in stage.broker._server.connections
        await stage.world.sleep(700)
        assert muted._unmuting is timer and muted.is_closed, "its timer has not come"

    run(stage, scene)


def test_two_clients_of_one_user_share_what_the_user_has(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("user", "ANONYMOUS"), producer_byte_rate=1000)
        one, other = await stage.client("one"), await stage.client("other")
        assert throttle_ms(await one.produce(9000)) == 0
        assert throttle_ms(await other.produce(9000)) > 7000

    run(stage, scene)


def test_a_consumer_over_its_quota_gets_nothing_but_the_time(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        client = await stage.client()
        for _ in range(4):
            await client.produce(3000)
        await stage.quota(("user", "ANONYMOUS"), ("client-id", "app"), consumer_byte_rate=500)
        assert record_bytes(await client.fetch()) <= 6500, "no more than the quota of the window, but a batch"
        answers = [await client.fetch() for _ in range(3)]
        throttled = [one for one in answers if throttle_ms(one)]
        assert throttled and all(not record_bytes(one) and not one.responses for one in throttled)
        assert all(one.error_code is ErrorCode.none for one in throttled)
        assert "fetch" in stage.broker.metrics.throttled

    run(stage, scene)


def test_what_a_consumer_gets_over_time_is_its_quota(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        producer = await stage.client("producer")
        for _ in range(30):
            await producer.produce(2000)
        await stage.quota(("client-id", "app"), consumer_byte_rate=1000)
        client = await stage.client()
        start_s, total, offset = stage.now_s, 0, 0
        while stage.now_s - start_s < 60:
            answer = await client.fetch(offset % 30, max_bytes=2500)
            if size := record_bytes(answer):
                total, offset = total + size, offset + 1
        assert 45_000 <= total <= 75_000, total

    run(stage, scene)


def test_a_throttled_answer_leaves_a_fetch_session_as_it_is(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        client = await stage.client()
        await client.produce(3000)
        first = await client.fetch(session_epoch=0)
        assert first.session_id and record_bytes(first)
        await stage.quota(("client-id", "app"), consumer_byte_rate=1)
        going = {"session_id": first.session_id, "topics": ()}
        empty = await client.fetch(session_epoch=1, **going)
        assert throttle_ms(empty) and empty.session_id == first.session_id and not empty.responses
        await stage.quota(("client-id", "app"), consumer_byte_rate=None)
        again = await client.fetch(session_epoch=2, **going)
        assert record_bytes(again) and again.error_code is ErrorCode.none

    run(stage, scene)


def test_a_first_fetch_over_the_quota_begins_no_session(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        client = await stage.client()
        await client.produce(3000)
        await stage.quota(("client-id", "app"), consumer_byte_rate=1)
        answer = await client.fetch(session_epoch=0)
        assert throttle_ms(answer) and answer.session_id == 0

    run(stage, scene)


def test_a_quota_holds_and_ends_at_once(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        client = await stage.client()
        assert stage.broker.throttling is None
        await stage.quota(("client-id", "app"), producer_byte_rate=10)
        assert stage.broker.throttling is not None
        assert throttle_ms(await client.produce(1000)) > 0
        await stage.quota(("client-id", "app"), producer_byte_rate=None)
        assert stage.broker.throttling is None
        assert throttle_ms(await client.produce(1000)) == 0

    run(stage, scene)


def test_who_uses_the_loop_more_than_its_share_waits_for_a_second_at_most(stage: Stage) -> None:
    """Virtual time does not pass while the broker works: what is used is put into the meter here."""

    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", "app"), request_percentage=1)
        client = await stage.client()
        assert throttle_ms(await client.metadata()) == 0
        (connection,) = [one for one in stage.broker._server.connections if one.meter is not None
                         and one.meter.request is not None]  # fmt: skip
        assert connection.meter is not None
        connection.meter.add(stage.now_s - 5, stage.now_s)
        for ask in (client.metadata, client.fetch, lambda: client.produce(10)):
            answer = await ask()
            assert throttle_ms(answer) == 1000
        assert stage.broker.metrics.throttled == {"request": 3}

    run(stage, scene)


def test_apis_whose_versions_have_no_throttle_time_are_muted_all_the_same(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("client-id", "app"), request_percentage=1)
        client = await stage.client()
        await client.ask("Metadata", 1, topics=())
        (connection,) = [one for one in stage.broker._server.connections if one.meter is not None
                         and one.meter.request is not None]  # fmt: skip
        assert connection.meter is not None
        connection.meter.add(stage.now_s - 5, stage.now_s)
        await client.ask("Metadata", 1, topics=())
        start_s = stage.now_s
        answer = await client.ask("ApiVersions", 3, client_software_name="x", client_software_version="1")
        assert 0.9 < stage.now_s - start_s < 1.2
        assert throttle_ms(answer) == 1000

    run(stage, scene)


def new_topic(name: str, partitions: int) -> Any:
    return SimpleNamespace(name=name, num_partitions=partitions, replication_factor=1, assignments=(),
                           configs=())  # fmt: skip


async def create(client: Client, name: str, partitions: int, version: int = 7) -> tuple[ErrorCode, int]:
    answer = await client.ask(
        "CreateTopics", version, topics=(new_topic(name, partitions),), timeout=1000, validate_only=False
    )
    return answer.topics[0].error_code, throttle_ms(answer)


def test_partitions_are_created_and_deleted_within_a_quota(stage: Stage) -> None:
    """KIP-599: what begins within it goes through; then one waits until what was used is paid back."""

    async def scene() -> None:
        await stage.start(controller_quota_window_num="10")
        await stage.quota(("user", "ANONYMOUS"), controller_mutation_rate=1)
        client = await stage.client()
        assert await create(client, "one", 30) == (ErrorCode.none, 0), "of the 10 that it had"
        error, wait_ms = await create(client, "two", 1)
        assert error is ErrorCode.throttling_quota_exceeded and 19_000 < wait_ms <= 20_000
        start_s = stage.now_s
        assert await create(client, "two", 1) == (ErrorCode.none, 0)
        assert stage.now_s - start_s > 19, "it was not heard before"
        answer = await client.ask(
            "CreatePartitions", 3, topics=(SimpleNamespace(name="two", count=3, assignments=None),),
            timeout=1000, validate_only=False,
        )  # fmt: skip
        assert answer.results[0].error_code is ErrorCode.throttling_quota_exceeded
        assert answer.results[0].error_message is None
        answer = await client.ask(
            "DeleteTopics", 6, topics=(SimpleNamespace(name="one", topic_id=None),), timeout=1000
        )
        assert answer.responses[0].error_code is ErrorCode.none
        answer = await client.ask(
            "DeleteTopics", 6, topics=(SimpleNamespace(name="two", topic_id=None),), timeout=1000
        )
        assert answer.responses[0].error_code is ErrorCode.throttling_quota_exceeded
        assert "two" in stage.broker.image.topics
        assert stage.broker.metrics.throttled == {"controller_mutation": 3}

    run(stage, scene)


def test_older_clients_are_not_refused_and_wait_for_what_they_have_done(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(controller_quota_window_num="10")
        await stage.quota(("client-id", "app"), controller_mutation_rate=1)
        client = await stage.client()
        error, wait_ms = await create(client, "one", 30, version=5)
        assert error is ErrorCode.none and 19_000 < wait_ms <= 20_000
        error, wait_ms = await create(client, "two", 5, version=5)
        assert error is ErrorCode.none and 4_000 < wait_ms <= 5_500

    run(stage, scene)


def test_topics_that_are_created_by_asking_for_them_count_as_well(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(controller_quota_window_num="10")
        await stage.quota(("client-id", "app"), controller_mutation_rate=1)
        client = await stage.client()

        async def ask(*names: str) -> list[ErrorCode]:
            topics = tuple(SimpleNamespace(name=name) for name in names)
            answer = await client.ask("Metadata", 9, topics=topics, allow_auto_topic_creation=True,
                                      include_cluster_authorized_operations=False,
                                      include_topic_authorized_operations=False)  # fmt: skip
            return [topic.error_code for topic in answer.topics]

        names = [f"auto-{number}" for number in range(15)]
        assert await ask(*names) == [ErrorCode.none] * 11 + [ErrorCode.unknown_topic_or_partition] * 4
        assert await ask(names[0], names[14]) == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
        await stage.world.sleep(2)
        assert await ask(names[14]) == [ErrorCode.none]

    run(stage, scene)


async def all_are_served_in_s(stage: Stage, count: int, port: int = 9092) -> float:
    start_s = stage.now_s
    clients = [await stage.client(port=port) for _ in range(count)]
    for client in clients:
        await client.metadata()
    return stage.now_s - start_s


def test_connections_come_at_the_rate_of_the_broker(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start(max_connection_creation_rate="2")
        took_s = await all_are_served_in_s(stage, 40)
        assert 8 < took_s < 40, "20 of them within the window, the others at one a second or two"
        assert stage.broker.metrics.connections_paced >= 10

    run(stage, scene)


def test_the_rate_of_new_connections_changes_while_the_broker_runs(stage: Stage) -> None:
    async def set_rate(rate: str) -> None:
        config = SimpleNamespace(name="max.connection.creation.rate", config_operation=0, value=rate)
        resource = SimpleNamespace(resource_type=4, resource_name="", configs=(config,))
        admin = await stage.client("admin")
        answer = await admin.ask("IncrementalAlterConfigs", resources=(resource,), validate_only=False)
        assert answer.responses[0].error_code is ErrorCode.none

    async def scene() -> None:
        await stage.start()
        assert stage.broker._server.rates is None
        await set_rate("2")
        assert await all_are_served_in_s(stage, 40) > 8
        await set_rate("1000")
        assert await all_are_served_in_s(stage, 40) < 5

    run(stage, scene)


@pytest.mark.parametrize(("port", "is_slow"), [(9092, True), (9094, False)])
def test_connections_come_at_the_rate_of_their_listener(stage: Stage, port: int, is_slow: bool) -> None:
    async def scene() -> None:
        settings = {
            "listeners": "SLOW://:9092,FAST://:9094",
            "listener_security_protocol_map": "SLOW:PLAINTEXT,FAST:PLAINTEXT",
            "listener_name_slow_max_connection_creation_rate": "2",
        }
        await stage.start(**settings)
        assert (await all_are_served_in_s(stage, 40, port) > 8) is is_slow

    run(stage, scene)


def test_an_address_that_connects_too_fast_is_closed_until_it_may_again(stage: Stage) -> None:
    async def scene() -> None:
        await stage.start()
        await stage.quota(("ip", None), connection_creation_rate=1)
        clients = [await stage.client() for _ in range(30)]
        served = 0
        for client in clients:
            try:
                await client.metadata()
                served += 1
            except Disconnected:
                pass
        assert 9 <= served <= 13, "10 within the window"
        await stage.world.sleep(30)
        await stage.quota(("ip", None), connection_creation_rate=None)
        assert stage.broker._server.rates is None
        assert await all_are_served_in_s(stage, 30) < 2

    run(stage, scene)


def test_a_connection_that_names_itself_anew_each_time_takes_little(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        monkeypatch.setattr(quota_meters, "QUOTA_COUNTERS_MAX", 20)
        await stage.start()
        await stage.quota(("client-id", None), producer_byte_rate=1_000_000, request_percentage=100)
        client = await stage.client()
        for number in range(200):
            client.connection._client_id = f"stranger {number}" * 10
            await client.metadata()
        assert len(stage.broker.client_quotas.meters.produce) <= 22
        await stage.world.sleep(15)
        client.connection._client_id = "another"
        await client.metadata()
        assert len(stage.broker.client_quotas.meters.produce) == 1, "those who are gone are forgotten"

    run(stage, scene)
