"""Who may do what, on brokers whose ACLs say so: by the wire, from two addresses of this machine.

That each API asks what Kafka asks is the interop tests' part (`test_rights.py`); here is what is Moldau's own: answers
that are kept, data that waits, brokers that follow, and those who pretend to be brokers.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from golden.recorder import Kafka, build
from moldau.base.errors import ErrorCode
from moldau.config.authorization_keys import AUTHORIZERS
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster
from moldau.wire.cluster import CLUSTER_KEY, CLUSTER_VERSION, FEED, pack_request, parse_answer
from moldau.wire.codec import encode_request
from moldau.wire.frames import SIZE, parse_response_header, request_header
from moldau.wire.schema import message_class

HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"
ANYONE = "User:ANONYMOUS"
TOPIC, GROUP, CLUSTER, TXN = 2, 3, 4, 5
LOGGER = 8
ALL, READ, WRITE, CREATE, DESCRIBE = 2, 3, 4, 5, 8
LITERAL, PREFIXED = 3, 4
IN_FORCE_S = 1.0
SETTINGS = {"authorizer.class.name": AUTHORIZERS[0], "allow.everyone.if.no.acl.found": "true"}


class Asker(Kafka):
    """A connection that comes from an address of this machine."""

    def __init__(self, address: str, came_from: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=10, source_address=(came_from, 0))
        self._stream = self._socket.makefile("rb")
        self._correlation_id = 0

    def send(self, api_key: int, version: int, body: bytes) -> bytes:
        """The body of the answer, with its header."""
        request = request_header(api_key, version, 7, "asker") + body
        self._socket.sendall(SIZE.pack(len(request)) + request)
        return self._stream.read(*SIZE.unpack(self._stream.read(4)))


def acl(
    operation: int,
    resource: int,
    name: str,
    host: str = ELSEWHERE,
    pattern: int = LITERAL,
    permission: int = 3,
) -> dict[str, Any]:
    return {
        "resource_type": resource,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": ANYONE,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def create(admin: Asker, *acls: dict[str, Any]) -> None:
    answer = admin.ask("CreateAcls", 3, {"creations": acls})
    assert [result.error_code for result in answer.results] == [0] * len(acls)


def remove(admin: Asker, **wanted: Any) -> None:
    filter_ = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": ELSEWHERE,
        "operation": 1,
        "permission_type": 1,
    }
    admin.ask("DeleteAcls", 3, {"filters": [filter_ | wanted]})


def lock(admin: Asker) -> None:
    """Who comes from here may do everything, and nobody else anything."""
    names = ((CLUSTER, "kafka-cluster"), (TOPIC, "*"), (GROUP, "*"), (TXN, "*"))
    create(admin, *(acl(ALL, resource, name, HERE) for resource, name in names))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": 1, "payments": 1}, config=SETTINGS) as running:
        lock(Asker(running.bootstrap_servers, HERE))
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Asker]:
    asker = Asker(cluster.bootstrap_servers, HERE)
    yield asker
    remove(asker)


@pytest.fixture
def stranger(cluster: Cluster, admin: Asker) -> Asker:
    return Asker(cluster.bootstrap_servers, ELSEWHERE)


def soon(is_so: Callable[[], bool]) -> None:
    """Within the second that ACLs may take."""
    deadline_s = time.monotonic() + IN_FORCE_S
    while not is_so():
        assert time.monotonic() < deadline_s, "not in force within a second"
        time.sleep(0.005)


def produced(asker: Asker, *topics: str) -> list[int]:
    batch = build_batch([Record(0, 1_700_000_000_000, None, b"value")])
    data = [{"name": name, "partition_data": [{"index": 0, "records": batch}]} for name in topics]
    answer = asker.ask("Produce", 9, {"acks": -1, "timeout": 1000, "topic_data": data})
    errors = {one.name: int(one.partition_responses[0].error_code) for one in answer.responses}
    return [errors[name] for name in topics]


def fetched(asker: Asker, *topics: str, max_wait: int = 0, min_bytes: int = 0, **request: Any) -> list[int]:
    wanted = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 1000,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    values = {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": 10_000,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": [wanted]} for name in topics],
    }
    answer = asker.ask("Fetch", 12, values | request)
    return [int(one.partitions[0].error_code) for one in answer.responses]


DENIED = int(ErrorCode.topic_authorization_failed)


def test_an_acl_is_in_force_within_a_second_and_so_is_its_end(admin: Asker, stranger: Asker) -> None:
    assert produced(stranger, "orders") == [DENIED]
    create(admin, acl(WRITE, TOPIC, "orders"))
    soon(lambda: produced(stranger, "orders") == [0])
    assert produced(stranger, "orders", "payments", "absent") == [0, DENIED, DENIED]
    create(admin, acl(WRITE, TOPIC, "ord", pattern=PREFIXED, permission=2))
    soon(lambda: produced(stranger, "orders") == [DENIED])
    remove(admin)
    soon(lambda: produced(stranger, "orders") == [DENIED])


def test_a_request_that_is_denied_in_part_is_served_in_part(admin: Asker, stranger: Asker) -> None:
    assert produced(admin, "orders", "payments") == [0, 0]
    create(admin, acl(READ, TOPIC, "orders"))
    soon(lambda: fetched(stranger, "orders", "payments", "absent") == [0, DENIED, DENIED])


def test_a_reader_who_may_read_nothing_is_not_left_waiting(stranger: Asker) -> None:
    start_s = time.monotonic()
    assert fetched(stranger, "orders", max_wait=5_000, min_bytes=1_000) == [DENIED]
    assert time.monotonic() - start_s < 2


def test_a_waiting_reader_gets_nothing_once_it_may_not_read(
    cluster: Cluster, admin: Asker, stranger: Asker
) -> None:
    cluster.create_topic("taken", 1)
    create(admin, acl(READ, TOPIC, "taken"))
    soon(lambda: fetched(stranger, "taken") == [0])
    key = 1
    values = {
        "replica_id": -1,
        "max_wait": 3_000,
        "min_bytes": 1,
        "max_bytes": 10_000,
        "session_epoch": -1,
        "topics": [
            {
                "topic": "taken",
                "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}],
            }
        ],
    }
    body = encode_request(key, 12, build(message_class("request", key, 12), values))
    request = request_header(key, 12, 7, "asker") + body
    stranger._socket.sendall(SIZE.pack(len(request)) + request)
    remove(admin)
    soon(lambda: produced(admin, "taken") == [0])
    answer = stranger._stream.read(*SIZE.unpack(stranger._stream.read(4)))
    assert b"value" not in answer


def test_who_says_that_it_is_a_broker_reads_nothing(admin: Asker, stranger: Asker) -> None:
    create(admin, acl(READ, TOPIC, "orders"))
    soon(lambda: fetched(stranger, "orders") == [0])
    assert fetched(stranger, "orders", replica_id=1, max_wait=2_000, min_bytes=1) == [DENIED]
    assert fetched(stranger, "orders", replica_id=1, session_epoch=0) == [DENIED]


def test_kept_answers_are_for_those_who_may_see_the_same(admin: Asker, stranger: Asker) -> None:
    def topics(asker: Asker) -> set[str]:
        return {topic.name for topic in asker.ask("Metadata", 12, {"topics": None}).topics}

    assert topics(admin) >= {"orders", "payments"} and topics(stranger) == set()
    create(admin, acl(DESCRIBE, TOPIC, "orders"))
    soon(lambda: topics(stranger) == {"orders"})
    assert topics(admin) >= {"orders", "payments"}
    remove(admin)
    soon(lambda: topics(stranger) == set())


def test_a_topic_is_made_for_who_may_create_it(admin: Asker, stranger: Asker) -> None:
    def asked(*names: str) -> list[int]:
        values = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
        errors = {one.name: int(one.error_code) for one in stranger.ask("Metadata", 12, values).topics}
        return [errors[name] for name in names]

    create(
        admin,
        acl(DESCRIBE, TOPIC, "made-", pattern=PREFIXED),
        acl(CREATE, TOPIC, "made-by", pattern=PREFIXED),
    )
    soon(lambda: asked("made-by-me", "made-elsewhere", "hidden") == [0, DENIED, DENIED])
    names = {topic.name for topic in admin.ask("Metadata", 12, {"topics": None}).topics}
    assert "made-by-me" in names and not {"made-elsewhere", "hidden"} & names


def test_an_expression_finds_only_topics_that_its_member_may_see(admin: Asker, stranger: Asker) -> None:
    create(admin, acl(READ, GROUP, "readers"), acl(DESCRIBE, TOPIC, "orders"))
    denied = ErrorCode.group_authorization_failed
    soon(lambda: stranger.ask("Heartbeat", 4, {"group_id": "readers"}).error_code != denied)
    admin.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["readers"]})
    beat = {
        "group_id": "readers",
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_regex": "orders|payments",
        "topic_partitions": [],
    }
    answer = stranger.ask("ConsumerGroupHeartbeat", 1, beat)
    assert answer.error_code == 0
    ids = {topic.topic_id: topic.name for topic in admin.ask("Metadata", 12, {"topics": None}).topics}
    assert [ids[one.topic_id] for one in answer.assignment.topic_partitions] == ["orders"]


def test_the_apis_between_brokers_are_closed_to_others(stranger: Asker) -> None:
    denied = int(ErrorCode.cluster_authorization_failed)
    assert stranger.ask("AllocateProducerIds", 0, {"broker_id": 1, "broker_epoch": 1}).error_code == denied
    assert stranger.ask("BrokerHeartbeat", 1, {"broker_id": 1}).error_code == denied
    assert stranger.ask("AlterPartition", 3, {"broker_id": 1, "topics": []}).error_code == denied
    envelope = {"request_data": b"", "request_principal": b"User:admin", "client_host_address": b"127.0.0.1"}
    assert stranger.ask("Envelope", 0, envelope).error_code == denied
    body = pack_request(FEED, {"broker": 1, "position": (-1, -1), "wait_ms": 0})
    frame = memoryview(stranger.send(CLUSTER_KEY, CLUSTER_VERSION, body))
    _, position = parse_response_header(frame, CLUSTER_KEY, CLUSTER_VERSION)
    answer, pieces = parse_answer(frame[position:])
    assert (answer["error"], pieces) == (denied, [])


def test_what_a_stranger_says_to_the_controller_is_not_even_read(stranger: Asker) -> None:
    body = bytes((FEED,)) + b"[" * 1_000_000
    frame = memoryview(stranger.send(CLUSTER_KEY, CLUSTER_VERSION, body))
    _, position = parse_response_header(frame, CLUSTER_KEY, CLUSTER_VERSION)
    answer, _ = parse_answer(frame[position:])
    assert answer["error"] == int(ErrorCode.cluster_authorization_failed)


def test_a_logger_that_is_named_twice_is_altered_by_nobody(admin: Asker, stranger: Asker) -> None:
    (broker,) = admin.ask("DescribeCluster", 0, {}).brokers
    config = {"name": "moldau.test.twice", "config_operation": 0, "value": "FATAL"}
    logger = logging.getLogger(config["name"])
    resource = {"resource_type": LOGGER, "resource_name": str(broker.broker_id), "configs": [config]}
    for asker in (stranger, admin):
        answer = asker.ask("IncrementalAlterConfigs", 1, {"resources": [resource, resource]})
        told = {(int(one.error_code), one.error_message) for one in answer.responses}
        assert told == {(int(ErrorCode.invalid_request), "Each resource must appear at most once.")}
    assert logger.level == logging.NOTSET
    (denied,) = stranger.ask("IncrementalAlterConfigs", 1, {"resources": [resource]}).responses
    assert denied.error_code == ErrorCode.cluster_authorization_failed


def test_every_broker_follows_and_the_controller_decides_for_who_has_asked_another() -> None:
    with Cluster(brokers=3, topics={"orders": 3}, config=SETTINGS) as running:
        addresses = running.bootstrap_servers.split(",")
        admins = [Asker(address, HERE) for address in addresses]
        strangers = [Asker(address, ELSEWHERE) for address in addresses]
        lock(admins[0])

        def created(asker: Asker, name: str) -> int:
            topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
            answer = asker.ask(
                "CreateTopics", 7, {"topics": [topic], "timeout": 5_000, "validate_only": True}
            )
            return int(answer.topics[0].error_code)

        soon(lambda: {created(asker, "new") for asker in strangers} == {DENIED})
        assert {created(asker, "new") for asker in admins} == {0}
        for number, admin in enumerate(admins):
            name = f"new-{number}"
            create(admin, acl(CREATE, TOPIC, name))
            soon(lambda name=name: {created(asker, name) for asker in strangers} == {0})
            soon(lambda name=name: {seen(asker, name) for asker in admins} == {1})
        assert {created(asker, "new") for asker in strangers} == {DENIED}


def seen(asker: Asker, name: str) -> int:
    """The ACLs of a topic, as a broker knows them."""
    wanted = {"resource_type_filter": TOPIC, "resource_name_filter": name, "pattern_type_filter": LITERAL}
    anybody = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    answer = asker.ask("DescribeAcls", 3, wanted | anybody)
    return sum(len(resource.acls) for resource in answer.resources)


def test_brokers_are_brokers_by_a_right_that_can_be_denied(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(brokers=2, topics={"orders": 1}, config=SETTINGS) as running:
        admin = Asker(running.bootstrap_servers.split(",")[0], HERE)
        lock(admin)
        denied = acl(9, CLUSTER, "kafka-cluster", HERE, permission=2)
        create(admin, denied)
        soon(lambda: admin.ask("AllocateProducerIds", 0, {"broker_id": 1}).error_code == 31)
        caplog.clear()
        deadline_s = time.monotonic() + 10
        while "must be one of super.users" not in caplog.text:
            assert time.monotonic() < deadline_s, "nobody says what is wrong"
            time.sleep(0.05)


def test_without_an_authorizer_everyone_may_do_everything() -> None:
    with Cluster(topics={"orders": 1}) as running:
        asker = Asker(running.bootstrap_servers, ELSEWHERE)
        assert produced(asker, "orders") == [0] and fetched(asker, "orders") == [0]


@pytest.mark.parametrize(
    ("api", "version", "asked", "results"),
    [
        ("DescribeClientQuotas", 1, {"components": (), "strict": False}, "entries"),
        (
            "AlterClientQuotas",
            1,
            {
                "entries": [
                    {
                        "entity": [{"entity_type": "user", "entity_name": "alice"}],
                        "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                    }
                ],
                "validate_only": False,
            },
            "entries",
        ),
        ("DescribeUserScramCredentials", 0, {"users": [{"name": "alice"}]}, "results"),
        (
            "AlterUserScramCredentials",
            0,
            {"deletions": [{"name": "alice", "mechanism": 1}], "upsertions": ()},
            "results",
        ),
    ],
)
def test_users_and_quotas_are_for_those_who_may_manage_the_cluster(
    stranger: Asker, admin: Asker, api: str, version: int, asked: dict[str, Any], results: str
) -> None:
    denied = stranger.ask(api, version, asked)
    errors = {one.error_code for one in getattr(denied, results) or ()}
    assert errors | {getattr(denied, "error_code", 0)} - {0} == {ErrorCode.cluster_authorization_failed}
    allowed = admin.ask(api, version, asked)
    assert ErrorCode.cluster_authorization_failed not in {
        one.error_code for one in getattr(allowed, results) or () if hasattr(one, "error_code")
    } | {getattr(allowed, "error_code", 0)}
