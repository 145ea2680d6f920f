"""Requests that ask for very much: refused before anything of that size is made, or decided in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.base.limits import (
    CONFIGS_PER_RESOURCE_MAX,
    PARTITIONS_PER_REQUEST_MAX,
    PARTITIONS_PER_TOPIC_MAX,
)
from moldau.base.limits import TOPIC_NAME_LENGTH_MAX as NAME_LENGTH_MAX
from moldau.config.broker import BrokerConfig
from moldau.controller.configs import Alteration, Alterations, decide_alter
from moldau.controller.leaders import Election, decide_elections
from moldau.controller.reassignments import Reassignment, decide_reassignments
from moldau.controller.slices import LOOKS_PER_SLICE, PARTITIONS_PER_SLICE, Slices, whole
from moldau.controller.topics import (
    TOO_MANY_PARTITIONS,
    MorePartitions,
    NewTopic,
    TopicReference,
    decide_create,
    decide_create_partitions,
    decide_delete,
)
from moldau.log.names import FOLDER_NAME_BYTES_MAX
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import BrokerInfo, BrokerRegistered, PartitionState, ResourceType, TopicCreated
from moldau.store.memory import MemoryStore

from .small_cluster import cluster, rules
from .test_controller import Node

ANY = 2**31 - 1
MANY = 20_000
LED = PartitionState(leader=1, leader_epoch=0, replicas=(1,), isr=(1,))
CONFIG = BrokerConfig.parse({})


def new_ids() -> Callable[[], UUID]:
    numbers = count(1000)
    return lambda: UUID(int=next(numbers))


def image_of(*topics: tuple[str, int], brokers: int = 1) -> ClusterImage:
    image = ClusterImage("cluster")
    for broker_id in range(1, brokers + 1):
        image.apply(BrokerRegistered(BrokerInfo(broker_id, {})))
    for number, (name, partitions) in enumerate(topics):
        image.apply(TopicCreated(name, UUID(int=7 + number), (LED,) * partitions, {}))
    return image


def created(image: ClusterImage, topics: list[NewTopic], **settings: str) -> list[Any]:
    config = BrokerConfig.parse({key.replace("_", "."): value for key, value in settings.items()})
    return whole(decide_create(image, config, topics, new_ids()))


def errors(outcomes: list[Any]) -> set[ErrorCode]:
    return {outcome.error for outcome in outcomes}


# Too much


def test_the_folder_of_every_partition_that_there_may_be_has_a_name_that_fits() -> None:
    longest = "x" * NAME_LENGTH_MAX
    assert len(str(TopicPartition(longest, PARTITIONS_PER_TOPIC_MAX - 1))) == FOLDER_NAME_BYTES_MAX


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("assignments", [None, [(1,)]])
def test_a_topic_does_not_grow_past_what_folders_can_be_named_after(
    assignments: list[tuple[int, ...]] | None, validate: bool
) -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        name = "x" * NAME_LENGTH_MAX
        state = controller.image
        state.apply(TopicCreated(name, UUID(int=7), (LED,) * PARTITIONS_PER_TOPIC_MAX, {}))
        wanted = MorePartitions(name, PARTITIONS_PER_TOPIC_MAX + 1, assignments)
        (outcome,) = await controller.create_partitions([wanted], validate_only=validate)
        assert outcome.error == ErrorCode.invalid_partitions
        assert outcome.message == "A topic may have 100000 partitions; 100001 are too many."
        assert len(controller.image.topics[name].partitions) == PARTITIONS_PER_TOPIC_MAX

    asyncio.run(scene())


def test_partitions_without_number_are_refused_before_they_are_listed() -> None:
    image = image_of(("there", 1))
    for topics in ([NewTopic("new", ANY, 1)], [NewTopic(f"t{n}", 10_000, 1) for n in range(10_000)]):
        outcomes = created(image, topics)
        assert len(outcomes) == len(topics) and errors(outcomes) == {ErrorCode.policy_violation}
        assert {outcome.message for outcome in outcomes} == {TOO_MANY_PARTITIONS}
    assert errors(created(image, [NewTopic("new")], num_partitions=str(ANY))) == {ErrorCode.policy_violation}
    (outcome,) = whole(decide_create_partitions(image, CONFIG, [MorePartitions("there", ANY)]))
    assert outcome.error == ErrorCode.invalid_partitions


def test_one_request_enlarges_topics_by_no_more_than_it_may_create() -> None:
    image = image_of(*((f"t{n}", 1) for n in range(3)))
    half = PARTITIONS_PER_REQUEST_MAX // 2
    for names, expected in ((2, ErrorCode.none), (3, ErrorCode.policy_violation)):
        asked = [MorePartitions(f"t{n}", 1 + half) for n in range(names)]
        assert errors(whole(decide_create_partitions(image, CONFIG, asked))) == {expected}


@pytest.mark.parametrize("replicas", [tuple(range(2, 100_000)), (1,) * 100_000], ids=["unknown", "twice"])
def test_assignments_to_absurdly_many_brokers_are_refused_with_the_lowest_that_is_wrong(
    replicas: tuple[int, ...],
) -> None:
    image = image_of(("there", 1))
    (made,) = created(image, [NewTopic("new", assignments=[(0, replicas)])])
    (more,) = whole(decide_create_partitions(image, CONFIG, [MorePartitions("there", 2, [replicas])]))
    moved = whole(
        decide_reassignments(image, rules(), [Reassignment(TopicPartition("there", 0), replicas)])
    ).outcomes[0]
    reason = (
        "the broker 1 more than once." if replicas[0] == 1 else "broker 2, but no such broker is registered."
    )
    for outcome in (made, more, moved):
        assert outcome.error == ErrorCode.invalid_replica_assignment
        assert outcome.message == f"The manual partition assignment includes {reason}"


def test_more_configs_than_there_are_keys_are_refused() -> None:
    given = [(f"key{n}", "value") for n in range(CONFIGS_PER_RESOURCE_MAX + 1)]
    (outcome,) = created(image_of(), [NewTopic("new", 1, 1, (), given)])
    assert outcome.error == ErrorCode.invalid_config and "1000 configs" in outcome.message
    asked = Alterations(ResourceType.BROKER, "1", [Alteration(*one) for one in given])
    (altered,) = whole(decide_alter(image_of(), CONFIG, [asked]))
    assert altered.error == ErrorCode.invalid_request and "1000 configs" in (altered.message or "")


# Brokers that are full


def test_a_broker_takes_no_more_partitions_than_it_may_have() -> None:
    image = image_of(("there", 8))
    limit = {"moldau_max_partitions_per_broker": "10"}
    fits, does_not = created(image, [NewTopic("two", 2, 1), NewTopic("one", 1, 1)], **limit)
    assert fits.error == ErrorCode.none
    assert does_not.error == ErrorCode.policy_violation
    assert does_not.message == (
        "Broker 1 would have 11 partitions, and may have 10 (moldau.max.partitions.per.broker)."
    )
    config = BrokerConfig.parse({"moldau.max.partitions.per.broker": "10"})
    for wanted, expected in ((10, ErrorCode.none), (11, ErrorCode.policy_violation)):
        (outcome,) = whole(decide_create_partitions(image, config, [MorePartitions("there", wanted)]))
        assert outcome.error == expected


def test_the_topics_that_the_broker_needs_fit_always() -> None:
    (outcome,) = created(
        image_of(("there", 10)), [NewTopic(CONSUMER_OFFSETS, 50, 1)], moldau_max_partitions_per_broker="10"
    )
    assert outcome.error == ErrorCode.none


def test_partitions_are_counted_where_they_are() -> None:
    """Ten are on broker 1, as many as it may have; the others have room."""
    image = image_of(("there", 10), brokers=3)
    limit = {"moldau_max_partitions_per_broker": "10"}
    here = NewTopic("here", assignments=[(0, (1,))])
    elsewhere = NewTopic("elsewhere", assignments=[(n, (2,)) for n in range(10)])
    full = NewTopic("full", assignments=[(0, (3, 2))])
    assert [one.error for one in created(image, [here, elsewhere, full], **limit)] == [
        ErrorCode.policy_violation,
        ErrorCode.none,
        ErrorCode.policy_violation,
    ]


# In slices


def slices_of(decision: Slices[Any]) -> int:
    return sum(1 for _ in decision)


def decisions() -> list[Any]:
    image = image_of(("wide", 10_000))
    places = [TopicPartition("wide", n % 10_000) for n in range(MANY)]
    unknown = [TopicPartition("unknown", n) for n in range(MANY)]
    topics = [NewTopic(f"t{n}", 1, 1) for n in range(MANY)]
    valid = [NewTopic(f"t{n}", 1, 1) for n in range(5_000)]
    more = [MorePartitions(f"t{n}", 3) for n in range(MANY)]
    by_id = [TopicReference(None, UUID(int=n + 1)) for n in range(MANY)]
    settings = [Alteration("retention.ms", "1")]
    alterations = [Alterations(ResourceType.TOPIC, f"t{n}", settings) for n in range(MANY)]
    wide = NewTopic("new", 10_000, 1)
    manual = NewTopic("new", assignments=[(n, (1,)) for n in range(10_000)])
    return [
        pytest.param(decide_create(image, CONFIG, topics, new_ids()), MANY, id="too many topics"),
        pytest.param(decide_create(image, CONFIG, [topics[0]] * MANY, new_ids()), MANY, id="one topic"),
        pytest.param(decide_create(image, CONFIG, valid, new_ids()), 5 * 5_000, id="topics"),
        pytest.param(decide_create(image, CONFIG, [wide], new_ids()), 2 * 10_000, id="a wide topic"),
        pytest.param(decide_create(image, CONFIG, [manual], new_ids()), 2 * 10_000, id="assignments"),
        pytest.param(decide_create_partitions(image, CONFIG, more), MANY, id="more partitions"),
        pytest.param(
            decide_create_partitions(image, CONFIG, [MorePartitions("wide", 20_000)]),
            2 * 10_000,
            id="a topic that grows",
        ),
        pytest.param(decide_delete(image, by_id, deletion_enabled=True), MANY, id="deletions"),
        pytest.param(decide_alter(image, CONFIG, alterations), 5 * MANY, id="configs"),
        pytest.param(
            decide_reassignments(image, rules(), [Reassignment(place, (1,)) for place in places]),
            MANY,
            id="reassignments",
        ),
        pytest.param(decide_elections(image, rules(), Election.PREFERRED, places), MANY, id="elections"),
        pytest.param(decide_elections(image, rules(), Election.UNCLEAN, unknown), MANY, id="no such"),
    ]


@pytest.mark.parametrize(("decision", "weight"), decisions())
def test_what_asks_for_much_is_decided_in_slices(decision: Slices[Any], weight: int) -> None:
    assert slices_of(decision) >= weight // PARTITIONS_PER_SLICE - 1


def test_brokers_settings_are_checked_a_few_at_a_time() -> None:
    """One broker has many spellings, and for each all settings are put together."""
    asked = [
        Alterations(ResourceType.BROKER, "0" * n + "1", [Alteration("log.cleaner.threads", "2")])
        for n in range(100)
    ]
    assert slices_of(decide_alter(cluster(), CONFIG, asked)) >= 10


def test_names_are_counted_in_slices_before_anything_is_decided() -> None:
    decision = decide_create(image_of(), CONFIG, [NewTopic("t")] * (4 * LOOKS_PER_SLICE), new_ids())
    assert slices_of(decision) >= 4 + 4


# Much that is right


def test_ten_thousand_topics_in_a_few_requests_and_in_one() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore())).controller
        for first in range(0, 10_000, 1_000):
            topics = [NewTopic(f"t{n}", 1, 1) for n in range(first, first + 1_000)]
            assert errors(await controller.create_topics(topics)) == {ErrorCode.none}
        at_once = [NewTopic(f"u{n}", 1, 1) for n in range(10_000)]
        assert errors(await controller.create_topics(at_once)) == {ErrorCode.none}
        assert len(controller.image.topics) == 20_000
        gone = [TopicReference(f"t{n}") for n in range(10_000)]
        assert errors(await controller.delete_topics(gone)) == {ErrorCode.none}
        assert len(controller.image.topics) == 10_000

    asyncio.run(scene())


def test_a_topic_of_ten_thousand_partitions_is_created_grown_and_reassigned() -> None:
    async def scene() -> None:
        controller = (await Node.start(MemoryStore(), brokers=(1, 2, 3))).controller
        (made,) = await controller.create_topics([NewTopic("wide", 10_000, 2)])
        assert made.error == ErrorCode.none
        (grown,) = await controller.create_partitions([MorePartitions("wide", 20_000)])
        assert grown.error == ErrorCode.none
        moves = [Reassignment(TopicPartition("wide", n), (3, 1)) for n in range(10_000)]
        assert errors(await controller.alter_reassignments(moves)) == {ErrorCode.none}
        assert len(controller.image.topics["wide"].partitions) == 20_000
        assert {state.replicas[:2] for state in controller.image.topics["wide"].partitions[:10_000]} == {
            (3, 1)
        }

    asyncio.run(scene())
