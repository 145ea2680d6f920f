"""kafka-reassign-partitions with --throttle on three brokers: what it sets is in force, and taken away (KIP-73)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from bench.apache_kafka import distribution
from cluster.several import PATIENCE_S, Cluster, clusters
from cluster.support import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.usefixtures("requires_kafka"),
    pytest.mark.xdist_group("interop-java"),
]

REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC = "moved"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
SLOW, QUICK = 50_000, 50_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A topic of 4 MB on brokers 1 and 2."""
    with clusters(tmp_path) as make:
        cluster = make(3)
        new = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])
        client = admin(cluster)
        client.create_topics([new])[TOPIC].result(PATIENCE_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for _ in range(40):
            producer.produce(TOPIC, bytes(100_000))
        assert producer.flush(PATIENCE_S) == 0
        yield cluster


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def settings(cluster: Cluster, kind: ResourceType, name: str) -> dict[str, str]:
    """What is set of the throttles."""
    resource = ConfigResource(kind, name)
    client = admin(cluster)
    found = client.describe_configs([resource])[resource].result(PATIENCE_S)
    return {key: found[key].value for key in (*RATES, *LISTS) if key in found and found[key].value}


def is_throttled(cluster: Cluster) -> bool:
    brokers = [settings(cluster, ResourceType.BROKER, str(number)) for number in cluster.ids]
    return any(brokers) or bool(settings(cluster, ResourceType.TOPIC, TOPIC))


def test_kafkas_tool_throttles_a_move_and_ends_the_throttle(cluster: Cluster, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    wanted = {"topic": TOPIC, "partition": 0, "replicas": [2, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))

    def run(*arguments: str) -> str:
        address = ("--bootstrap-server", cluster.bootstrap)
        given = () if "--list" in arguments else ("--reassignment-json-file", str(plan))
        return distribution().run(REASSIGNMENT, *address, *given, *arguments, timeout_s=PATIENCE_S).stdout

    started = run("--execute", "--throttle", str(SLOW))
    assert f"The inter-broker throttle limit was set to {SLOW} B/s" in started
    assert f"Successfully started partition reassignment for {TOPIC}-0" in started
    for number in cluster.ids:
        assert settings(cluster, ResourceType.BROKER, str(number)) == dict.fromkeys(RATES, str(SLOW))
    assert settings(cluster, ResourceType.TOPIC, TOPIC) == {LISTS[0]: "0:1,0:2", LISTS[1]: "0:3"}
    assert f"{TOPIC}-0: replicas: 2,3,1. adding: 3. removing: 1." in run("--list")
    verified = run("--verify")
    assert f"Reassignment of partition {TOPIC}-0 is still in progress." in verified
    assert is_throttled(cluster), "while it is under way, the throttle stays"
    cancelled = run("--cancel")
    assert f"Successfully cancelled partition reassignment for: {TOPIC}-0" in cancelled
    assert not is_throttled(cluster)
    assert cluster.views(TOPIC)[0].replicas == (2, 1), "the order is the plan's, as with Kafka"

    run("--execute", "--throttle", str(QUICK))
    wait_until(lambda: cluster.views(TOPIC)[0].replicas == (2, 3), PATIENCE_S, "the move")
    assert is_throttled(cluster)
    verified = run("--verify")
    assert f"Reassignment of partition {TOPIC}-0 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {TOPIC}" in verified
    assert not is_throttled(cluster)
