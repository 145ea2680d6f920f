"""CreateTopics, DeleteTopics and CreatePartitions decide as Kafka does; the texts were taken from its
answers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.config.broker import BrokerConfig
from moldau.controller.slices import whole
from moldau.controller.topics import (
    CreateOutcome,
    MorePartitions,
    NewTopic,
    TopicReference,
    decide_create,
    decide_create_partitions,
    decide_delete,
)
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerChanged, BrokerInfo, BrokerRegistered, PartitionState, TopicCreated

THERE = UUID(int=77)
CONFIG = BrokerConfig.parse({"num.partitions": "3"})


def fence(image: ClusterImage, broker_id: int, *, shuts_down: bool = False) -> None:
    image.apply(BrokerChanged(broker_id, 0, is_fenced=not shuts_down, is_shutting_down=shuts_down))


@pytest.fixture
def image() -> ClusterImage:
    image = ClusterImage("cluster")
    image.apply(BrokerRegistered(BrokerInfo(1, {})))
    state = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
    image.apply(TopicCreated("there", THERE, (state, state), {}))
    image.apply(TopicCreated("with.dot", UUID(int=78), (state,), {}))
    return image


def new_ids() -> Callable[[], UUID]:
    numbers = count(1000)
    return lambda: UUID(int=next(numbers))


def create(image: ClusterImage, *topics: NewTopic) -> list[CreateOutcome]:
    return whole(decide_create(image, CONFIG, topics, new_ids()))


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic(""),
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: the empty string is not allowed",
        ),
        (NewTopic(".."), ErrorCode.invalid_topic_exception, "Topic name is invalid: '..' is not allowed"),
        (
            NewTopic("a b"),
            ErrorCode.invalid_topic_exception,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
        (
            NewTopic("x" * 250),
            ErrorCode.invalid_topic_exception,
            f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249",
        ),
        (
            NewTopic("__cluster_metadata"),
            ErrorCode.invalid_request,
            "Creation of internal topic __cluster_metadata is prohibited.",
        ),
        (NewTopic("there", 0), ErrorCode.topic_already_exists, "Topic 'there' already exists."),
        (
            NewTopic("with_dot"),
            ErrorCode.invalid_topic_exception,
            "Topic 'with_dot' collides with existing topic: with.dot",
        ),
        (
            NewTopic("a", 0),
            ErrorCode.invalid_partitions,
            "Number of partitions was set to an invalid non-positive value.",
        ),
        (
            NewTopic("a", 0, 0),
            ErrorCode.invalid_replication_factor,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            NewTopic("a", 1, 2),
            ErrorCode.invalid_replication_factor,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached "
            "because only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (
            NewTopic("a", 10_001),
            ErrorCode.policy_violation,
            "Excessively large number of partitions per request.",
        ),
        (
            NewTopic("a", 0, configs=[("x", "1")]),
            ErrorCode.invalid_config,
            "Unknown topic config name: x",
        ),
        (
            NewTopic("a", configs=[("b", None), ("c", None)]),
            ErrorCode.invalid_config,
            "Null value not supported for topic configs: b,c",
        ),
        (
            NewTopic("a", 2, 2, [(0, (1,))]),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            NewTopic("a", 2, -1, [(0, (1,))]),
            ErrorCode.invalid_request,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("a", -1, -1, [(0, (1,)), (2, (1,))]),
            ErrorCode.invalid_replica_assignment,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("a", -1, -1, [(0, (1,)), (0, (1,))]),
            ErrorCode.invalid_replica_assignment,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("a", -1, -1, [(0, (7,))]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            NewTopic("a", -1, -1, [(0, (1, 1))]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("a", -1, -1, [(0, ())]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes an empty replica list.",
        ),
    ],
)
def test_a_topic_that_cannot_be_created_gets_kafkas_answer(
    image: ClusterImage, topic: NewTopic, code: ErrorCode, message: str
) -> None:
    (outcome,) = create(image, topic)
    assert (outcome.error, outcome.message, outcome.record) == (code, message, None)


def test_a_topic_that_says_nothing_gets_the_brokers_defaults(image: ClusterImage) -> None:
    (outcome,) = create(image, NewTopic("new"))
    assert outcome.record is not None
    assert outcome.record.partitions == (PartitionState(1, 0, (1,), (1,)),) * 3


def test_a_manual_assignment_gives_partitions_and_leaders(image: ClusterImage) -> None:
    image.apply(BrokerRegistered(BrokerInfo(2, {})))
    (outcome,) = create(image, NewTopic("new", assignments=[(1, (2, 1)), (0, (1, 2))]))
    assert outcome.record is not None
    assert [state.replicas for state in outcome.record.partitions] == [(1, 2), (2, 1)]
    assert [state.leader for state in outcome.record.partitions] == [1, 2]


def test_a_fenced_broker_gets_a_replica_but_is_not_in_sync_and_does_not_lead(image: ClusterImage) -> None:
    for broker_id in (2, 3):
        image.apply(BrokerRegistered(BrokerInfo(broker_id, {})))
    fence(image, 2)
    (outcome,) = create(image, NewTopic("new", assignments=[(0, (2, 1, 3))]))
    assert outcome.record is not None
    assert outcome.record.partitions == (PartitionState(1, 0, (2, 1, 3), (1, 3)),)
    fence(image, 3, shuts_down=True)
    (added,) = whole(decide_create_partitions(image, CONFIG, [MorePartitions("there", 3)]))
    assert added.record is not None
    assert added.record.partitions == (PartitionState(1, 0, (1,), (1,)),)


@pytest.mark.parametrize("shuts_down", [False, True])
def test_nothing_is_created_where_nobody_can_lead_it(image: ClusterImage, shuts_down: bool) -> None:
    fence(image, 1, shuts_down=shuts_down)
    by_hand, by_number = create(image, NewTopic("a", assignments=[(0, (1,))]), NewTopic("b", 1, 1))
    assert (by_hand.error, by_hand.message) == (
        ErrorCode.invalid_replica_assignment,
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled "
        "shutdown.",
    )
    assert (by_number.error, by_number.message) == (
        ErrorCode.invalid_replication_factor,
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
    )


def test_many_topics_of_one_partition_are_led_as_evenly_as_one_topic_of_many(image: ClusterImage) -> None:
    for broker_id in (2, 3):
        image.apply(BrokerRegistered(BrokerInfo(broker_id, {})))
    made = new_ids()
    leaders, followers = [], []
    for number in range(300):
        (outcome,) = whole(decide_create(image, CONFIG, [NewTopic(f"t{number}", 1, 2)], made))
        assert outcome.record is not None
        image.apply(outcome.record)
        leaders.append(outcome.record.partitions[0].leader)
        followers.append(outcome.record.partitions[0].replicas)
    assert [leaders.count(broker) for broker in (1, 2, 3)] == [100, 100, 100]
    assert {followers.count((a, b)) for a in (1, 2, 3) for b in (1, 2, 3) if a != b} == {50}


def test_topics_of_one_request_go_on_where_the_one_before_ended(image: ClusterImage) -> None:
    image.apply(BrokerRegistered(BrokerInfo(2, {})))
    outcomes = create(image, *(NewTopic(f"t{number}", 1, 1) for number in range(4)))
    led = [outcome.record.partitions[0].leader for outcome in outcomes if outcome.record is not None]
    assert sorted(led) == [1, 1, 2, 2]


def test_a_manual_assignment_has_the_same_number_of_replicas_everywhere(image: ClusterImage) -> None:
    image.apply(BrokerRegistered(BrokerInfo(2, {})))
    (outcome,) = create(image, NewTopic("new", assignments=[(0, (1,)), (1, (1, 2))]))
    assert outcome.error is ErrorCode.invalid_replica_assignment


def test_a_name_given_twice_is_refused_once_and_the_others_are_created(image: ClusterImage) -> None:
    outcomes = create(image, NewTopic("a"), NewTopic("b"), NewTopic("a", 2))
    assert [(o.name, o.error, o.message) for o in outcomes] == [
        ("a", ErrorCode.invalid_request, "Duplicate topic name."),
        ("b", ErrorCode.none, None),
    ]


def test_the_partitions_of_one_request_are_bounded_together(image: ClusterImage) -> None:
    outcomes = create(image, NewTopic("a", 5_000), NewTopic("b", 5_001))
    assert {outcome.error for outcome in outcomes} == {ErrorCode.policy_violation}


@pytest.mark.parametrize(
    ("reference", "code", "message"),
    [
        (
            TopicReference("absent"),
            ErrorCode.unknown_topic_or_partition,
            "This server does not host this topic-partition.",
        ),
        (
            TopicReference(None, UUID(int=5)),
            ErrorCode.unknown_topic_id,
            "This server does not host this topic ID.",
        ),
        (TopicReference(None), ErrorCode.invalid_request, "Neither topic name nor id were specified."),
        (
            TopicReference("there", THERE),
            ErrorCode.invalid_request,
            "You may not specify both topic name and topic id.",
        ),
    ],
)
def test_a_topic_that_cannot_be_deleted_gets_kafkas_answer(
    image: ClusterImage, reference: TopicReference, code: ErrorCode, message: str
) -> None:
    (outcome,) = whole(decide_delete(image, [reference], deletion_enabled=True))
    assert (outcome.error, outcome.message, outcome.record) == (code, message, None)


@pytest.mark.parametrize("reference", [TopicReference("there"), TopicReference(None, THERE)])
def test_a_topic_is_deleted_by_name_or_by_id(image: ClusterImage, reference: TopicReference) -> None:
    (outcome,) = whole(decide_delete(image, [reference], deletion_enabled=True))
    assert (outcome.name, outcome.topic_id, outcome.error) == ("there", THERE, ErrorCode.none)


def test_a_topic_named_twice_is_not_deleted(image: ClusterImage) -> None:
    by_name = whole(decide_delete(image, [TopicReference("there")] * 2, deletion_enabled=True))
    by_id = whole(decide_delete(image, [TopicReference(None, THERE)] * 2, deletion_enabled=True))
    assert [outcome.message for outcome in by_name] == ["Duplicate topic name."]
    assert [outcome.message for outcome in by_id] == ["Duplicate topic id."]


def test_nothing_is_deleted_where_deletion_is_disabled(image: ClusterImage) -> None:
    (outcome,) = whole(decide_delete(image, [TopicReference("there")], deletion_enabled=False))
    assert (outcome.error, outcome.record) == (ErrorCode.topic_deletion_disabled, None)


@pytest.mark.parametrize(
    ("wanted", "code", "message"),
    [
        (MorePartitions("absent", 3), ErrorCode.unknown_topic_or_partition, None),
        (MorePartitions("there", 2), ErrorCode.invalid_partitions, "Topic already has 2 partition(s)."),
        (
            MorePartitions("there", -1),
            ErrorCode.invalid_partitions,
            "The topic there currently has 2 partition(s); -1 would not be an increase.",
        ),
        (
            MorePartitions("there", 3, []),
            ErrorCode.invalid_replica_assignment,
            "Attempted to add 1 additional partition(s), but only 0 assignment(s) were specified.",
        ),
        (
            MorePartitions("there", 3, [(7,)]),
            ErrorCode.invalid_replica_assignment,
            "The manual partition assignment includes broker 7, but no such broker is registered.",
        ),
        (
            MorePartitions("there", 20_000),
            ErrorCode.policy_violation,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_partitions_that_cannot_be_added_get_kafkas_answer(
    image: ClusterImage, wanted: MorePartitions, code: ErrorCode, message: str | None
) -> None:
    (outcome,) = whole(decide_create_partitions(image, CONFIG, [wanted]))
    assert (outcome.error, outcome.message, outcome.record) == (code, message, None)


def test_partitions_are_added_with_or_without_an_assignment(image: ClusterImage) -> None:
    for assignments in (None, [(1,), (1,)]):
        (outcome,) = whole(decide_create_partitions(image, CONFIG, [MorePartitions("there", 4, assignments)]))
        assert outcome.record is not None
        assert len(outcome.record.partitions) == 2
