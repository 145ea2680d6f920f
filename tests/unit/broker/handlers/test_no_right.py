"""A stranger without any right, against every API: nothing is done, and nothing told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from interop.rights.cases import CASES, Case
from moldau.broker.handlers import ROUTES
from moldau.security.rights import RIGHTS
from moldau.testing import Cluster

from .test_authorization import ELSEWHERE, HERE, SETTINGS, Asker, lock

TOPICS = {"g-there": 1, "d-there": 1, "d-doomed": 1}
EMPTY = {"Metadata": "topics", "ListGroups": "groups", "ListTransactions": "transaction_states"} | {
    "DescribeTopicPartitions": "topics"
}
"""What may not be seen is left out of these, where all is asked for."""
Ids = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics=TOPICS, config=SETTINGS) as running:
        admin = Asker(running.bootstrap_servers, HERE)
        admin.ask("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["g-group"]})
        lock(admin)
        yield running


@pytest.fixture(scope="module")
def ids(cluster: Cluster) -> Ids:
    """Of topics, for who asks by them."""
    found = Asker(cluster.bootstrap_servers, HERE).ask("Metadata", 12, {"topics": None}).topics
    return {topic.name: topic.topic_id for topic in found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.api} v{case.version} {case.label}")
def test_a_stranger_is_denied_by_every_api(cluster: Cluster, ids: Ids, case: Case) -> None:
    answer = Asker(cluster.bootstrap_servers, ELSEWHERE).ask(case.api, case.version, case.values(ids))
    told = repr(answer)
    if case.api == "DescribeCluster" or case.label == "the cluster":
        assert answer.cluster_authorized_operations == 0  # where the brokers are is no secret
    elif case.api in EMPTY and case.label in ("", "all") and "authorization_failed" not in told:
        assert getattr(answer, EMPTY[case.api]) == ()
    elif case.api == "SyncGroup" and not case.label.endswith("whole"):
        assert "inconsistent_group_protocol" in told  # which Kafka looks at first
    else:
        assert "authorization_failed" in told


def test_nothing_was_made_changed_or_deleted(cluster: Cluster) -> None:
    admin = Asker(cluster.bootstrap_servers, HERE)
    topics = admin.ask("Metadata", 12, {"topics": None}).topics
    assert {topic.name: len(topic.partitions) for topic in topics if not topic.is_internal} == TOPICS
    latest = {"partition_index": 0, "timestamp": -1}
    asked = {"replica_id": -1, "topics": [{"name": name, "partitions": [latest]} for name in TOPICS]}
    ends = {topic.name: topic.partitions[0].offset for topic in admin.ask("ListOffsets", 7, asked).topics}
    assert ends == dict.fromkeys(TOPICS, 0)


def test_every_api_that_asks_is_among_them() -> None:
    asking = {route.name for route in ROUTES.values() if not route.is_internal and RIGHTS[route.name]}
    assert asking <= {case.api for case in CASES}
