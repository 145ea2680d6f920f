"""Kafka's own command-line tools print of a Moldau broker what they print of Kafka's."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from interop.clients import Client, Message
from interop.clients.confluent import Confluent
from interop.clients.java import JavaTools

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-java")]

# What this issue serves, with the versions of Kafka 4.3 ("usable" is what its newest client would choose).
APIS = {
    "Produce": "0 to 13 [usable: 13]",
    "Fetch": "4 to 18 [usable: 18]",
    "ListOffsets": "1 to 11 [usable: 11]",
    "Metadata": "0 to 13 [usable: 13]",
    "OffsetCommit": "2 to 10 [usable: 10]",
    "OffsetFetch": "1 to 10 [usable: 10]",
    "FindCoordinator": "0 to 6 [usable: 6]",
    "JoinGroup": "0 to 9 [usable: 9]",
    "Heartbeat": "0 to 4 [usable: 4]",
    "LeaveGroup": "0 to 5 [usable: 5]",
    "SyncGroup": "0 to 5 [usable: 5]",
    "DescribeGroups": "0 to 6 [usable: 6]",
    "ListGroups": "0 to 5 [usable: 5]",
    "DeleteGroups": "0 to 2 [usable: 2]",
    "OffsetDelete": "0 [usable: 0]",
    "ApiVersions": "0 to 4 [usable: 4]",
    "CreateTopics": "2 to 7 [usable: 7]",
    "DeleteTopics": "1 to 6 [usable: 6]",
    "InitProducerId": "0 to 5 [usable: 5]",
    "OffsetForLeaderEpoch": "2 to 4 [usable: 4]",
    "DescribeConfigs": "1 to 4 [usable: 4]",
    "AlterConfigs": "0 to 2 [usable: 2]",
    "AlterReplicaLogDirs": "1 to 2 [usable: 2]",
    "DescribeLogDirs": "1 to 5 [usable: 5]",
    "CreatePartitions": "0 to 3 [usable: 3]",
    "ElectLeaders": "0 to 2 [usable: 2]",
    "AlterPartitionReassignments": "0 to 1 [usable: 1]",
    "ListPartitionReassignments": "0 [usable: 0]",
    "IncrementalAlterConfigs": "0 to 1 [usable: 1]",
    "DescribeClientQuotas": "0 to 1 [usable: 1]",
    "AlterClientQuotas": "0 to 1 [usable: 1]",
    "DescribeCluster": "0 to 2 [usable: 2]",
    "DescribeProducers": "0 [usable: 0]",
    "ListConfigResources": "0 to 1 [usable: 1]",
    "DescribeTopicPartitions": "0 [usable: 0]",
}

LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def java(clients: Callable[[str], Client]) -> JavaTools:
    client = clients("java-tools")
    assert isinstance(client, JavaTools)
    return client


@pytest.fixture(scope="module")
def filled(target: str, new_topic: Callable[..., str]) -> str:
    """Three partitions, partition n with n + 1 messages of an idempotent producer."""
    topic = new_topic("tools", partitions=3, retention_ms="7200000")
    for partition in range(3):
        messages = [Message(b"value") for _ in range(partition + 1)]
        Confluent(target).produce(topic, messages, partition=partition, idempotent=True)
    return topic


def test_broker_api_versions_lists_what_kafka_serves(java: JavaTools) -> None:
    printed = java.run("broker-api-versions").stdout
    served = dict(re.findall(r"^\s(\w+)\(\d+\): (.*?),?$", printed, re.MULTILINE))
    assert {name: served.get(name) for name in APIS} == APIS


def test_topics_describes_partitions_and_configs(java: JavaTools, filled: str) -> None:
    head, *partitions = java.run("topics", "--describe", "--topic", filled).stdout.strip().splitlines()
    assert f"Topic: {filled}\t" in head
    assert re.search(r"TopicId: [\w-]{22}\t.*PartitionCount: 3\t.*ReplicationFactor: 1\t", head)
    assert "retention.ms=7200000" in head
    leaders = [
        re.search(r"Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", p) for p in partitions
    ]
    assert [found and found.groups() for found in leaders] == [(str(n), "1", "1", "1") for n in range(3)]


def test_topics_adds_partitions(java: JavaTools, target: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic("grown")
    java.run("topics", "--alter", "--topic", topic, "--partitions", "3")
    Confluent(target).produce(topic, [Message(b"new")], partition=2)
    assert Confluent(target).watermarks(topic, 2) == (0, 1)


@pytest.mark.parametrize(
    ("when", "offsets"),
    [("earliest", [0, 0, 0]), ("latest", [1, 2, 3]), ("max-timestamp", None)],
)
def test_get_offsets_knows_the_special_times(
    java: JavaTools, filled: str, when: str, offsets: list[int] | None
) -> None:
    printed = java.run("get-offsets", "--topic", filled, "--time", when).stdout
    found = [int(line.rpartition(":")[2]) for line in sorted(printed.split())]
    if offsets is None:  # the messages of a batch may share their millisecond
        assert all(0 <= offset <= partition for partition, offset in enumerate(found)) and len(found) == 3
    else:
        assert found == offsets


def test_log_dirs_tells_the_size_of_each_partition(java: JavaTools, filled: str) -> None:
    printed = java.run("log-dirs", "--describe", "--topic-list", filled).stdout.strip().splitlines()[-1]
    (broker,) = json.loads(printed)["brokers"]
    (folder,) = broker["logDirs"]
    assert folder["error"] is None
    sizes = {p["partition"]: p["size"] for p in folder["partitions"] if p["partition"].startswith(filled)}
    assert sorted(sizes) == [f"{filled}-{n}" for n in range(3)]
    assert all(size >= 61 for size in sizes.values())


def test_cluster_tells_its_id_and_its_brokers(java: JavaTools, target: str) -> None:
    identity = java.run("cluster", "cluster-id").stdout
    assert re.search(r"Cluster ID: [\w-]{22}\n", identity)
    listed = java.run("cluster", "list-endpoints").stdout
    host, port = target.split(":")
    assert re.search(rf"^1\s+{re.escape(host)}\s+{port}\s+null\s+unfenced\s+broker", listed, re.MULTILINE)


def test_configs_describes_a_broker_with_the_sources_of_its_values(java: JavaTools) -> None:
    printed = java.run(
        "configs", "--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"
    ).stdout
    lines = {line.split("=")[0].strip(): line for line in printed.splitlines() if "=" in line}
    assert "synonyms={DEFAULT_CONFIG:log.segment.bytes=1073741824}" in lines["log.segment.bytes"]
    assert "log.retention.hours=168 sensitive=false" in lines["log.retention.hours"]


def test_configs_shows_only_what_was_set_on_a_topic(java: JavaTools, filled: str) -> None:
    printed = java.run("configs", "--entity-type", "topics", "--entity-name", filled, "--describe").stdout
    assert re.findall(r"^\s+(\S+?)=", printed, re.MULTILINE) == ["retention.ms"]
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=7200000" in printed


def test_transactions_describes_the_idempotent_producers_of_a_partition(java: JavaTools, filled: str) -> None:
    printed = java.run("transactions", "describe-producers", "--topic", filled, "--partition", "2").stdout
    _, producer = printed.strip().splitlines()
    producer_id, epoch, _, last_sequence, timestamp_ms, _ = producer.split()
    assert (int(producer_id) >= 0, epoch, last_sequence) == (True, "0", "2")
    assert int(timestamp_ms) > 1_700_000_000_000


def test_leader_election_finds_every_leader_in_its_place(java: JavaTools, filled: str) -> None:
    one = ("--election-type", "preferred", "--topic", filled, "--partition", "1")
    assert (
        f"Valid replica already elected for partitions {filled}-1" in java.run(LEADER_ELECTION, *one).stdout
    )
    assert java.run(LEADER_ELECTION, "--election-type", "unclean", "--all-topic-partitions").stdout == ""


def test_partitions_are_reassigned_to_where_they_are(java: JavaTools, filled: str, tmp_path: Path) -> None:
    wanted = {"topic": filled, "partition": 0, "replicas": [1]}
    file = tmp_path / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    given = ("--reassignment-json-file", str(file))
    started = java.run(REASSIGNMENT, *given, "--execute").stdout
    assert f"Successfully started partition reassignment for {filled}-0" in started
    verified = java.run(REASSIGNMENT, *given, "--verify").stdout
    assert f"Reassignment of partition {filled}-0 is completed." in verified
    assert "No partition reassignments found." in java.run(REASSIGNMENT, "--list").stdout


def test_the_console_consumer_waits_for_messages_that_come_later(
    java: JavaTools, target: str, new_topic: Callable[..., str]
) -> None:
    """The messages arrive while the tool starts or polls: either way it prints both."""
    topic = new_topic("later")
    Confluent(target).produce(topic, [Message(b"early")])
    late = threading.Timer(2.0, Confluent(target).produce, (topic, [Message(b"late")]))
    late.start()
    try:
        received = java.consume(topic, offset=0, count=2)
    finally:
        late.join()
    assert [message.value for message in received] == [b"early", b"late"]
