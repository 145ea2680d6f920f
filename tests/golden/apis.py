"""What to ask Kafka about: for each API a function that is called once for every version.

Requests are dictionaries of the fields that matter: what a version lacks is left out of it, and what a dictionary lacks
gets its default.
"""

from __future__ import annotations

from typing import Any

from .recorder import NO_SUCH_ID, Recorder, cases
from .stage import APPEND_TIME, COMPACTED, MISSING, TIMESTAMP_MS, TOPIC, batch, create_topic, delete_topic

READ_COMMITTED = 1
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


@cases("ApiVersions")
def api_versions(golden: Recorder) -> None:
    golden.ask(
        "a client that names itself", {"client_software_name": "moldau", "client_software_version": "1.0"}
    )
    if golden.version >= 3:
        golden.ask(
            "a software name that is refused", {"client_software_name": " ", "client_software_version": "1.0"}
        )
    if golden.version == 4:
        golden.ask_raw("a version that is yet to come", 99, b"\7moldau\0041.0\0")


@cases("Metadata")
def metadata(golden: Recorder) -> None:
    flags = {
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
        "allow_auto_topic_creation": False,
    }
    golden.ask(
        "two topics and a missing one",
        {"topics": [{"name": n} for n in (TOPIC, COMPACTED, MISSING)], **flags},
    )
    golden.ask("an invalid name", {"topics": [{"name": "no spaces"}], **flags})
    if golden.version >= 1:
        golden.ask("no topics", {"topics": []})
    if golden.version >= 12:
        golden.ask("by id", {"topics": [{"topic_id": golden.topic_id(TOPIC), "name": None}]})
        golden.ask("by an unknown id", {"topics": [{"topic_id": NO_SUCH_ID, "name": None}]})


@cases("Produce")
def produce(golden: Recorder) -> None:
    def ask(case: str, topics: list[tuple[str, list[tuple[int, bytes]]]], acks: int = -1) -> None:
        topic_data = [
            {
                **golden.named(name, ids_from=13),
                "partition_data": [{"index": index, "records": records} for index, records in partitions],
            }
            for name, partitions in topics
        ]
        golden.ask(case, {"acks": acks, "timeout": 30_000, "topic_data": topic_data})

    ask("one partition", [(TOPIC, [(0, batch(b"first", b"second", None))])])
    ask("one partition, acks=1", [(TOPIC, [(1, batch(b"third"))])], acks=1)
    ask("append time", [(APPEND_TIME, [(0, batch(b"now"))])])
    ask(
        "several topics, one of them missing",
        [
            (TOPIC, [(0, batch(b"a")), (1, batch(b"b"))]),
            (COMPACTED, [(0, batch(b"c"))]),
            (MISSING, [(0, batch(b"d"))]),
        ],
    )
    ask("a partition that is not there", [(TOPIC, [(99, batch(b"a"))])])
    ask("records without a key to a compacted topic", [(COMPACTED, [(0, batch(b"a", b"b", key=None))])])
    corrupt = bytearray(batch(b"corrupt"))
    corrupt[-1] ^= 0xFF
    ask("a corrupt batch", [(TOPIC, [(0, bytes(corrupt))])])
    ask("invalid acks", [(TOPIC, [(0, batch(b"a"))])], acks=3)


@cases("Fetch")
def fetch(golden: Recorder) -> None:
    def topic(name: str, *partitions: dict[str, Any]) -> dict[str, Any]:
        defaults = {"partition_max_bytes": 300, "fetch_offset": 0}
        return {
            **golden.named(name, ids_from=13, key="topic"),
            "partitions": [defaults | partition for partition in partitions],
        }

    def ask(case: str, *topics: dict[str, Any], **values: Any) -> Any:
        return golden.ask(
            case, {"max_wait": 10, "min_bytes": 1, "max_bytes": 1000, "topics": topics, **values}
        )

    both = {"partition": 0}, {"partition": 1}
    ask("from the start", topic(TOPIC, {"partition": 0}))
    ask("read committed, with aborted transactions", topic(TOPIC, *both), isolation_level=READ_COMMITTED)
    ask(
        "several topics, one of them missing",
        topic(TOPIC, *both),
        topic(COMPACTED, {"partition": 0}),
        topic(MISSING, *both),
    )
    ask("out of range", topic(TOPIC, {"partition": 0, "fetch_offset": 1_000_000_000}))
    ask("a partition that is not there", topic(TOPIC, {"partition": 99}))
    if golden.version >= 9:
        ask("an old leader epoch", topic(TOPIC, {"partition": 0, "current_leader_epoch": 0}))
        ask("an unknown leader epoch", topic(TOPIC, {"partition": 0, "current_leader_epoch": 1000}))
    if golden.version >= 12:
        diverging = {"partition": 0, "fetch_offset": 3, "last_fetched_epoch": 1}
        ask("a log that diverges", topic(TOPIC, diverging))
    if golden.version >= 7:
        session = ask("a new session", topic(TOPIC, *both), session_epoch=0).session_id
        far = topic(TOPIC, {"partition": 0, "fetch_offset": 3})
        ask("a session goes on", far, session_id=session, session_epoch=1)
        forgotten = {**golden.named(TOPIC, ids_from=13, key="topic"), "partitions": [1]}
        ask("a session forgets", session_id=session, session_epoch=2, forgotten_topics_data=[forgotten])
        ask("a session is not there", session_id=session, session_epoch=77)
        ask("a session ends", session_id=session, session_epoch=-1)


@cases("ListOffsets")
def list_offsets(golden: Recorder) -> None:
    def ask(case: str, name: str, timestamp: int, partition: int = 0, **values: Any) -> None:
        partitions = [{"partition_index": partition, "timestamp": timestamp}]
        request = {"replica_id": -1, "timeout": 1000, "topics": [{"name": name, "partitions": partitions}]}
        golden.ask(case, request | values)

    ask("latest", TOPIC, -1)
    ask("earliest", TOPIC, -2)
    ask("by timestamp", TOPIC, TIMESTAMP_MS + 1)
    ask("by a timestamp that is yet to come", TOPIC, 1 << 60)
    ask("latest stable", TOPIC, -1, isolation_level=READ_COMMITTED)
    ask("a missing topic", MISSING, -1)
    ask("a partition that is not there", TOPIC, -1, 99)
    if golden.version >= 7:
        ask("maximal timestamp", TOPIC, -3)
    if golden.version >= 8:
        ask("earliest local", TOPIC, -4)
    if golden.version >= 9:
        ask("latest tiered", TOPIC, -5)


@cases("OffsetForLeaderEpoch")
def offset_for_leader_epoch(golden: Recorder) -> None:
    def ask(case: str, name: str, **partition: int) -> None:
        topic = {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0} | partition]}
        golden.ask(case, {"replica_id": -1, "topics": [topic]})

    ask("the first epoch", TOPIC)
    ask("an epoch that is yet to come", TOPIC, leader_epoch=1000)
    ask("an unknown current epoch", TOPIC, current_leader_epoch=1000)
    ask("a missing topic", MISSING)


@cases("CreateTopics")
def create_topics(golden: Recorder) -> None:
    def ask(case: str, *topics: dict[str, Any], validate_only: bool = True) -> None:
        defaults = {"num_partitions": 2, "replication_factor": 1}
        request = {
            "topics": [defaults | topic for topic in topics],
            "timeout": 30_000,
            "validate_only": validate_only,
        }
        golden.ask(case, request)

    name = f"golden-created-{golden.version}"
    delete_topic(golden.kafka, name)
    retention = [{"name": "retention.ms", "value": "60000"}]
    ask("valid", {"name": name, "configs": retention})
    ask("created", {"name": name, "configs": retention}, validate_only=False)
    delete_topic(golden.kafka, name)
    assigned = {"num_partitions": -1, "replication_factor": -1}
    ask("assigned", {"name": name, **assigned, "assignments": [{"partition_index": 0, "broker_ids": [1]}]})
    ask(
        "refused",
        {"name": TOPIC},
        {"name": "no spaces"},
        {"name": name, "replication_factor": 9},
        {"name": name + "-zero", "num_partitions": 0},
        {"name": name + "-config", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"name": name + "-unknown", "configs": [{"name": "no.such.key", "value": None}]},
    )
    ask("none")


@cases("DeleteTopics")
def delete_topics(golden: Recorder) -> None:
    name = f"golden-deleted-{golden.version}"
    create_topic(golden.kafka, name)
    golden.ask("deleted", {"topic_names": [name], "topics": [{"name": name}], "timeout": 30_000})
    names = [MISSING, "no spaces"]
    golden.ask("refused", {"topic_names": names, "topics": [{"name": n} for n in names], "timeout": 30_000})
    if golden.version >= 6:
        golden.ask(
            "by an unknown id",
            {"topics": [{"name": None, "topic_id": NO_SUCH_ID}], "timeout": 1000},
        )


@cases("CreatePartitions")
def create_partitions(golden: Recorder) -> None:
    def ask(case: str, name: str, count: int, assignments: list[Any] | None = None) -> None:
        topic = {"name": name, "count": count, "assignments": assignments}
        golden.ask(case, {"topics": [topic], "timeout": 30_000, "validate_only": True})

    ask("valid", TOPIC, 5)
    ask("assigned", TOPIC, 3, [{"broker_ids": [1]}])
    ask("assigned to a broker that is not there", TOPIC, 3, [{"broker_ids": [77]}])
    ask("fewer than there are", TOPIC, 1)
    ask("a missing topic", MISSING, 3)


@cases("DescribeConfigs")
def describe_configs(golden: Recorder) -> None:
    def ask(case: str, kind: int, name: str, keys: list[str] | None, **values: Any) -> None:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
        golden.ask(case, {"resources": [resource], **values})

    topic_keys = ["retention.ms", "cleanup.policy", "min.insync.replicas", "no.such.key"]
    ask("some of a topic", TOPIC_RESOURCE, TOPIC, topic_keys)
    ask("with synonyms", TOPIC_RESOURCE, TOPIC, topic_keys, include_synonyms=True, include_documentation=True)
    ask("a whole topic", TOPIC_RESOURCE, COMPACTED, None)
    ask("some of a broker", BROKER_RESOURCE, "1", ["node.id", "log.retention.hours", "ssl.key.password"])
    ask("a missing topic", TOPIC_RESOURCE, MISSING, None)
    ask("a broker that is not there", BROKER_RESOURCE, "77", None)
    ask("a resource that is none", 99, "x", None)


@cases("AlterConfigs")
def alter_configs(golden: Recorder) -> None:
    def ask(case: str, name: str, key: str, value: str | None) -> None:
        configs = [{"name": key, "value": value}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs}
        golden.ask(case, {"resources": [resource], "validate_only": True})

    ask("valid", TOPIC, "retention.ms", "60000")
    ask("a bad value", TOPIC, "retention.ms", "soon")
    ask("a null", TOPIC, "retention.ms", None)
    ask("an unknown key", TOPIC, "no.such.key", "1")
    ask("a missing topic", MISSING, "retention.ms", "60000")


@cases("IncrementalAlterConfigs")
def incremental_alter_configs(golden: Recorder) -> None:
    def ask(case: str, name: str, key: str, operation: int, value: str | None) -> None:
        configs = [{"name": key, "config_operation": operation, "value": value}]
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configs": configs}
        golden.ask(case, {"resources": [resource], "validate_only": True})

    ask("set", TOPIC, "retention.ms", 0, "60000")
    ask("delete", TOPIC, "retention.ms", 1, None)
    ask("append", TOPIC, "cleanup.policy", 2, "compact")
    ask("subtract", TOPIC, "cleanup.policy", 3, "compact")
    ask("append to what is no list", TOPIC, "retention.ms", 2, "60000")
    ask("an operation that is none", TOPIC, "retention.ms", 9, "60000")
    ask("a bad value", TOPIC, "retention.ms", 0, "soon")
    ask("a missing topic", MISSING, "retention.ms", 0, "60000")


@cases("ListConfigResources")
def list_config_resources(golden: Recorder) -> None:
    golden.ask("all", {"resource_types": []})
    if golden.version >= 1:
        golden.ask("topics and brokers", {"resource_types": [TOPIC_RESOURCE, BROKER_RESOURCE]})
        golden.ask("a type that is none", {"resource_types": [99]})


@cases("DescribeCluster")
def describe_cluster(golden: Recorder) -> None:
    golden.ask("brokers", {"include_cluster_authorized_operations": True, "include_fenced_brokers": True})
    if golden.version >= 1:
        golden.ask("controllers", {"endpoint_type": 2})


@cases("DescribeTopicPartitions")
def describe_topic_partitions(golden: Recorder) -> None:
    names = [{"name": name} for name in (COMPACTED, TOPIC, MISSING)]
    golden.ask("all", {"topics": names})
    golden.ask("the first page", {"topics": names, "response_partition_limit": 2})
    cursor = {"topic_name": TOPIC, "partition_index": 1}
    golden.ask("the next page", {"topics": names, "response_partition_limit": 2, "cursor": cursor})


@cases("DescribeLogDirs")
def describe_log_dirs(golden: Recorder) -> None:
    golden.ask("some partitions", {"topics": [{"topic": TOPIC, "partitions": [0, 1]}]})
    golden.ask("a missing topic", {"topics": [{"topic": MISSING, "partitions": [0]}]})


@cases("InitProducerId")
def init_producer_id(golden: Recorder) -> None:
    golden.ask("idempotent", {"transactional_id": None, "transaction_timeout": 60_000})
    golden.ask("no time", {"transactional_id": "golden-no-time", "transaction_timeout": 0})
    golden.ask("an empty transactional id", {"transactional_id": "", "transaction_timeout": 60_000})


@cases("DescribeProducers")
def describe_producers(golden: Recorder) -> None:
    golden.ask("two partitions", {"topics": [{"name": TOPIC, "partition_indexes": [0, 1]}]})
    golden.ask("a missing topic", {"topics": [{"name": MISSING, "partition_indexes": [0]}]})
    golden.ask("a partition that is not there", {"topics": [{"name": TOPIC, "partition_indexes": [99]}]})


@cases("FindCoordinator")
def find_coordinator(golden: Recorder) -> None:
    golden.ask("of a group", {"key": "group", "coordinator_keys": ["group", "another"], "key_type": 0})
    if golden.version >= 1:
        golden.ask(
            "of a transaction", {"key": "transaction", "coordinator_keys": ["transaction"], "key_type": 1}
        )
        golden.ask("of what is none", {"key": "x", "coordinator_keys": ["x"], "key_type": 9})
