"""Kafka's own command-line tools on a cluster of three brokers: what they print of it, and what they change in it.

`--target kafka` runs the same on three nodes of Apache Kafka, whose output is the measure. Brokers are killed and come
back within a test, so that each finds all three of them in place.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from bench.apache_kafka import Distribution, ToolRun
from bench.clusters import Cluster, KafkaCluster, MoldauCluster
from bench.raw import RawConnection, nested, request_class
from cluster.support import wait_until
from interop.workshop import Workshop

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-cluster-tools")]

PATIENCE_S = 90.0
SETTINGS = {
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "auto.leader.rebalance.enable": "false",
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
ALTER_PARTITION_REASSIGNMENTS = 45
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGNMENT = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
REPLICA_VERIFICATION = "org.apache.kafka.tools.ReplicaVerificationTool"
PARTITION = re.compile(
    r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: ([\d,]*)\s+Elr:"
)


class Tools:
    """The tools and the cluster that they talk to."""

    def __init__(self, cluster: Cluster, workshop: Workshop, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self._workshop = workshop

    def call(self, tool: str, *arguments: str, check: bool = True) -> ToolRun:
        address = ("--bootstrap-server", self.cluster.bootstrap_servers)
        words = (*arguments, *address) if tool == "cluster" else (*address, *arguments)
        return self._workshop.run(tool, *words, check=check, timeout_s=PATIENCE_S)

    def run(self, tool: str, *arguments: str) -> str:
        return self.call(tool, *arguments).stdout

    def refused(self, tool: str, *arguments: str) -> str:
        done = self.call(tool, *arguments, check=False)
        assert done.code == 1, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def create(self, topic: str, assignment: str, **configs: str) -> None:
        """Returns when all replicas are in sync."""
        settings = [
            word
            for key, value in configs.items()
            for word in ("--config", f"{key.replace('_', '.')}={value}")
        ]
        self.run("topics", "--create", "--topic", topic, "--replica-assignment", assignment, *settings)
        self.wait_whole({topic: len(assignment.split(","))})

    def partitions(self, *arguments: str) -> dict[str, tuple[str, str, str]]:
        """Leader, replicas and in-sync set, in order, of what `topics --describe` prints, by topic and partition."""
        printed = self.run("topics", "--describe", "--exclude-internal", *arguments)
        return {
            f"{topic}-{index}": (leader, replicas, ",".join(sorted(isr.split(","))))
            for topic, index, leader, replicas, isr in PARTITION.findall(printed)
        }

    def wait_whole(self, counts: Mapping[str, int] | None = None) -> None:
        """Until every replica is in sync, in the eyes of every broker, and these topics have so many partitions."""
        wanted = dict(counts or {})

        def is_whole() -> bool:
            answers = [self.cluster.describe(node) for node in self.cluster.living.values()]
            known = [{topic.name: len(topic.partitions) for topic in answer.topics} for answer in answers]
            parts = [p for answer in answers for topic in answer.topics for p in topic.partitions]
            return all(wanted.items() <= topics.items() for topics in known) and all(
                p.leader_id >= 0 and len(p.isr_nodes) == len(p.replica_nodes) for p in parts
            )

        wait_until(is_whole, PATIENCE_S, "all replicas in sync")

    @contextmanager
    def without(self, *ids: int) -> Iterator[None]:
        """Brokers are killed, and the others know it; at the end they are back."""
        for number in ids:
            self.cluster.nodes[number].kill()
        wait_until(self._living_are_told, PATIENCE_S, f"brokers {ids} to be given up")
        try:
            yield
        finally:
            self.cluster.start()
            self.wait_whole()

    def _living_are_told(self) -> bool:
        living = set(self.cluster.living)
        return all(
            {broker.node_id for broker in self.cluster.describe(node).brokers} == living
            for node in self.cluster.living.values()
        )

    def plan(self, name: str, **replicas: list[int]) -> tuple[str, str]:
        """The arguments that name a file with a reassignment; `topic_0=[1, 2]` is a topic's first partition."""
        parts = [
            {"topic": key.rpartition("_")[0], "partition": int(key.rpartition("_")[2]), "replicas": wanted}
            for key, wanted in replicas.items()
        ]
        return "--reassignment-json-file", self.write(name, {"version": 1, "partitions": parts})

    def write(self, name: str, content: object) -> str:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(content))
        return str(path)

    def produce(self, topic: str, partition: int, count: int) -> None:
        """With acks=all: every in-sync replica has it."""
        problems: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": self.cluster.bootstrap_servers,
                "log_level": 0,
                "message.timeout.ms": 30_000,
            }
        )
        for number in range(count):
            producer.produce(
                topic,
                b"%d" % number,
                partition=partition,
                on_delivery=lambda error, _: problems.append(str(error)) if error else None,
            )
        assert producer.flush(PATIENCE_S) == 0 and not problems, problems


@pytest.fixture(scope="module")
def tools(
    request: pytest.FixtureRequest, requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    wanted = request.config.getoption("--target")
    if wanted not in ("moldau", "kafka"):
        pytest.skip("These tests kill brokers: they take no address as --target.")
    folder: Path = tmp_path_factory.mktemp("cluster-tools")
    workshop = Workshop(requires_kafka, folder)
    kind = MoldauCluster if wanted == "moldau" else KafkaCluster
    with kind(folder / "cluster", 3, SETTINGS) as cluster:
        yield Tools(cluster, workshop, folder)
    workshop.close()


# Topics


def test_topics_are_created_where_they_are_wanted_and_spread_where_nobody_says(tools: Tools) -> None:
    tools.create("placed", "1:2:3,2:3:1,3:1:2")
    assert tools.partitions("--topic", "placed") == {
        "placed-0": ("1", "1,2,3", "1,2,3"),
        "placed-1": ("2", "2,3,1", "1,2,3"),
        "placed-2": ("3", "3,1,2", "1,2,3"),
    }
    tools.run("topics", "--create", "--topic", "spread", "--partitions", "3", "--replication-factor", "3")
    tools.run("topics", "--create", "--topic", "defaults")
    tools.wait_whole({"spread": 3, "defaults": 1})
    spread = tools.partitions("--topic", "spread")
    assert sorted(leader for leader, _, _ in spread.values()) == ["1", "2", "3"]
    assert all(set(replicas.split(",")) == {"1", "2", "3"} for _, replicas, _ in spread.values())
    (default,) = tools.partitions("--topic", "defaults").values()
    assert len(default[1].split(",")) == 3, "default.replication.factor"
    assert "min.insync.replicas=2" in tools.run("topics", "--describe", "--topic", "defaults")


def test_topics_refuses_what_the_brokers_cannot_hold(tools: Tools) -> None:
    create = ("topics", "--create", "--topic", "refused")
    said = tools.refused(*create, "--replica-assignment", "1:2:9")
    assert "The manual partition assignment includes broker 9, but no such broker is registered." in said
    said = tools.refused(*create, "--partitions", "1", "--replication-factor", "4")
    assert "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be" in said
    assert "refused" not in tools.run("topics", "--list").split()


def test_topics_adds_partitions_where_they_are_wanted_and_deletes_everywhere(tools: Tools) -> None:
    tools.create("grown", "1:2:3")
    alter = ("topics", "--alter", "--topic", "grown")
    tools.run(*alter, "--partitions", "2", "--replica-assignment", "1:2:3,3:2:1")
    tools.wait_whole({"grown": 2})
    tools.run(*alter, "--partitions", "4")
    tools.wait_whole({"grown": 4})
    grown = tools.partitions("--topic", "grown")
    assert grown["grown-1"] == ("3", "3,2,1", "1,2,3") and len(grown) == 4
    assert "currently has 4 partition(s); 2 would not be an increase" in tools.refused(
        *alter, "--partitions", "2"
    )
    for index in range(4):
        tools.produce("grown", index, 1)
    tools.run("topics", "--delete", "--topic", "grown")
    wait_until(lambda: "grown" not in tools.run("topics", "--list").split(), PATIENCE_S, "nobody to name it")
    assert "Topic 'grown' does not exist as expected" in tools.refused(
        "topics", "--delete", "--topic", "grown"
    )
    folders = [node.data for node in tools.cluster.nodes.values()]
    wait_until(
        lambda: not any(list(data.glob("grown-[0-9]")) for data in folders), PATIENCE_S, "no folder left"
    )


def test_topics_tells_what_a_dead_broker_leaves_behind(tools: Tools) -> None:
    tools.create("whole", "1:2:3,2:3:1")
    tools.create("strict", "2:3:1", min_insync_replicas="3")
    tools.create("single", "2", min_insync_replicas="1")
    flags = ["under-replicated", "under-min-isr", "at-min-isr", "unavailable"]

    def told() -> dict[str, set[str]]:
        mine = re.compile(r"(whole|strict|single)-\d")
        return {f: set(filter(mine.match, tools.partitions(f"--{f}-partitions"))) for f in flags}

    sound = {
        "under-replicated": set(),
        "under-min-isr": set(),
        "at-min-isr": {"strict-0", "single-0"},
        "unavailable": set(),
    }
    assert told() == sound
    with tools.without(2):
        assert told() == {
            "under-replicated": {"whole-0", "whole-1", "strict-0", "single-0"},
            "under-min-isr": {"strict-0", "single-0"},
            "at-min-isr": {"whole-0", "whole-1"},
            "unavailable": {"single-0"},
        }
        assert tools.partitions("--topic", "whole") == {
            "whole-0": ("1", "1,2,3", "1,3"),
            "whole-1": ("3", "2,3,1", "1,3"),
        }
        assert re.search(
            r"Leader: none\s+Replicas: 2\s", tools.run("topics", "--describe", "--topic", "single")
        )
        assert re.search(
            r"^2 .* fenced ", tools.run("cluster", "list-endpoints", "--include-fenced-brokers"), re.M
        )
    assert told() == sound
    assert tools.partitions("--topic", "single") == {"single-0": ("2", "2", "2")}


# Leaders


def test_leader_election_brings_leaders_back_to_their_preferred_brokers(tools: Tools) -> None:
    tools.create("preferred", "2:3:1,1:2:3")
    one = ("--election-type", "preferred", "--topic", "preferred", "--partition")
    with tools.without(2):
        assert "The preferred leader was not available." in tools.refused(ELECTION, *one, "0")
        assert "Valid replica already elected for partitions preferred-1" in tools.run(ELECTION, *one, "1")
    assert tools.partitions("--topic", "preferred")["preferred-0"][0] != "2"
    elected = tools.run(ELECTION, "--election-type", "preferred", "--all-topic-partitions")
    assert elected.startswith("Successfully completed leader election (PREFERRED) for partitions")
    assert "preferred-0" in elected and "preferred-1" not in elected
    wait_until(
        lambda: tools.partitions("--topic", "preferred")["preferred-0"][0] == "2", PATIENCE_S, "2 leads"
    )
    assert "No such topic as nowhere" in tools.refused(
        ELECTION, "--election-type", "preferred", "--topic", "nowhere", "--partition", "0"
    )


def test_leader_election_makes_a_leader_of_one_that_was_behind_only_if_it_is_unclean(tools: Tools) -> None:
    tools.create("behind", "2:3", min_insync_replicas="1")
    unclean = ("--topic", "behind", "--partition", "0", "--election-type")
    with tools.without(3):
        tools.produce("behind", 0, 3)
        tools.cluster.nodes[2].kill()
        tools.cluster.nodes[3].launch()
        tools.cluster.wait_joined(tools.cluster.nodes[3])
        wait_until(
            lambda: tools.partitions("--topic", "behind")["behind-0"][0] == "none", PATIENCE_S, "no leader"
        )
        tools.refused(ELECTION, *unclean, "preferred")
        done = tools.run(ELECTION, *unclean, "unclean")
        assert "Successfully completed leader election (UNCLEAN) for partitions behind-0" in done
        now = {"behind-0": ("3", "2,3", "3")}
        wait_until(lambda: tools.partitions("--topic", "behind") == now, PATIENCE_S, "3 leads")
    assert tools.run("get-offsets", "--topic", "behind") == "behind:0:0\n", "what only the other had is gone"


# Reassignment


def test_partitions_are_reassigned_and_their_data_with_them(tools: Tools) -> None:
    tools.create("moved", "1:2,2:3")
    tools.produce("moved", 0, 5)
    topics = tools.write("topics", {"version": 1, "topics": [{"topic": "moved"}]})
    generate = ("--topics-to-move-json-file", topics, "--broker-list", "1,3", "--generate")
    current, proposed = (
        json.loads(line) for line in tools.run(REASSIGNMENT, *generate).splitlines() if line.startswith("{")
    )
    assert [part["replicas"] for part in current["partitions"]] == [[1, 2], [2, 3]]
    assert all(sorted(part["replicas"]) == [1, 3] for part in proposed["partitions"])
    plan = tools.plan("moved", moved_0=[3, 1], moved_1=[1, 2, 3])
    started = tools.run(REASSIGNMENT, *plan, "--execute")
    assert "Successfully started partition reassignments for moved-0,moved-1" in started

    def verified() -> str:
        return tools.run(REASSIGNMENT, *plan, "--verify")

    wait_until(lambda: verified().count(" is completed.") == 2, PATIENCE_S, "the reassignment")
    assert "No partition reassignments found." in tools.run(REASSIGNMENT, "--list")
    where = [("3,1", "1,3"), ("1,2,3", "1,2,3")]
    wait_until(
        lambda: [part[1:] for part in tools.partitions("--topic", "moved").values()] == where, PATIENCE_S
    )
    assert "None of the specified partition reassignments are active." in tools.run(
        REASSIGNMENT, *plan, "--cancel"
    )
    assert tools.run("get-offsets", "--topic", "moved").split() == ["moved:0:5", "moved:1:0"]
    assert "Unknown broker id 8" in tools.refused(
        REASSIGNMENT, *tools.plan("bad", moved_0=[3, 8]), "--execute"
    )


def test_a_reassignment_that_waits_for_a_dead_broker_is_listed_and_cancelled(tools: Tools) -> None:
    tools.create("stuck", "1:3")
    plan = tools.plan("stuck", stuck_0=[2, 1])
    with tools.without(2):
        assert "Unknown broker id 2" in tools.refused(REASSIGNMENT, *plan, "--execute")
        reassign(tools.cluster, "stuck", 0, [2, 1])
        listed = tools.run(REASSIGNMENT, "--list")
        assert re.search(r"stuck-0: replicas: 2,1,3\. adding: 2\. removing: 3\.", listed), listed
        alone = ("--preserve-throttles",)  # else it would ask the dead broker, too
        verified = tools.run(REASSIGNMENT, *plan, "--verify", *alone)
        assert "Reassignment of partition stuck-0 is still in progress." in verified
        cancelled = tools.run(REASSIGNMENT, *plan, "--cancel", *alone)
        assert "Successfully cancelled partition reassignment for: stuck-0" in cancelled
        assert "No partition reassignments found." in tools.run(REASSIGNMENT, "--list")
        before = {"stuck-0": ("1", "1,3", "1,3")}
        wait_until(lambda: tools.partitions("--topic", "stuck") == before, PATIENCE_S, "as before")


def reassign(cluster: Cluster, topic: str, partition: int, replicas: list[int]) -> None:
    """The tool itself does not name a broker that is dead."""
    cls = request_class(ALTER_PARTITION_REASSIGNMENTS, 0)
    topics = nested(cls, "topics")
    wanted = nested(topics, "partitions")(partition_index=partition, replicas=tuple(replicas))
    request = cls(topics=(topics(name=topic, partitions=(wanted,)),))
    with RawConnection(cluster.bootstrap_servers.partition(",")[0]) as connection:
        assert not connection.ask(request).responses[0].partitions[0].error_code


# Settings


def test_configs_sets_one_topic_one_broker_and_all_of_them(tools: Tools) -> None:
    tools.create("configured", "3:1:2")
    topic = ("configs", "--entity-type", "topics", "--entity-name", "configured")
    tools.run(*topic, "--alter", "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    tools.run(*topic, "--alter", "--delete-config", "max.message.bytes")
    brokers = ("configs", "--entity-type", "brokers")
    tools.run(*brokers, "--entity-name", "2", "--alter", "--add-config", "log.cleaner.threads=2")
    tools.run(*brokers, "--entity-default", "--alter", "--add-config", "message.max.bytes=1500000")
    wait_until(lambda: "message.max.bytes" in tools.run(*brokers, "--describe"), PATIENCE_S)

    def shown(*arguments: str) -> dict[str, str]:
        found = re.findall(r"^\s+(\S+?)=.* synonyms=\{(.*)\}$", tools.run(*arguments, "--describe"), re.M)
        return {key: synonyms for key, synonyms in found if key != "min.insync.replicas"}

    assert list(shown(*topic)) == ["retention.ms"]
    cleaner = "DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2, DEFAULT_CONFIG:log.cleaner.threads=1"
    assert shown(*brokers, "--entity-name", "2") == {"log.cleaner.threads": cleaner}
    assert shown(*brokers, "--entity-name", "1") == {}
    default = {"message.max.bytes": "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000"}
    assert shown(*brokers, "--entity-default") == default
    every = tools.run(*brokers, "--entity-name", "3", "--describe", "--all")
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:message.max.bytes=1500000, DEFAULT_CONFIG:" in every
    refused = tools.refused(*brokers, "--entity-name", "3", "--alter", "--add-config", "node.id=7")
    assert "Cannot update these configs dynamically: [node.id]" in refused
    tools.run(*brokers, "--entity-name", "2", "--alter", "--delete-config", "log.cleaner.threads")
    tools.run(*brokers, "--entity-default", "--alter", "--delete-config", "message.max.bytes")


def test_configs_sets_quotas_of_users_client_ids_and_addresses(tools: Tools) -> None:
    users, clients = ("configs", "--entity-type", "users"), ("configs", "--entity-type", "clients")
    addresses = ("configs", "--entity-type", "ips")
    alice, app = (*users, "--entity-name", "alice"), (*clients, "--entity-name", "app")
    of_both = (*alice, "--entity-type", "clients", "--entity-name", "app")
    put, take = ("--alter", "--add-config"), ("--alter", "--delete-config")
    tools.run(*alice, *put, "producer_byte_rate=1048576,consumer_byte_rate=2097152")
    tools.run(*app, *put, "request_percentage=12.5")
    tools.run(*of_both, *put, "controller_mutation_rate=5")
    tools.run(*clients, "--entity-default", *put, "producer_byte_rate=10000000")
    tools.run(*addresses, "--entity-name", "10.1.2.3", *put, "connection_creation_rate=20")
    tools.run(*addresses, "--entity-default", *put, "connection_creation_rate=100")

    def shown(*arguments: str) -> set[tuple[str, frozenset[str]]]:
        # Of users it asks for their SCRAM credentials as well, after it has printed the quotas.
        printed = tools.call(*arguments, "--describe", check=False).stdout
        lines = re.findall(r"^Quota configs for (.*?) are (.*)$", printed, re.M)
        return {(of, frozenset(values.split(", "))) for of, values in lines}

    expected = {
        (
            "user-principal 'alice'",
            frozenset({"producer_byte_rate=1048576.0", "consumer_byte_rate=2097152.0"}),
        )
    }
    wait_until(lambda: shown(*alice) == expected, PATIENCE_S, "the quotas of alice")
    assert shown(*app) == {("client-id 'app'", frozenset({"request_percentage=12.5"}))}
    both = "user-principal 'alice', client-id 'app'"
    assert shown(*of_both) == {(both, frozenset({"controller_mutation_rate=5.0"}))}
    default = {("the default client-id", frozenset({"producer_byte_rate=1.0E7"}))}
    assert shown(*clients, "--entity-default") == default
    assert shown(*addresses) == {
        ("ip '10.1.2.3'", frozenset({"connection_creation_rate=20.0"})),
        ("the default ip", frozenset({"connection_creation_rate=100.0"})),
    }
    refused = tools.refused(*alice, *put, "producer_byte_rate=-5")
    assert "Quota producer_byte_rate must be greater than 0" in refused
    tools.refused(*alice, *put, "connection_creation_rate=5")
    tools.run(*alice, *take, "producer_byte_rate,consumer_byte_rate")
    tools.run(*app, *take, "request_percentage")
    tools.run(*of_both, *take, "controller_mutation_rate")
    tools.run(*clients, "--entity-default", *take, "producer_byte_rate")
    tools.run(*addresses, "--entity-name", "10.1.2.3", *take, "connection_creation_rate")
    tools.run(*addresses, "--entity-default", *take, "connection_creation_rate")
    wait_until(lambda: not shown(*addresses), PATIENCE_S, "the last quota to be gone")
    assert not shown(*users) and not shown(*clients)


# Records and logs


def test_offsets_records_and_logs_are_found_on_every_broker(tools: Tools) -> None:
    tools.create("filled", "1:2:3,2:3:1,3:1:2")
    for index in range(3):
        tools.produce("filled", index, index + 2)
    assert tools.run("get-offsets", "--topic", "filled").split() == ["filled:0:2", "filled:1:3", "filled:2:4"]
    begins = [("filled", 1, 2), ("filled", 2, -1), ("filled", 0, 99)]
    parts = [dict(zip(("topic", "partition", "offset"), begin, strict=True)) for begin in begins]
    file = tools.write("begins", {"version": 1, "partitions": parts})
    deleted = tools.run(DELETE_RECORDS, "--offset-json-file", file)
    lows = sorted(re.findall(r"(\S+)\s+low_watermark: (\d+)", deleted))
    assert lows == [("filled-1", "2"), ("filled-2", "4")]
    assert "filled-0\terror: org.apache.kafka.common.errors.OffsetOutOfRangeException" in deleted
    earliest = tools.run("get-offsets", "--topic", "filled", "--time", "earliest")
    assert earliest.split() == ["filled:0:0", "filled:1:2", "filled:2:4"]

    described = tools.run("log-dirs", "--describe", "--topic-list", "filled").strip().splitlines()[-1]
    brokers = json.loads(described)["brokers"]
    sizes = [
        {part["partition"]: (part["size"], part["offsetLag"]) for part in broker["logDirs"][0]["partitions"]}
        for broker in brokers
    ]
    assert [broker["broker"] for broker in brokers] == [1, 2, 3]
    assert sizes[0] == sizes[1] == sizes[2] and len(sizes[0]) == 3
    assert all(size > 61 and lag == 0 for size, lag in sizes[0].values())
    asked = ("log-dirs", "--describe", "--broker-list", "1,9")
    assert "The given brokers do not exist from --broker-list: 9." in tools.refused(*asked)


def test_the_console_tools_write_to_every_broker_and_read_from_it(
    tools: Tools, requires_kafka: Distribution
) -> None:
    tools.create("typed", "1:2:3,2:3:1,3:1:2")
    typed = [f"key-{number}:value-{number}" for number in range(60)]
    keys = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    producer = requires_kafka.run(
        *(
            "console-producer",
            "--bootstrap-server",
            tools.cluster.bootstrap_servers,
            "--topic",
            "typed",
            *keys,
        ),
        stdin="\n".join(typed) + "\n",
        timeout_s=PATIENCE_S,
    )
    assert producer.stderr == ""
    offsets = [int(line.rpartition(":")[2]) for line in tools.run("get-offsets", "--topic", "typed").split()]
    assert sum(offsets) == len(typed) and all(offsets), "keys go to all three partitions"
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    read = ("--topic", "typed", "--from-beginning", "--max-messages", str(len(typed)), *shown)
    assert sorted(tools.run("console-consumer", *read).split()) == sorted(typed)


def test_replica_verification_finds_no_lag_on_any_broker(tools: Tools, requires_kafka: Distribution) -> None:
    """It compares checksums of all replicas until it is ended, and says every second how far the last is behind."""
    tools.create("verified", "1:2:3,2:3:1")
    tools.produce("verified", 0, 50)
    words = ("--broker-list", tools.cluster.bootstrap_servers, "--topics-include", "verified")
    command = requires_kafka.command(
        REPLICA_VERIFICATION, *words, "--report-interval-ms", "500", "--time", "-2"
    )
    printed = tools.folder / "verification.txt"
    with printed.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            lag = re.compile(r"max lag is (\d+) for partition verified-\d at offset \d+ among \d partitions")

            def has_reported_twice() -> bool:
                assert process.poll() is None, printed.read_text()
                return len(lag.findall(printed.read_text())) >= 2

            wait_until(has_reported_twice, PATIENCE_S, "two reports")
        finally:
            process.kill()
    assert set(lag.findall(printed.read_text())) == {"0"}
    assert "ERROR" not in printed.read_text()


# Groups and transactions


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consumer_groups_shows_a_group_whose_coordinator_has_moved(tools: Tools, protocol: str) -> None:
    topic = group = f"read-{protocol}"
    tools.create(topic, "1:2:3,2:3:1")
    tools.produce(topic, 0, 4)
    consumer = Consumer(
        {
            "bootstrap.servers": tools.cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    describe = ("consumer-groups", "--describe", "--group", group)
    coordinator = re.compile(rf"{group}\s+\S+\s+\((\d)\)\s+(\S+)\s+Stable\s+1\b")

    def found() -> re.Match[str] | None:
        consumer.poll(0.1)
        return coordinator.search(tools.call(*describe, "--state", check=False).stdout)

    try:
        consumer.subscribe([topic])
        wait_until(lambda: len(consumer.assignment()) == 2 or not consumer.poll(0.1), PATIENCE_S)
        wait_until(lambda: found() is not None, PATIENCE_S, "a stable group")
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        first = found()
        assert first is not None and first[2] == ("range" if protocol == "classic" else "uniform")
        rows = [line.split() for line in tools.run(*describe).splitlines() if line.startswith(group)]
        assert [row[2:6] for row in rows] == [["0", "3", "4", "1"], ["1", "-", "0", "-"]]
        with tools.without(int(first[1])):
            wait_until(
                lambda: (now := found()) is not None and now[1] != first[1], PATIENCE_S, "another coordinator"
            )
            assert re.search(rf"{group}\s+\S+\s+/127.0.0.1\s+reader\s+2\b", tools.run(*describe, "--members"))
            busy = tools.run("consumer-groups", "--delete", "--group", group)
            assert "GroupNotEmptyException" in busy
            rows = [line.split() for line in tools.run(*describe).splitlines() if line.startswith(group)]
            assert [row[2:6] for row in rows] == [["0", "3", "4", "1"], ["1", "-", "0", "-"]]
    finally:
        consumer.close()
    wait_until(lambda: "Empty" in tools.run(*describe, "--state"), PATIENCE_S, "an empty group")
    reset = ("--reset-offsets", "--to-earliest", "--topic", topic, "--execute")
    moved = tools.run("consumer-groups", "--group", group, *reset)
    assert sorted(re.findall(rf"{topic}\s+(\d)\s+(\d+)", moved)) == [("0", "0"), ("1", "0")]
    assert "successful" in tools.run("consumer-groups", "--delete", "--group", group)
    assert group not in tools.run("consumer-groups", "--list").split()


def test_transactions_are_found_whoever_coordinates_them(tools: Tools) -> None:
    tools.create("transacted", "2:3:1")
    ids = [f"transacted-{number}" for number in range(4)]
    producers = {}
    for name in ids:
        settings = {
            "bootstrap.servers": tools.cluster.bootstrap_servers,
            "transactional.id": name,
            "log_level": 0,
        }
        producers[name] = Producer(settings)
        producers[name].init_transactions(PATIENCE_S)
    open_one = producers[ids[0]]
    open_one.begin_transaction()
    open_one.produce("transacted", b"value", partition=0)
    assert open_one.flush(PATIENCE_S) == 0
    listed = dict(re.findall(r"^(transacted-\d)\s+\d\s+\d+\s+(\w+)", tools.run("transactions", "list"), re.M))
    assert listed == {ids[0]: "Ongoing"} | dict.fromkeys(ids[1:], "Empty")
    described = tools.run("transactions", "describe", "--transactional-id", ids[0])
    assert re.search(rf"{ids[0]}\s+\d+\s+\d+\s+Ongoing\s+60000\s.*\stransacted-0\b", described)
    with_producers = ("transactions", "describe-producers", "--topic", "transacted", "--partition", "0")
    assert re.search(r"^\d+\s+\d+\s+-1\s+0\s+\d+\s+0\s*$", tools.run(*with_producers), re.M)
    assert len(tools.run("transactions", "find-hanging", "--broker-id", "2").strip().splitlines()) == 1
    open_one.commit_transaction(PATIENCE_S)


# The cluster


def test_every_broker_serves_the_same_and_tells_of_all(tools: Tools) -> None:
    printed = tools.run("broker-api-versions")
    served = re.split(r"^\S+ \(id: \d rack: null isFenced: false\) -> \($", printed, flags=re.M)
    assert len(served) == 4 and len({part.strip() for part in served[1:]}) == 1
    listed = tools.run("cluster", "list-endpoints")
    ports = {number: str(node.port) for number, node in tools.cluster.nodes.items()}
    found = re.findall(r"^(\d)\s+127.0.0.1\s+(\d+)\s+null\s+unfenced\s+broker", listed, re.M)
    assert {int(number): port for number, port in found} == ports
    assert re.search(r"Cluster ID: [\w-]{22}\n", tools.run("cluster", "cluster-id"))


def test_features_are_told_and_no_quorum_is(tools: Tools, request: pytest.FixtureRequest) -> None:
    features = dict(
        re.findall(r"^Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", tools.run(FEATURES, "describe"), re.M)
    )
    assert features["transaction.version"] == "2" and features["group.version"] == "1"
    if request.config.getoption("--target") == "moldau":
        said = tools.refused(QUORUM, "describe", "--status")
        assert "UnsupportedVersionException: The node does not support DESCRIBE_QUORUM" in said


def test_a_broker_that_was_unregistered_leads_and_is_followed_when_it_is_back(tools: Tools) -> None:
    tools.create("back", "2:3:1")
    assert "Broker ID 9 is not currently registered" in tools.refused("cluster", "unregister", "--id", "9")
    with tools.without(2):
        assert "Broker 2 is no longer registered." in tools.run("cluster", "unregister", "--id", "2")
        endpoints = ("cluster", "list-endpoints", "--include-fenced-brokers")
        wait_until(lambda: re.findall(r"^(\d) ", tools.run(*endpoints), re.M) == ["1", "3"], PATIENCE_S)
        assert tools.partitions("--topic", "back") == {"back-0": ("3", "2,3,1", "1,3")}
    tools.run(ELECTION, "--election-type", "preferred", "--topic", "back", "--partition", "0")
    wait_until(lambda: tools.partitions("--topic", "back")["back-0"][0] == "2", PATIENCE_S, "2 leads")
    tools.produce("back", 0, 3)
    assert tools.run("get-offsets", "--topic", "back") == "back:0:3\n"
