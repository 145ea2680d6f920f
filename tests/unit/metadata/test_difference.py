"""What one broker has to do when the cluster changes."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.base.ids import TopicPartition
from moldau.metadata.difference import Closed, Difference, Replica, difference, touched
from moldau.metadata.image import Topic
from moldau.metadata.records import (
    NO_LEADER,
    ConfigChanged,
    ConfigResource,
    PartitionsAdded,
    PartitionsChanged,
    PartitionState,
    ProducerIdsAllocated,
    ResourceType,
    TopicCreated,
    TopicDeleted,
)

ONE, TWO = UUID(int=1), UUID(int=2)
LED = PartitionState(1, 0, (1, 2), (1, 2))
FOLLOWED = LED._replace(leader=2)
ELSEWHERE = PartitionState(2, 0, (2, 3), (2, 3))
AT = TopicPartition("a", 0)


def topic(*states: PartitionState, topic_id: UUID = ONE, **configs: str) -> dict[str, Topic]:
    return {"a": Topic("a", topic_id, states, configs)}


def at(state: PartitionState, index: int = 0, topic_id: UUID = ONE) -> tuple[Replica]:
    return (Replica(TopicPartition("a", index), topic_id, state),)


def changed(state: PartitionState, **fields: object) -> PartitionState:
    return state._replace(partition_epoch=state.partition_epoch + 1, **fields)  # type: ignore[arg-type]


MOVED = changed(FOLLOWED, leader=1, leader_epoch=1)
LEADERLESS = changed(LED, leader=NO_LEADER, leader_epoch=1)
SHRUNK = changed(LED, isr=(1,))
AGAIN = changed(LED, leader_epoch=1)
AWAY = changed(LED, leader=2, leader_epoch=1, replicas=(2, 3), isr=(2, 3))
HERE = changed(ELSEWHERE, replicas=(2, 3, 1), adding=(1,))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, topic(LED), Difference(open=at(LED), lead=at(LED), created=("a",))),
        ({}, topic(FOLLOWED), Difference(open=at(FOLLOWED), follow=at(FOLLOWED), created=("a",))),
        ({}, topic(ELSEWHERE), Difference(created=("a",))),
        (topic(FOLLOWED), topic(MOVED), Difference(lead=at(MOVED))),
        (topic(LED), topic(LEADERLESS), Difference(follow=at(LEADERLESS))),
        (topic(LED), topic(SHRUNK), Difference(update=at(SHRUNK))),
        (topic(LED), topic(AGAIN), Difference(lead=at(AGAIN))),
        (topic(LED), topic(AWAY), Difference(close=(Closed(AT, ONE, is_deleted=False),))),
        (topic(ELSEWHERE), topic(HERE), Difference(open=at(HERE), follow=at(HERE))),
        (
            topic(LED),
            topic(LED, FOLLOWED),
            Difference(open=at(FOLLOWED, 1), follow=at(FOLLOWED, 1), created=("a",)),
        ),
        (topic(LED), {}, Difference(close=(Closed(AT, ONE, is_deleted=True),), deleted=(("a", ONE),))),
        (
            topic(LED),
            topic(LED, topic_id=TWO),
            Difference(
                close=(Closed(AT, ONE, is_deleted=True),),
                open=at(LED, topic_id=TWO),
                lead=at(LED, topic_id=TWO),
                created=("a",),
                deleted=(("a", ONE),),
            ),
        ),
        (topic(LED), topic(LED, x="1"), Difference(configure=("a",))),
        (topic(ELSEWHERE), topic(ELSEWHERE, x="1"), Difference()),
        (topic(LED), topic(LED), Difference()),
    ],
)
def test_what_a_broker_has_to_do(
    before: dict[str, Topic], after: dict[str, Topic], expected: Difference
) -> None:
    assert difference(1, before, after) == expected


def test_records_say_which_topics_to_compare() -> None:
    assert touched(
        [
            TopicCreated("b", ONE, (LED,), {}),
            PartitionsAdded("c", ONE, (LED,)),
            PartitionsChanged("b", ONE, {}),
            TopicDeleted("a", ONE),
            ConfigChanged(ConfigResource(ResourceType.TOPIC, "d"), {}),
            ConfigChanged(ConfigResource(ResourceType.GROUP, "g"), {}),
            ProducerIdsAllocated(7),
        ]
    ) == ["b", "c", "a", "d"]
