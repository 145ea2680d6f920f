"""ElectLeaders and the reassignments on a broker that is alone, through the codecs in all their versions.

That every answer is Kafka's is the interop tests' part (`same_answers/scenarios/replicas.py`); a partition whose disk
has failed is tested here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.handlers import (
    alter_partition_reassignments,
    elect_leaders,
    list_partition_reassignments,
)

from .admin_broker import AdminBroker, versions

PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
def broker() -> AdminBroker:
    broker = AdminBroker()
    broker.create("a", 2)
    broker.create("b")
    broker.lose_disk(TopicPartition("a", 1))
    return broker


def elected(
    broker: AdminBroker, version: int, wanted: dict[str, list[int]] | None, election: int = PREFERRED
) -> dict[str, dict[int, ErrorCode]]:
    topics = wanted and tuple(
        SimpleNamespace(topic=name, partitions=tuple(indexes)) for name, indexes in wanted.items()
    )
    answer = broker.ask(elect_leaders, version, election_type=election, topic_partitions=topics, timeout=1000)
    return {
        result.topic: {one.partition_id: one.error_code for one in result.partition_result}
        for result in answer.replica_election_results
    }


@pytest.mark.parametrize("version", versions(elect_leaders))
def test_no_election_is_needed_where_the_only_replica_leads(broker: AdminBroker, version: int) -> None:
    assert elected(broker, version, {"a": [0, 9], "absent": [0]}) == {
        "a": {0: ErrorCode.election_not_needed, 9: ErrorCode.unknown_topic_or_partition},
        "absent": {0: ErrorCode.unknown_topic_or_partition},
    }


@pytest.mark.parametrize(
    ("election", "error"),
    [
        (PREFERRED, ErrorCode.preferred_leader_not_available),
        (UNCLEAN, ErrorCode.eligible_leaders_not_available),
    ],
)
def test_a_partition_without_its_disk_gets_no_leader(
    broker: AdminBroker, election: int, error: ErrorCode
) -> None:
    assert elected(broker, 2, {"a": [1]}, election) == {"a": {1: error}}


def test_an_election_everywhere_names_only_the_partitions_that_need_one(broker: AdminBroker) -> None:
    everywhere = elected(broker, 2, None)
    assert everywhere == {"a": {1: ErrorCode.preferred_leader_not_available}, "b": {}}


def test_an_unknown_kind_of_election_is_refused(broker: AdminBroker) -> None:
    assert elected(broker, 2, {"a": [0]}, election=2) == {"a": {0: ErrorCode.invalid_request}}


def reassigned(broker: AdminBroker, version: int, *wanted: tuple[int, tuple[int, ...] | None]) -> list[Any]:
    partitions = tuple(SimpleNamespace(partition_index=index, replicas=ids) for index, ids in wanted)
    answer = broker.ask(
        alter_partition_reassignments,
        version,
        timeout=1000,
        allow_replication_factor_change=True,
        topics=(SimpleNamespace(name="a", partitions=partitions),),
    )
    return [partition.error_code for partition in answer.responses[0].partitions]


@pytest.mark.parametrize("version", versions(alter_partition_reassignments))
def test_a_partition_can_only_be_assigned_to_where_it_is(broker: AdminBroker, version: int) -> None:
    wanted = ((0, (1,)), (0, (2,)), (0, (1, 2)), (0, (1, 1)), (0, ()), (0, None), (5, (1,)))
    before = broker.image.version
    assert reassigned(broker, version, *wanted) == [
        ErrorCode.none,
        *[ErrorCode.invalid_replica_assignment] * 4,
        ErrorCode.no_reassignment_in_progress,
        ErrorCode.unknown_topic_or_partition,
    ]
    assert broker.image.version == before


def test_nothing_is_being_reassigned(broker: AdminBroker) -> None:
    answer = broker.ask(list_partition_reassignments, 0, timeout=1000, topics=None)
    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())
