"""The image changes by records only, and says so by its version."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.base.invariant import InvariantBroken
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import (
    BrokerChanged,
    BrokerInfo,
    BrokerRegistered,
    BrokerUnregistered,
    ConfigChanged,
    ConfigResource,
    ControllerElected,
    Delta,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    Position,
    ProducerIdsAllocated,
    Record,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)

ONE, TWO = UUID(int=1), UUID(int=2)
STATE = PartitionState(leader=1, leader_epoch=0, replicas=(1, 2), isr=(1, 2))


def image_of(*records: Record) -> ClusterImage:
    image = ClusterImage("cluster")
    for record in records:
        image.apply(record)
    return image


def topic(name: str, topic_id: UUID = ONE) -> TopicCreated:
    return TopicCreated(name, topic_id, (STATE,), {})


def test_a_topic_is_found_by_name_and_by_id_until_it_is_deleted() -> None:
    image = image_of(topic("a"))
    assert image.topics["a"] is image.topic_by_id[ONE]
    image.apply(TopicDeleted("a", ONE))
    assert not image.topics
    assert not image.topic_by_id


def test_every_record_raises_the_version() -> None:
    image = ClusterImage("cluster")
    records: list[Record] = [
        BrokerRegistered(BrokerInfo(1, {"PLAINTEXT": ("host", 9092)})),
        ControllerElected(1, 1),
        topic("a"),
        PartitionsAdded("a", ONE, (STATE,)),
        ConfigChanged(ConfigResource(ResourceType.TOPIC, "a"), {"retention.ms": "5"}),
        TopicDeleted("a", ONE),
        BrokerUnregistered(1),
    ]
    for number, record in enumerate(records, 1):
        image.apply(record)
        assert image.version == number
    assert image.controller_id == 1
    assert not image.brokers


def test_partitions_are_added_behind_those_that_are_there() -> None:
    image = image_of(topic("a"))
    more = STATE._replace(leader=2)
    image.apply(PartitionsAdded("a", ONE, (more, more)))
    assert [state.leader for state in image.topics["a"].partitions] == [1, 2, 2]
    assert image.topic_by_id[ONE] is image.topics["a"]


def test_a_topic_that_someone_holds_does_not_change_under_him() -> None:
    image = image_of(topic("a"))
    held = image.topics["a"]
    image.apply(PartitionsChanged("a", ONE, {0: STATE._replace(leader=2, leader_epoch=1, partition_epoch=1)}))
    assert held.partitions[0].leader == 1
    assert image.topics["a"].partitions[0].leader == 2


def test_a_topics_settings_go_with_the_topic() -> None:
    resource = ConfigResource(ResourceType.TOPIC, "a")
    image = image_of(topic("a"), ConfigChanged(resource, {"retention.ms": "5"}))
    assert image.configs(resource) == image.topics["a"].configs == {"retention.ms": "5"}
    image.apply(TopicDeleted("a", ONE))
    image.apply(topic("a", TWO))
    assert image.configs(resource) == {}


def test_settings_of_brokers_and_groups_are_kept_by_name_while_there_are_any() -> None:
    default, own = ConfigResource(ResourceType.BROKER, ""), ConfigResource(ResourceType.BROKER, "1")
    group = ConfigResource(ResourceType.GROUP, "g")
    image = image_of(
        ConfigChanged(default, {"a": "1"}), ConfigChanged(own, {"a": "2"}), ConfigChanged(group, {"b": "3"})
    )
    assert image.broker_configs == {"": {"a": "1"}, "1": {"a": "2"}}
    assert image.configured(ResourceType.GROUP) == ["g"]
    image.apply(ConfigChanged(group, {}))
    assert image.configured(ResourceType.GROUP) == []
    assert image.configs(group) == {}


def test_names_that_differ_only_by_dot_and_underscore_collide() -> None:
    image = image_of(topic("a.b"))
    assert image.colliding_topic("a_b") == "a.b"
    assert image.colliding_topic("a.b") is None
    assert image.colliding_topic("a-b") is None
    image.apply(TopicDeleted("a.b", ONE))
    assert image.colliding_topic("a_b") is None


@pytest.mark.parametrize(
    "record",
    [
        topic("a", TWO),
        TopicDeleted("a", TWO),
        TopicDeleted("b", ONE),
        PartitionsAdded("b", ONE, (STATE,)),
        PartitionsChanged("a", ONE, {1: STATE._replace(partition_epoch=1)}),
        PartitionsChanged("a", ONE, {0: STATE}),
        ConfigChanged(ConfigResource(ResourceType.TOPIC, "b"), {}),
        TopicCreated("b", TWO, (), {}),
        ControllerElected(1, 4),
        BrokerChanged(7, 0, False, False),
        BrokerChanged(8, 4, False, False),
        ProducerIdsAllocated(999),
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_the_image_breaks_an_invariant(record: Record) -> None:
    image = image_of(
        ControllerElected(2, 5),
        topic("a"),
        ProducerIdsAllocated(1000),
        BrokerRegistered(BrokerInfo(8, {}, epoch=5)),
    )
    with pytest.raises(InvariantBroken):
        image.apply(record)


def test_a_fenced_broker_is_registered_but_not_among_those_that_serve() -> None:
    image = image_of(BrokerRegistered(BrokerInfo(1, {}, epoch=3, is_fenced=True)))
    assert list(image.registered) == [1] and not image.brokers
    image.apply(BrokerChanged(1, 3, is_fenced=False, is_shutting_down=False))
    assert image.brokers[1].is_active
    image.apply(BrokerChanged(1, 3, is_fenced=False, is_shutting_down=True))
    assert list(image.brokers) == [1] and not image.brokers[1].is_active
    image.apply(BrokerChanged(1, 3, is_fenced=True, is_shutting_down=False))
    assert not image.brokers
    image.apply(BrokerUnregistered(1))
    assert not image.registered


def test_deltas_follow_one_another_over_controllers() -> None:
    image = ClusterImage("cluster")
    image.apply_delta(Delta(1, 1, (ControllerElected(1, 1),)))
    image.apply_delta(Delta(1, 2, ()))
    image.apply_delta(Delta(4, 3, (topic("a"),)))
    assert image.position == Position(4, 3) and "a" in image.topics


@pytest.mark.parametrize("position", [(4, 3), (4, 5), (3, 4), (4, 1)])
def test_a_delta_that_does_not_follow_breaks_an_invariant(position: tuple[int, int]) -> None:
    image = ClusterImage("cluster")
    image.position = Position(4, 3)
    with pytest.raises(InvariantBroken):
        image.apply_delta(Delta(*position, ()))


def test_who_holds_an_image_sees_the_snapshot_that_it_became() -> None:
    held, other = image_of(topic("a")), image_of(topic("b"))
    other.position = Position(2, 9)
    version = held.version
    held.become(other)
    assert list(held.topics) == ["b"]
    assert held.position == Position(2, 9)
    assert held.version > version
