"""Large work that is right is done: fetches, produces, commits and groups of the largest size that clients have.

Limits that keep attackers away leave room for it. `test_much` has reassignments.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from attack.client import Client, decoded
from attack.requests import Values, frame
from attack.target import MoldauHere, create_topic, data_room, find_coordinator
from cluster.support import wait_until
from moldau.records.record import Record, build_batch

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("large-work")]

PARTITIONS = 20_000
WIDE, MANY, HUGE = "wide", "many", "huge"
REQUEST_BYTES_MAX = 104_857_600  # socket.request.max.bytes
NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def server() -> Iterator[MoldauHere]:
    # 100,000 files are not to be kept; on a disk in memory they are made and removed in a tenth of the time.
    with tempfile.TemporaryDirectory(prefix="moldau-large-", dir=data_room()) as folder:
        yield from serving(Path(folder))


def serving(folder: Path) -> Iterator[MoldauHere]:
    settings = {
        "auto.create.topics.enable": "false",
        "moldau.max.partitions.per.broker": 50_000,
        "message.max.bytes": 10_000_000,  # one record holds a whole group of the classic protocol
        "group.initial.rebalance.delay.ms": 5_000,  # so that a whole crowd is in its first generation
    }
    with MoldauHere(folder, settings) as found:
        with Client(found.bootstrap_servers, 200) as client:
            create_topic(client, WIDE, 10_000)
            grown = {"name": WIDE, "count": PARTITIONS, "assignments": None}
            client.ask("CreatePartitions", 3, {"topics": [grown], "timeout": 100_000})
            wait_for_all(client, WIDE, PARTITIONS)
            create_topic(client, MANY, 5_000)
            create_topic(client, HUGE, 100, max_message_bytes=str(100_000_000))
        yield found


@pytest.fixture
def client(server: MoldauHere) -> Iterator[Client]:
    with Client(server.bootstrap_servers, 120) as found:
        yield found


def wait_for_all(client: Client, topic: str, count: int) -> None:
    for _ in range(500):
        if {error for error, _ in end_offsets(client, topic, count)} == {0}:
            return
        time.sleep(0.1)
    raise AssertionError(f"{topic} is not led")


def end_offsets(client: Client, topic: str, count: int) -> list[tuple[int, int]]:
    wanted = [{"partition_index": number, "timestamp": -1} for number in range(count)]
    values: Values = {"replica_id": -1, "topics": [{"name": topic, "partitions": wanted}]}
    found = client.ask("ListOffsets", 7, values).topics[0].partitions
    return [(int(one.error_code), one.offset) for one in sorted(found, key=lambda each: each.partition_index)]


def batch(value: bytes, **options: Any) -> bytes:
    return build_batch([Record(0, NOW_MS, None, value)], **options)


def produce(topic: str, batches: dict[int, bytes], *, acks: int, correlation_id: int = 1) -> bytes:
    data = [{"index": index, "records": records} for index, records in batches.items()]
    values: Values = {
        "acks": acks,
        "timeout": 60_000,
        "topic_data": [{"name": topic, "partition_data": data}],
    }
    return frame("Produce", 9, values, correlation_id=correlation_id)


def produced(answer: bytes) -> dict[int, tuple[int, int]]:
    """Error and offset by partition."""
    (topic,) = decoded("Produce", 9, answer).responses
    return {one.index: (int(one.error_code), one.base_offset) for one in topic.partition_responses}


def test_a_consumer_reads_20000_partitions(server: MoldauHere, client: Client) -> None:
    (first, *_) = (offset for _, offset in end_offsets(client, WIDE, 1))
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "linger.ms": 50})
    some = range(0, PARTITIONS, 67)
    for index in some:
        producer.produce(WIDE, str(index).encode(), partition=index)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign(
            [TopicPartition(WIDE, index, first if not index else 0) for index in range(PARTITIONS)]
        )
        found: set[int] = set()
        deadline_s = time.monotonic() + 120
        while found != set(some):
            assert time.monotonic() < deadline_s, f"{len(found)} of {len(some)}"
            for message in consumer.consume(1000, 0.5):
                assert message.error() is None and int(message.value()) == message.partition()
                found.add(message.partition())
    finally:
        consumer.close()


def fetch(session_id: int, epoch: int, topic_id: bytes, offsets: dict[int, int], *, wait_ms: int) -> bytes:
    wanted = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for index, offset in offsets.items()
    ]
    topics = [{"topic_id": topic_id, "partitions": wanted}] if wanted else []
    values: Values = {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": 1 << 26,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": topics,
    }
    return frame("Fetch", 13, values)


def fetched(answer: Any) -> dict[int, Any]:
    assert int(answer.error_code) == 0
    return {one.partition_index: one for topic in answer.responses for one in topic.partitions}


def test_a_fetch_session_over_20000_partitions(server: MoldauHere, client: Client) -> None:
    topic_id = client.ask("Metadata", 12, {"topics": [{"name": WIDE}]}).topics[0].topic_id.bytes
    ends = [offset for _, offset in end_offsets(client, WIDE, PARTITIONS)]
    client.send(fetch(0, 0, topic_id, dict(enumerate(ends)), wait_ms=0))
    full = decoded("Fetch", 13, client.receive())
    found = fetched(full)
    assert sorted(found) == list(range(PARTITIONS)) and full.session_id
    assert {(int(one.error_code), bool(one.records)) for one in found.values()} == {(0, False)}
    assert all(found[index].high_watermark == ends[index] for index in range(0, PARTITIONS, 101))

    client.send(fetch(full.session_id, 1, topic_id, {}, wait_ms=0))
    assert fetched(decoded("Fetch", 13, client.receive())) == {}

    client.send(fetch(full.session_id, 2, topic_id, {}, wait_ms=60_000))
    with Client(server.bootstrap_servers, 60) as other:
        other.send(produce(WIDE, {12_345: batch(b"woken")}, acks=1))
        assert produced(other.receive()) == {12_345: (0, ends[12_345])}
    woken = fetched(decoded("Fetch", 13, client.receive()))
    assert list(woken) == [12_345] and b"woken" in woken[12_345].records

    client.send(fetch(full.session_id, 3, topic_id, {12_345: ends[12_345] + 1}, wait_ms=0))
    assert fetched(decoded("Fetch", 13, client.receive())) == {}


@pytest.mark.parametrize("acks", [1, -1])
def test_a_produce_to_5000_partitions_and_the_next_one_behind_it(client: Client, acks: int) -> None:
    """Of an idempotent producer: its sequence numbers are in order only if the requests are."""
    producer_id = client.ask("InitProducerId", 4, {"transactional_id": None}).producer_id
    before = [offset for _, offset in end_offsets(client, MANY, 5_000)]
    for sequence in (0, 1, 2):
        one = batch(b"x" * 50, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        client.send(produce(MANY, dict.fromkeys(range(5_000), one), acks=acks, correlation_id=sequence))
    for sequence in (0, 1, 2):
        answer = client.receive()
        assert int.from_bytes(answer[:4], "big") == sequence
        assert produced(answer) == {index: (0, before[index] + sequence) for index in range(5_000)}


def test_requests_of_100_mb_are_appended_and_readable(client: Client) -> None:
    before = [offset for _, offset in end_offsets(client, HUGE, 100)]
    data = produce(HUGE, {index: batch(bytes([index]) * 1_000_000) for index in range(100)}, acks=-1)
    assert 0.95 * REQUEST_BYTES_MAX < len(data) <= REQUEST_BYTES_MAX
    client.send(data)
    assert produced(client.receive()) == {index: (0, before[index]) for index in range(100)}
    for index in (0, 50, 99):
        assert bytes([index]) * 1_000_000 in read(client, index, before[index])


def read(client: Client, index: int, offset: int) -> bytes:
    wanted = [{"partition": index, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
    values: Values = {"max_bytes": 1 << 20, "topics": [{"topic": HUGE, "partitions": wanted}]}
    (topic,) = client.ask("Fetch", 12, values).responses
    records: bytes = topic.partitions[0].records
    return records


def test_one_batch_of_90_mb_is_appended_and_readable(client: Client) -> None:
    value = b"Vltava!!!" * 10_000_000
    client.send(produce(HUGE, {7: batch(value)}, acks=-1))
    ((error, offset),) = produced(client.receive()).values()
    assert error == 0 and value in read(client, 7, offset)


def test_six_clients_send_100_mb_at_the_same_time(server: MoldauHere) -> None:
    """They wait for each other, and none is sent away."""
    data = produce(HUGE, {index: batch(bytes(1_000_000)) for index in range(100)}, acks=1)
    clients = [Client(server.bootstrap_servers, 120) for _ in range(6)]
    left = {each._socket: memoryview(data) for each in clients}
    for connection in left:
        connection.setblocking(False)
    deadline_s = time.monotonic() + 100
    try:
        while left:
            assert time.monotonic() < deadline_s
            for connection in list(left):
                _send_some(left, connection)
            time.sleep(0.0005)
        for each in clients:
            each.timeout(100)
            assert {error for error, _ in produced(each.receive()).values()} == {0}
    finally:
        for each in clients:
            each.close()


def _send_some(left: dict[socket.socket, memoryview], connection: socket.socket) -> None:
    try:
        sent = connection.send(left[connection][: 1 << 18])
    except BlockingIOError:
        return
    left[connection] = left[connection][sent:]
    if not left[connection]:
        del left[connection]


def test_offsets_of_20000_partitions_are_committed_and_fetched(client: Client) -> None:
    find_coordinator(client, 0, "wide-group")
    wanted = [{"partition_index": index, "committed_offset": index} for index in range(PARTITIONS)]
    values: Values = {"group_id": "wide-group", "topics": [{"name": WIDE, "partitions": wanted}]}
    (topic,) = client.ask("OffsetCommit", 8, values).topics
    assert {int(one.error_code) for one in topic.partitions} == {0} and len(topic.partitions) == PARTITIONS
    asked = [{"name": WIDE, "partition_indexes": list(range(PARTITIONS))}]
    for topics in (asked, None):
        values = {"groups": [{"group_id": "wide-group", "topics": topics}]}
        (group,) = client.ask("OffsetFetch", 8, values).groups
        (topic,) = group.topics
        found = {one.partition_index: one.committed_offset for one in topic.partitions}
        assert found == {index: index for index in range(PARTITIONS)}


def test_a_group_of_1000_members_with_a_megabyte_of_metadata(server: MoldauHere) -> None:
    metadata = bytes(1000)
    values: dict[str, Any] = {
        "group_id": "crowd",
        "session_timeout": 60_000,
        "rebalance_timeout": 60_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": metadata}],
    }
    members = [Client(server.bootstrap_servers, 120) for _ in range(1000)]
    try:
        find_coordinator(members[0], 0, "crowd")
        ids = [member.ask("JoinGroup", 5, values).member_id for member in members]
        for member, member_id in zip(members, ids, strict=True):
            member.send(frame("JoinGroup", 5, values | {"member_id": member_id}))
        joined = [decoded("JoinGroup", 5, member.receive()) for member in members]
        assert {int(each.error_code) for each in joined} == {0}
        assert len({each.generation_id for each in joined}) == 1
        (leader,) = {each.leader for each in joined}
        (told,) = (each.members for each in joined if each.members)
        assert sorted(each.member_id for each in told) == sorted(ids)
        assert {each.metadata for each in told} == {metadata}
        shares = [{"member_id": each, "assignment": each.encode() * 20} for each in ids]
        for member, member_id in zip(members, ids, strict=True):
            asked: Values = {
                "group_id": "crowd",
                "generation_id": joined[0].generation_id,
                "member_id": member_id,
                "assignments": shares if member_id == leader else [],
            }
            member.send(frame("SyncGroup", 3, asked))
        for member, member_id in zip(members, ids, strict=True):
            synced = decoded("SyncGroup", 3, member.receive())
            assert (int(synced.error_code), synced.assignment) == (0, member_id.encode() * 20)
    finally:
        for member in members:
            member.close()


def test_the_settings_of_2000_topics_are_described(server: MoldauHere, client: Client) -> None:
    names = [f"described-{number}" for number in range(2000)]
    new = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    created = client.ask("CreateTopics", 7, {"topics": new, "timeout": 60_000}).topics
    assert {int(one.error_code) for one in created} == {0}
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    described = admin.describe_configs(resources, request_timeout=60)
    for future in described.values():
        assert future.result(60)["cleanup.policy"].value == "delete"
    assert len(described) == 2000


def test_10000_topics_are_made_listed_and_deleted_by_one_admin_client(server: MoldauHere) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    names = [f"topic-{number}" for number in range(10_000)]
    for first in range(0, len(names), 1_000):
        some = [NewTopic(name, 1, 1) for name in names[first : first + 1_000]]
        for future in admin.create_topics(some, request_timeout=100).values():
            future.result(100)
    wait_until(lambda: set(names) <= admin.list_topics(timeout=60).topics.keys(), 60, "all to be listed")
    for first in range(0, len(names), 1_000):
        gone = admin.delete_topics(names[first : first + 1_000], request_timeout=100)
        for future in gone.values():
            future.result(100)
    wait_until(lambda: not set(names) & admin.list_topics(timeout=60).topics.keys(), 60, "none to be listed")
