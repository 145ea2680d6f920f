"""A rolling restart, as operators do it, shows no client an error: nothing is lost, nothing is there twice.

Every broker is ended with SIGTERM and started again, the next one when all replicas are in sync. Meanwhile Kafka's
VerifiableProducer and VerifiableConsumer and confluent-kafka's clients work, in groups of both protocols and in
transactions. `--target kafka` runs the same on three nodes of Apache Kafka, whose applications are told of coordinators
that load. Java's clients warn of what they try again by themselves: `WARNINGS`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.apache_kafka import Distribution
from bench.clusters import Cluster, KafkaCluster, MoldauCluster
from cluster.support import wait_until
from interop.steady import SteadyProducer, SteadyReader, TransactionalProducer
from interop.verifiable import PROTOCOLS, Tools, check_read, committed, read_by_partition

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-rolling")]

PATIENCE_S = 90.0
ROUNDS = int(os.environ.get("ROUNDS", "1"))
PARTITIONS = 6
SETTINGS = {"offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}
RETRIES = "enable.idempotence=true\nretries=2147483647\n"
WARNINGS = re.compile(
    r"Error: NOT_LEADER_OR_FOLLOWER"
    r"|invalid metadata error in produce request .*NotLeaderOrFollowerException"
    r"|Connection to node -?\d+ \(\S+\) could not be established"  # by one that had asked nothing for a second
    r"|Offset commit failed on partition \S+ at offset \d+: This is not the correct coordinator\."
)


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest, requires_kafka: Distribution, tmp_path: Path
) -> Iterator[Cluster]:
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("This test restarts brokers: it takes no address as --target.")
    kind = MoldauCluster if wanted == "moldau" else KafkaCluster
    with kind(tmp_path / "cluster", 3, SETTINGS) as cluster:
        yield cluster


def create(cluster: Cluster, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, PARTITIONS, 3) for topic in topics]).values():
        created.result(PATIENCE_S)


def wait_whole(cluster: Cluster) -> None:
    """Until every replica is in sync in the eyes of every broker, as `moldau cluster health --wait` does."""

    def is_whole() -> bool:
        answers = [cluster.describe(node) for node in cluster.nodes.values()]
        parts = [part for answer in answers for topic in answer.topics for part in topic.partitions]
        return all(part.leader_id >= 0 and len(part.isr_nodes) == 3 for part in parts)

    wait_until(is_whole, PATIENCE_S, "all replicas in sync")


def roll(cluster: Cluster) -> None:
    for node in cluster.nodes.values():
        wait_whole(cluster)
        assert node.stop(PATIENCE_S), node.output()
        node.launch()
        cluster.wait_joined(node)
    wait_whole(cluster)


@pytest.mark.slow
def test_a_rolling_restart_shows_no_error_to_any_client(
    cluster: Cluster, requires_kafka: Distribution, tmp_path: Path
) -> None:
    create(cluster, "java", "python")
    address = cluster.bootstrap_servers
    writers = [
        SteadyProducer("idempotent", address, "python", PARTITIONS),
        TransactionalProducer("transactional", address, "python", PARTITIONS),
    ]
    readers = [SteadyReader(f"reader-{protocol}", address, "python", protocol) for protocol in PROTOCOLS]
    config = tmp_path / "producer.properties"
    config.write_text(RETRIES)
    for client in (*writers, *readers):
        client.start()
    with Tools(requires_kafka, address, tmp_path) as tools:
        producer = tools.produce("java", -1, "--throughput", "200", "--command-config", str(config))
        consumers = [tools.consume("java", f"java-{protocol}", -1, protocol) for protocol in PROTOCOLS]
        producer.wait_for("producer_send_success", 200)
        for consumer in consumers:
            consumer.wait_for("record_data", 100)
        wait_until(lambda: all(reader.read for reader in readers), PATIENCE_S, "readers to begin")
        for _ in range(ROUNDS):
            roll(cluster)
        producer.wait_for("producer_send_success", len(producer.events("producer_send_success")) + 200)
        producer.stop()
        (summary,) = producer.events("tool_data")
        places = {
            (event["partition"], event["offset"]): event["value"]
            for event in producer.events("producer_send_success")
        }
        assert producer.events("producer_send_error") == []
        assert summary["sent"] == summary["acked"] == len(places) == len(set(places.values()))
        for consumer in consumers:
            consumer.wait_for("record_data", len(places))
            consumer.stop()
            assert all(commit["success"] for commit in consumer.events("offsets_committed"))
            found = read_by_partition(consumer)
            check_read(found, places, committed(consumer), len(places))
            assert sum(map(len, found.values())) == len(places), "nothing was read twice"
        logged = [line for tool in (producer, *consumers) for line in tool.logged().splitlines()]
        assert [line for line in logged if line.startswith("[") and not WARNINGS.search(line)] == []

    for writer in writers:
        writer.end()
    written = writers[0].acknowledged | writers[1].acknowledged
    wait_until(
        lambda: all(len(reader.read) >= len(written) for reader in readers), PATIENCE_S, "all to be read"
    )
    for reader in readers:
        reader.end()
    assert {client.name: client.errors for client in (*writers, *readers) if client.errors} == {}
    for writer in writers:
        assert len(writer.acknowledged) == writer.sent == len(set(writer.acknowledged.values()))
    for reader in readers:
        assert reader.read == written
        assert (reader.twice, reader.revoked) == (0, 0)
