"""CreateTopics, DeleteTopics, CreatePartitions and the describing APIs, through the codecs in all their
versions.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.broker.guard import Guard
from moldau.broker.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
)
from moldau.controller.topics import NewTopic
from moldau.security.acls import (
    Entry,
    Operation,
    Pattern,
    Permission,
    Resource,
    ResourcePattern,
    resource_key,
    text_of,
)
from moldau.security.authorizer import Authorizer

from .admin_broker import AdminBroker, versions


def new_topic(name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> SimpleNamespace:
    settings = tuple(SimpleNamespace(name=key, value=value) for key, value in (configs or {}).items())
    return SimpleNamespace(
        name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=settings
    )


def create(broker: AdminBroker, version: int, *topics: SimpleNamespace, validate_only: bool = False) -> Any:
    return broker.ask(create_topics, version, topics=topics, timeout=1000, validate_only=validate_only).topics


@pytest.mark.parametrize("version", versions(create_topics))
def test_topics_are_created_in_every_version(version: int) -> None:
    broker = AdminBroker()
    good, bad = create(broker, version, new_topic("a", 3, {"retention.ms": " 5 "}), new_topic("a b"))
    assert good.error_code is ErrorCode.none
    assert bad.error_code is ErrorCode.invalid_topic_exception
    assert bad.error_message.startswith("Topic name is invalid")
    assert len(broker.image.topics["a"].partitions) == 3
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (3, 1)
        assert (bad.num_partitions, bad.replication_factor, bad.configs) == (-1, -1, ())
    if version >= 7:
        assert good.topic_id == broker.image.topics["a"].topic_id


def test_a_new_topics_settings_are_told_with_their_sources() -> None:
    broker = AdminBroker(log_roll_hours="2")
    (topic,) = create(broker, 7, new_topic("a", 1, {"retention.ms": " 5 ", "internal.segment.bytes": "9"}))
    settings = {config.name: (config.value, config.config_source) for config in topic.configs}
    assert len(settings) == 34
    assert settings["retention.ms"] == (" 5 ", 1)
    assert settings["internal.segment.bytes"] == ("9", 1)
    assert settings["segment.ms"] == ("7200000", 4)
    assert settings["flush.ms"] == ("9223372036854775807", 5)


def test_validate_only_creates_nothing() -> None:
    broker = AdminBroker()
    (topic,) = create(broker, 7, new_topic("a"), validate_only=True)
    assert topic.error_code is ErrorCode.none
    assert not broker.image.topics


@pytest.mark.parametrize("version", versions(delete_topics))
def test_topics_are_deleted_by_name_in_every_version(version: int) -> None:
    broker = AdminBroker()
    broker.create("a")
    topics = tuple(SimpleNamespace(name=name, topic_id=None) for name in ("a", "absent"))
    answer = broker.ask(delete_topics, version, topics=topics, topic_names=("a", "absent"), timeout=1000)
    assert [response.name for response in answer.responses] == ["a", "absent"]
    assert [response.error_code for response in answer.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert not broker.image.topics


def test_a_topic_is_deleted_by_id_and_told_with_its_name() -> None:
    broker = AdminBroker()
    broker.create("a")
    topic_id = broker.image.topics["a"].topic_id
    topics = (SimpleNamespace(name=None, topic_id=topic_id),)
    (response,) = broker.ask(delete_topics, 6, topics=topics, timeout=1000).responses
    assert (response.name, response.topic_id, response.error_code) == ("a", topic_id, ErrorCode.none)


def test_a_topic_that_comes_meanwhile_is_not_deleted_by_who_may_only_describe_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = AdminBroker()
    authorizer = Authorizer()
    key = resource_key(ResourcePattern(Resource.TOPIC, Pattern.PREFIXED, "new"))
    entry = Entry("User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
    deque(authorizer.take_over({key: {text_of(entry): ""}}), maxlen=0)
    broker.guard = Guard(authorizer, SimpleNamespace(monotonic=lambda: 0.0))  # type: ignore[arg-type]
    delete = broker.controller.delete_topics

    async def later(topics: Any, **more: Any) -> Any:
        await broker.controller.create_topics([NewTopic("newborn", 1)])
        return await delete(topics, **more)

    monkeypatch.setattr(broker.controller, "delete_topics", later)
    names = ("newborn", "hidden")
    answer = broker.ask(delete_topics, 5, principal="User:alice", topic_names=names, timeout=1000)
    assert {one.name: one.error_code for one in answer.responses} == {
        "newborn": ErrorCode.unknown_topic_or_partition,
        "hidden": ErrorCode.topic_authorization_failed,
    }
    assert "newborn" in broker.image.topics


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.invalid_request), (3, ErrorCode.topic_deletion_disabled)]
)
def test_older_clients_do_not_know_the_code_for_disabled_deletion(version: int, code: ErrorCode) -> None:
    broker = AdminBroker(delete_topic_enable="false")
    broker.create("a")
    (response,) = broker.ask(delete_topics, version, topic_names=("a",), timeout=1000).responses
    assert response.error_code is code
    assert "a" in broker.image.topics


@pytest.mark.parametrize("version", versions(create_partitions))
def test_partitions_are_added_in_every_version(version: int) -> None:
    broker = AdminBroker()
    broker.create("a", 2)
    topics = (
        SimpleNamespace(name="a", count=4, assignments=None),
        SimpleNamespace(name="absent", count=4, assignments=(SimpleNamespace(broker_ids=(1,)),)),
    )
    answer = broker.ask(create_partitions, version, topics=topics, timeout=1000, validate_only=False)
    assert [(r.name, r.error_code) for r in answer.results] == [
        ("a", ErrorCode.none),
        ("absent", ErrorCode.unknown_topic_or_partition),
    ]
    assert len(broker.image.topics["a"].partitions) == 4


@pytest.mark.parametrize("version", versions(describe_cluster))
def test_the_cluster_is_described_in_every_version(version: int) -> None:
    broker = AdminBroker()
    answer = broker.ask(
        describe_cluster,
        version,
        include_cluster_authorized_operations=True,
        endpoint_type=1,
        include_fenced_brokers=False,
    )
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port, node.rack) == (1, "10.0.0.5", 9092, "rack-1")
    assert (answer.cluster_id, answer.controller_id) == (broker.image.cluster_id, 1)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)],
)
def test_a_broker_is_no_controllers_endpoint(endpoint_type: int, code: ErrorCode) -> None:
    answer = AdminBroker().ask(
        describe_cluster,
        2,
        include_cluster_authorized_operations=False,
        endpoint_type=endpoint_type,
        include_fenced_brokers=False,
    )
    assert (answer.error_code, answer.brokers) == (code, ())


def pages(broker: AdminBroker, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """All pages, each as topics with partitions."""
    cursor, found = None, []
    while True:
        answer = broker.ask(
            describe_topic_partitions,
            0,
            topics=tuple(SimpleNamespace(name=name) for name in names),
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        cursor = answer.next_cursor
        if cursor is None:
            return found


def test_partitions_are_described_page_by_page_in_the_order_of_names() -> None:
    broker = AdminBroker()
    broker.create("b", 2)
    broker.create("a", 3)
    assert pages(broker, ["b", "a", "b"], 2000) == [[("a", [0, 1, 2]), ("b", [0, 1])]]
    assert pages(broker, [], 2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1])]]
    assert pages(broker, [], 3) == [[("a", [0, 1, 2])], [("b", [0, 1])]]
    assert pages(broker, [], 0) == [[("a", [0])], [("a", [1])], [("a", [2])], [("b", [0])], [("b", [1])]]


def test_the_brokers_own_limit_bounds_a_page() -> None:
    broker = AdminBroker(max_request_partition_size_limit="2")
    broker.create("a", 3)
    assert pages(broker, ["a"], 2000) == [[("a", [0, 1])], [("a", [2])]]


@pytest.mark.parametrize("cursor", [("a", -1), ("absent", 0)])
def test_a_cursor_that_points_nowhere_is_refused(cursor: tuple[str, int]) -> None:
    broker = AdminBroker()
    broker.create("a")
    answer = broker.ask(
        describe_topic_partitions,
        0,
        topics=(SimpleNamespace(name="a"),),
        response_partition_limit=10,
        cursor=SimpleNamespace(topic_name=cursor[0], partition_index=cursor[1]),
    )
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", ErrorCode.invalid_request)]


@pytest.mark.parametrize("version", versions(describe_log_dirs))
def test_the_data_folders_are_described_with_their_partitions(version: int) -> None:
    broker = AdminBroker()
    broker.create("a", 2)
    broker.create("b")
    asked = (
        SimpleNamespace(topic="a", partitions=(0, 1, 9)),
        SimpleNamespace(topic="absent", partitions=(0,)),
    )
    answer = broker.ask(describe_log_dirs, version, topics=asked)
    found = {
        result.log_dir: [
            (t.name, [(p.partition_index, p.partition_size) for p in t.partitions]) for t in result.topics
        ]
        for result in answer.results
    }
    assert found == {"/one": [("a", [(0, 7)])], "/two": [("a", [(1, 7)])]}
    if version >= 4:
        assert {result.usable_bytes for result in answer.results} == {1000}
    everything = broker.ask(describe_log_dirs, version, topics=None)
    assert [t.name for result in everything.results for t in result.topics] == ["a", "b", "a"]
