"""A real loss: what one broker alone had acknowledged is gone after an unclean election, and the window says so."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from moldau.audit import AuditedProducer
from moldau.audit.comparison import By, Evidence, Part, Rules, State, always, compare
from moldau.audit.messages import Counts, Life, parse
from moldau.audit.tally import Tally, identity
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition as TopicPartitionId
from moldau.cli.cluster_client import UNCLEAN, ClusterClient
from moldau.cli.options import Target
from moldau.testing import Cluster

pytestmark = pytest.mark.slow

TIMEOUT_S = 60.0
MINUTE_MS = 60_000
NOW_MS = 1_794_960_000_000
BEGIN_MS = NOW_MS - 3_600_000
NEVER_S = 3600.0


def read(servers: str, topic: str) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            consumer.close()
            return found
        found.append(message)


def produce(producer: AuditedProducer, minute: int, number: int) -> None:
    for each in range(number):
        producer.produce("orders", f"{minute}-{each}", timestamp=BEGIN_MS + minute * MINUTE_MS + each)
    assert producer.flush(TIMEOUT_S) == 0


def elect_uncleanly(cluster: Cluster) -> None:
    """Whoever is left leads, though it lacks records."""
    place = TopicPartitionId("orders", 0)
    deadline = time.monotonic() + TIMEOUT_S
    with ClusterClient(Target(cluster.bootstrap_servers)) as client:
        while client.elect(UNCLEAN, [place])[place].error is not ErrorCode.none:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    cluster.wait_for_leader("orders")


def in_topic(servers: str) -> list[Part]:
    found: dict[int, Tally] = {}
    for message in read(servers, "orders"):
        at_ms = message.timestamp()[1]
        tally = found.setdefault(at_ms - at_ms % MINUTE_MS, Tally())
        tally.add(identity(at_ms, message.key(), message.value()))
    return [Part("orders", 0, window_ms, By.RECORDS, tally, 0, 0) for window_ms, tally in found.items()]


def test_what_an_unclean_election_loses_is_named_by_its_window() -> None:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", 1, {"min.insync.replicas": 1}, replicas=2)
        leader = cluster.wait_for_leader("orders")
        (other,) = [broker for broker in cluster.in_sync("orders") if broker != leader]
        config = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
        producer = AuditedProducer(config, interval_s=NEVER_S)
        produce(producer, 0, 20)
        cluster.wait_in_sync()
        cluster.kill(other)
        produce(producer, 1, 7)  # acknowledged by one broker: nobody else is in sync
        assert producer.audit.publish(TIMEOUT_S)
        cluster.kill(leader)
        cluster.start(other)
        elect_uncleanly(cluster)
        produce(producer, 2, 20)
        assert producer.close(TIMEOUT_S)
        parts = in_topic(cluster.bootstrap_servers)
        published = read(cluster.bootstrap_servers, "moldau_audit")
    messages = [parse(json.loads(message.value() or b"")) for message in published]
    evidence = Evidence(
        [one for one in messages if isinstance(one, Counts)],
        [one for one in messages if isinstance(one, Life)],
        parts,
    )
    windows = compare(evidence, Rules(MINUTE_MS, 0), NOW_MS, always(NOW_MS))
    assert [(one.state, one.produced, one.in_topic, one.lost, one.doubled) for one in windows] == [
        (State.RIGHT, 20, 20, 0, 0),
        (State.WRONG, 7, 0, 7, 0),
        (State.RIGHT, 20, 20, 0, 0),
    ]
