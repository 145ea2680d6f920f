"""Metadata in all its versions: who is asked for, what is created, which address a client is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.limits import METADATA_KEPT_TOPICS_MAX
from moldau.broker.handlers import metadata
from moldau.runtime.line import whole

from .admin_broker import AdminBroker, versions

UNASKED = -2147483648


def ask(
    broker: AdminBroker,
    version: int,
    names: Any,
    *,
    create: bool = False,
    operations: bool = False,
    **more: Any,
) -> Any:
    topics = names
    if names is not None:
        topics = tuple(
            SimpleNamespace(name=None, topic_id=name)
            if isinstance(name, UUID)
            else SimpleNamespace(name=name, topic_id=None)
            for name in names
        )
    return broker.ask(
        metadata,
        version,
        topics=topics,
        allow_auto_topic_creation=create,
        include_cluster_authorized_operations=operations,
        include_topic_authorized_operations=operations,
        **more,
    )


@pytest.fixture
def broker() -> AdminBroker:
    broker = AdminBroker()
    broker.create("a", 2)
    broker.create("b")
    return broker


@pytest.mark.parametrize("version", versions(metadata))
def test_a_topic_is_told_with_its_leaders_in_every_version(broker: AdminBroker, version: int) -> None:
    answer = ask(broker, version, ["a"])
    (node,) = answer.brokers
    assert (node.node_id, node.host, node.port) == (1, "10.0.0.5", 9092)
    (topic,) = answer.topics
    assert (topic.name, topic.error_code) == ("a", ErrorCode.none)
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    assert {(p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions} == {(1, (1,), (1,))}
    if version >= 1:
        assert answer.controller_id == 1
        assert node.rack == "rack-1"
    if version >= 10:
        assert topic.topic_id == broker.image.topics["a"].topic_id


@pytest.mark.parametrize("version", versions(metadata))
def test_no_list_means_all_topics_and_an_empty_one_only_in_version_0(
    broker: AdminBroker, version: int
) -> None:
    empty = [topic.name for topic in ask(broker, version, []).topics]
    assert empty == (["a", "b"] if version == 0 else [])
    if version > 0:
        assert [topic.name for topic in ask(broker, version, None).topics] == ["a", "b"]


def test_a_topic_that_is_not_there_is_unknown_and_a_bad_name_invalid(broker: AdminBroker) -> None:
    answer = ask(broker, 12, ["absent", "a/b", "", "absent"])
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("a/b", ErrorCode.invalid_topic_exception),
        ("", ErrorCode.invalid_topic_exception),
    ]
    assert "absent" not in broker.image.topics


@pytest.mark.parametrize("version", versions(metadata))
def test_a_topic_is_created_and_told_at_once_where_the_client_allows_it(version: int) -> None:
    broker = AdminBroker(num_partitions="3")
    # Before version 4 a client could not say, and it was allowed.
    (topic,) = ask(broker, version, ["new"], create=version >= 4).topics
    assert (topic.error_code, len(topic.partitions)) == (ErrorCode.none, 3)


def test_no_topic_is_created_where_the_broker_does_not_allow_it() -> None:
    broker = AdminBroker(auto_create_topics_enable="false")
    (topic,) = ask(broker, 12, ["new"], create=True).topics
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert not broker.image.topics


def test_of_the_reasons_why_a_topic_is_not_created_a_client_is_told_those_that_help() -> None:
    broker = AdminBroker(default_replication_factor="3")
    (topic,) = ask(broker, 12, ["new"], create=True).topics
    assert topic.error_code is ErrorCode.invalid_replication_factor


def test_topics_are_found_by_id_since_version_12(broker: AdminBroker) -> None:
    topic_id = broker.image.topics["a"].topic_id
    for version in (12, 13):
        found, absent = ask(broker, version, [topic_id, UUID(int=5)]).topics
        assert (found.name, found.topic_id) == ("a", topic_id)
        assert (absent.name, absent.topic_id) == (None, UUID(int=5))
        assert absent.error_code is ErrorCode.unknown_topic_id


def test_the_authorized_operations_are_all_where_asked_and_none_otherwise(broker: AdminBroker) -> None:
    asked, unasked = ask(broker, 9, ["a"], operations=True), ask(broker, 9, ["a"])
    assert (asked.topics[0].topic_authorized_operations, asked.cluster_authorized_operations) == (3576, 8096)
    assert (unasked.topics[0].topic_authorized_operations, unasked.cluster_authorized_operations) == (
        UNASKED,
        UNASKED,
    )


def test_internal_topics_are_marked() -> None:
    broker = AdminBroker()
    broker.create("__consumer_offsets")
    broker.create("mine")
    assert [topic.is_internal for topic in ask(broker, 12, None).topics] == [True, False]


def test_a_client_is_told_the_address_that_it_connected_to(broker: AdminBroker) -> None:
    (node,) = ask(broker, 12, [], local_address=("::ffff:172.17.0.2", 1234)).brokers
    assert (node.host, node.port) == ("172.17.0.2", 1234)


def test_an_advertised_listener_is_told_to_its_own_clients_only() -> None:
    broker = AdminBroker(
        listeners="PLAINTEXT://:9092,INNER://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
        advertised_listeners="INNER://broker.example:19093",
    )
    (inner,) = ask(broker, 12, [], listener_name="INNER").brokers
    (plain,) = ask(broker, 12, [], listener_name="PLAINTEXT").brokers
    assert (inner.host, inner.port) == ("broker.example", 19093)
    assert (plain.host, plain.port) == ("10.0.0.5", 9092)


@pytest.mark.parametrize("version", [5, 6])
def test_brokers_without_the_clients_listener_are_out_of_its_reach(version: int) -> None:
    broker = AdminBroker(default_replication_factor="1")
    broker.create("a")
    (own,) = broker.image.brokers.values()
    broker.image.brokers[1] = own._replace(listeners={"INTERNAL": ("10.0.0.5", 9093)})
    (partition,) = ask(broker, version, ["a"]).topics[0].partitions
    expected = ErrorCode.listener_not_found if version >= 6 else ErrorCode.leader_not_available
    assert (partition.error_code, partition.leader_id) == (expected, -1)
    assert (partition.replica_nodes, partition.isr_nodes) == ((1,), (1,))
    if version >= 5:
        assert partition.offline_replicas == (1,)


def test_what_is_asked_again_is_packed_once_until_the_cluster_changes(broker: AdminBroker) -> None:
    for names in (None, ["a"], ["a", "b"]):
        before = broker.kept_answers.hits
        first, again = ask(broker, 12, names), ask(broker, 12, names)
        assert first == again
        assert broker.kept_answers.hits == before + 1
    broker.create("c")
    assert [topic.name for topic in ask(broker, 12, None).topics] == ["a", "b", "c"]
    assert len(broker.kept_answers) == 1, "what was kept of the cluster before is gone"


def test_an_answer_is_kept_for_those_who_ask_the_same_in_the_same_way(broker: AdminBroker) -> None:
    own = ask(broker, 12, None)
    for other in (
        ask(broker, 11, None),
        ask(broker, 12, None, operations=True),
        ask(broker, 12, None, local_address=("10.0.0.6", 9092)),
        ask(broker, 12, ["a"]),
        ask(broker, 12, ["b"]),
        ask(broker, 12, [broker.image.topics["a"].topic_id]),
    ):
        assert other != own
    (node,) = ask(broker, 12, None, local_address=("10.0.0.6", 9092)).brokers
    assert node.host == "10.0.0.6"
    assert broker.kept_answers.hits == 1


def test_another_controller_or_another_advertised_address_is_told_at_once(broker: AdminBroker) -> None:
    ask(broker, 12, None)
    (own,) = broker.image.brokers.values()
    broker.image.brokers[2] = own._replace(id=2, listeners={"PLAINTEXT": ("other", 9092)})
    broker.image.controller_id = 2
    answer = ask(broker, 12, None)
    assert answer.controller_id == 2
    assert [(node.node_id, node.host) for node in answer.brokers] == [(1, "10.0.0.5"), (2, "other")]


def test_an_answer_that_was_begun_before_a_change_is_not_kept(broker: AdminBroker) -> None:
    handling = begin(broker, None)
    next(handling)
    broker.create("c")
    whole(handling)
    assert len(broker.kept_answers) == 0


def test_of_those_who_ask_at_the_same_time_the_others_take_what_the_first_has_made(
    broker: AdminBroker,
) -> None:
    first, second = begin(broker, None), begin(broker, None)
    next(first)
    next(second)
    made = whole(first)
    assert whole(second) is made


def test_an_answer_for_many_named_topics_is_not_kept(broker: AdminBroker) -> None:
    ask(broker, 12, [f"absent-{number}" for number in range(METADATA_KEPT_TOPICS_MAX + 1)])
    assert len(broker.kept_answers) == 0


def begin(broker: AdminBroker, topics: Any) -> Any:
    request = SimpleNamespace(
        topics=topics,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    context = SimpleNamespace(version=12, listener_name="PLAINTEXT", local_address=("10.0.0.5", 9092))
    return metadata.handle(broker, context, request)  # type: ignore[arg-type]
