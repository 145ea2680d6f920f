"""A task writes its rows once while brokers die, and leaders and coordinators move, at any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sink_attempts import STEPS, Sink, values

from moldau.spark.topic_sink.exactly_once import KEPT, MARKERS
from moldau.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.long]
COORDINATED = {"group": "__consumer_offsets", "transaction": "__transaction_state"}
PARTITIONS = 3
NOT_WHEN_KEPT = ("fenced the others", "marker read again")
CONFIG = {"offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG) as cluster:
        yield cluster
        KEPT.close()
        MARKERS.close()


def move(cluster: Cluster, topic: str) -> None:
    """Every partition that somebody leads gets the next leader in sync."""
    for partition in range(PARTITIONS):
        leader = cluster.wait_for_leader(topic, partition)
        others = [broker for broker in cluster.in_sync(topic, partition) if broker != leader]
        cluster.elect(topic, partition, others[leader % len(others)])


def kill_a_leader(cluster: Cluster, topic: str) -> None:
    """It comes back when others lead what it has led."""
    broker = cluster.wait_for_leader(topic, 0)
    cluster.kill(broker)
    for partition in range(PARTITIONS):
        cluster.wait_for_leader(topic, partition)
    cluster.start(broker)
    cluster.wait_in_sync()


TROUBLES: dict[str, Callable[[Cluster, str], None]] = {
    "the leaders of the topic move": move,
    "the group coordinators move": lambda cluster, topic: move(cluster, COORDINATED["group"]),
    "the transaction coordinators move": lambda cluster, topic: move(cluster, COORDINATED["transaction"]),
    "the topic's leader is killed": kill_a_leader,
    "a transaction coordinator is killed": lambda cluster, topic: kill_a_leader(
        cluster, COORDINATED["transaction"]
    ),
}


@pytest.mark.parametrize("keeping", [True, False], ids=["the producer is kept", "a new producer each time"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_rows_are_written_once_while(cluster: Cluster, trouble: str, keeping: bool) -> None:
    topic = f"out-{list(TROUBLES).index(trouble)}-{keeping}"
    cluster.create_topic(topic, PARTITIONS)
    sink = Sink(cluster.bootstrap_servers, topic)
    sink.attempt(0, values(1, 30))
    for version, step in enumerate(STEPS, 1):
        if not keeping:
            KEPT.close()
        first = 30 * version + 1
        happened: list[str] = []

        def reached(now: str, step: str = step, happened: list[str] = happened) -> None:
            if now == step and not happened:
                TROUBLES[trouble](cluster, topic)
                happened.append(now)

        sink.attempt(version, values(first, first + 29), reached)
        assert happened or (keeping and step in NOT_WHEN_KEPT)
    assert sink.committed() == sorted(values(1, 30 * (len(STEPS) + 1)))
