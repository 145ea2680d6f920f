"""What a stranger asks, by API: of what he gets a right to (`g-`) and of what he does not (`d-`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from interop.same_answers.peers import Both
from moldau.records.record import Record, build_batch

Ids = dict[str, Both]
NAMES = ("g-there", "d-there", "g-absent", "d-absent")
GROUPS = ("g-group", "d-group")
READER = "g-reader"
"""A group that reads a topic which the stranger may not see."""
IDS = ("g-id", "d-id")
PRODUCER_ID, EPOCH = 4_000_000, 0
NOW_MS = 1_700_000_000_000


class Case(NamedTuple):
    api: str
    version: int
    label: str
    values: Callable[[Ids], dict[str, Any]]


CASES: list[Case] = []


def case(api: str, version: int, label: str = "", **values: Any) -> None:
    CASES.append(Case(api, version, label, lambda _ids: values))


def case_by_id(api: str, version: int, label: str, values: Callable[[Ids], dict[str, Any]]) -> None:
    CASES.append(Case(api, version, label, values))


def batch(*, transactional: bool = False) -> bytes:
    producer = {"producer_id": PRODUCER_ID, "producer_epoch": EPOCH, "base_sequence": 0}
    records = [Record(0, NOW_MS, b"key", b"value")]
    return build_batch(records, transactional=transactional, **(producer if transactional else {}))


def produced(**named: Any) -> dict[str, Any]:
    return {**named, "partition_data": [{"index": 0, "records": batch()}]}


def partitions(name_field: str = "name", **partition: Any) -> list[dict[str, Any]]:
    return [{name_field: name, "partitions": [partition]} for name in NAMES]


def indexes(name_field: str = "name", field: str = "partition_indexes") -> list[dict[str, Any]]:
    return [{name_field: name, field: [0]} for name in NAMES]


# ---- data ---------------------------------------------------------------------------------------------------------

WRITTEN = {"acks": -1, "timeout": 5000}
case("Produce", 12, **WRITTEN, topic_data=[produced(name=name) for name in NAMES])
case("Produce", 3, "one", **WRITTEN, topic_data=[produced(name="d-there")])
case("Produce", 12, "one that may be", **WRITTEN, topic_data=[produced(name="g-there")])
case_by_id(
    "Produce",
    13,
    "by id",
    lambda ids: {
        **WRITTEN,
        "topic_data": [produced(topic_id=ids["g-there"]), produced(topic_id=ids["d-there"])],
    },
)
for transactional_id in IDS:
    rows = [{"index": 0, "records": batch(transactional=True)}]
    case(
        "Produce",
        11,
        f"in the transaction {transactional_id}",
        **WRITTEN,
        transactional_id=transactional_id,
        topic_data=[{"name": name, "partition_data": rows} for name in ("d-there", "g-absent")],
    )
WANTED = {
    "partition": 0,
    "fetch_offset": 0,
    "partition_max_bytes": 1000,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "log_start_offset": -1,
}
READ = {"max_bytes": 1000, "max_wait": 0, "session_epoch": -1, "rack_id": ""}
case("Fetch", 12, **READ, replica_id=-1, topics=partitions("topic", **WANTED))
case("Fetch", 12, "as a follower", **READ, replica_id=1, topics=partitions("topic", **WANTED))
case_by_id(
    "Fetch",
    17,
    "by id",
    lambda ids: {
        **READ,
        "topics": [{"topic_id": ids[name], "partitions": [WANTED]} for name in ("g-there", "d-there")],
    },
)
case("ListOffsets", 10, replica_id=-1, topics=partitions(partition_index=0, timestamp=-2))
case("OffsetForLeaderEpoch", 4, replica_id=-1, topics=partitions("topic", partition=0, leader_epoch=0))
case("DeleteRecords", 2, timeout=5000, topics=partitions(partition_index=0, offset=0))
case("DescribeProducers", 0, topics=indexes())

# ---- what there is ------------------------------------------------------------------------------------------------

SHOWN = {"include_topic_authorized_operations": True}
case("Metadata", 12, **SHOWN, topics=[{"name": name} for name in NAMES], allow_auto_topic_creation=False)
case("Metadata", 12, "all", topics=None, allow_auto_topic_creation=False)
case("Metadata", 10, "the cluster", topics=[], include_cluster_authorized_operations=True, **SHOWN)
case_by_id(
    "Metadata",
    12,
    "by id",
    lambda ids: {
        "topics": [{"topic_id": ids[name], "name": None} for name in ("g-there", "d-there")],
        **SHOWN,
    },
)
case("DescribeCluster", 1, include_cluster_authorized_operations=True, endpoint_type=1)
case("DescribeTopicPartitions", 0, topics=[{"name": name} for name in NAMES], response_partition_limit=100)
case("DescribeTopicPartitions", 0, "all", topics=[], response_partition_limit=100)

# ---- groups -------------------------------------------------------------------------------------------------------

for group in GROUPS:
    case(
        "OffsetCommit",
        9,
        group,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=partitions(partition_index=0, committed_offset=0),
    )
    case(
        "TxnOffsetCommit",
        3,
        group,
        transactional_id="g-id",
        group_id=group,
        producer_id=PRODUCER_ID,
        producer_epoch=EPOCH,
        generation_id=-1,
        topics=partitions(partition_index=0, committed_offset=0),
    )
    case(
        "JoinGroup",
        7,
        group,
        group_id=group,
        session_timeout=10_000,
        rebalance_timeout=10_000,
        member_id="nobody",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}],
    )
    case("Heartbeat", 4, group, group_id=group, generation_id=1, member_id="nobody")
    case("SyncGroup", 5, group, group_id=group, generation_id=1, member_id="nobody", assignments=[])
    case(
        "SyncGroup",
        5,
        f"{group}, whole",
        group_id=group,
        generation_id=1,
        member_id="nobody",
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    case("LeaveGroup", 5, group, group_id=group, members=[{"member_id": "nobody"}])
    case("OffsetDelete", 0, group, group_id=group, topics=partitions(partition_index=0))
    case(
        "ConsumerGroupHeartbeat",
        1,
        f"{group}, of a topic that is denied",
        group_id=group,
        member_id="nobody",
        member_epoch=7,
        subscribed_topic_names=["g-there", "d-there"],
    )
    case(
        "ConsumerGroupHeartbeat",
        1,
        group,
        group_id=group,
        member_id="nobody",
        member_epoch=7,
        subscribed_topic_names=["g-there"],
    )
case(
    "OffsetFetch",
    9,
    groups=[{"group_id": group, "topics": indexes(), "member_epoch": -1} for group in GROUPS],
)
case(
    "OffsetFetch",
    8,
    "all",
    groups=[{"group_id": group, "topics": None} for group in GROUPS],
)
case("OffsetFetch", 1, "of old", group_id="d-group", topics=indexes())
case("FindCoordinator", 4, "groups", key_type=0, coordinator_keys=list(GROUPS))
case("FindCoordinator", 4, "transactional ids", key_type=1, coordinator_keys=list(IDS))
case("FindCoordinator", 3, "one", key_type=1, key="d-id")
case("DescribeGroups", 6, groups=list(GROUPS), include_authorized_operations=True)
case("ConsumerGroupDescribe", 1, group_ids=[*GROUPS, READER], include_authorized_operations=True)
case("ListGroups", 5)
case("DeleteGroups", 2, groups_names=list(GROUPS))

# ---- transactions -------------------------------------------------------------------------------------------------

case("InitProducerId", 4, "plain", transactional_id=None)
case("InitProducerId", 4, "half named", transactional_id="d-id", producer_id=5, producer_epoch=-1)
PRODUCER = {"producer_id": PRODUCER_ID, "producer_epoch": EPOCH}
OLD = {f"v3_and_below_{name}": value for name, value in PRODUCER.items()}
for transactional_id in IDS:
    case(
        "AddPartitionsToTxn",
        3,
        transactional_id,
        **OLD,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=indexes(field="partitions"),
    )
    case(
        "AddPartitionsToTxn",
        3,
        f"{transactional_id}, of its own",
        **OLD,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_topics=[{"name": "g-there", "partitions": [0]}],
    )
    case("EndTxn", 3, transactional_id, transactional_id=transactional_id, committed=False, **PRODUCER)
    for group in GROUPS:
        names = {"transactional_id": transactional_id, "group_id": group}
        case("AddOffsetsToTxn", 3, f"{transactional_id} {group}", **names, **PRODUCER)
case(
    "AddPartitionsToTxn",
    4,
    "as a broker",
    transactions=[
        {
            "transactional_id": "d-id",
            **PRODUCER,
            "verify_only": True,
            "topics": [{"name": "d-there", "partitions": [0]}],
        }
    ],
)
case("DescribeTransactions", 0, transactional_ids=list(IDS))
case("ListTransactions", 1, state_filters=[], producer_id_filters=[])
case(
    "WriteTxnMarkers",
    1,
    markers=[
        {
            "producer_id": PRODUCER_ID,
            "producer_epoch": EPOCH,
            "transaction_result": False,
            "coordinator_epoch": -1,
            "topics": [{"name": "d-absent", "partition_indexes": [0]}],
        }
    ],
)

# ---- administration -----------------------------------------------------------------------------------------------

NEW = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in NAMES]
case("CreateTopics", 7, topics=NEW, timeout=5000, validate_only=True)
case("CreateTopics", 7, "twice", topics=[NEW[3], NEW[3], NEW[2]], timeout=5000, validate_only=True)
case("DeleteTopics", 5, topic_names=["g-absent", "d-absent"], timeout=5000)
case_by_id(
    "DeleteTopics",
    6,
    "by id",
    lambda ids: {
        "topics": [{"name": None, "topic_id": ids["d-doomed"]}, {"name": "d-absent"}],
        "timeout": 5000,
    },
)
MORE = [{"name": name, "count": 1, "assignments": None} for name in NAMES]
case("CreatePartitions", 3, topics=MORE, timeout=5000, validate_only=True)
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
RESOURCES = [(TOPIC, name) for name in NAMES] + [(GROUP, group) for group in GROUPS] + [(CLIENT_METRICS, "m")]
for type_, name in [*RESOURCES, (BROKER, "1"), (LOGGER, "1")]:
    keys = ["retention.ms"] if type_ == TOPIC else ["no.such.key"]
    asked = {"resource_type": type_, "resource_name": name, "configuration_keys": keys}
    case("DescribeConfigs", 4, f"{type_} {name}", resources=[asked])
for type_, name in RESOURCES:
    asked = {"resource_type": type_, "resource_name": name, "configs": []}
    case("AlterConfigs", 2, f"{type_} {name}", resources=[asked], validate_only=True)
    case("IncrementalAlterConfigs", 1, f"{type_} {name}", resources=[asked], validate_only=True)
case("ListConfigResources", 1, resource_types=[TOPIC])
case("AlterReplicaLogDirs", 2, dirs=[{"path": "/none", "topics": [{"name": "g-there", "partitions": [0]}]}])
case("DescribeLogDirs", 4, topics=[{"topic": "g-there", "partitions": [0]}])
case(
    "ElectLeaders",
    2,
    election_type=0,
    topic_partitions=[{"topic": "g-there", "partitions": [0]}],
    timeout=5000,
)
MOVED = [{"name": "d-absent", "partitions": [{"partition_index": 0, "replicas": None}]}]
case("AlterPartitionReassignments", 0, topics=MOVED, timeout=5000)
case("ListPartitionReassignments", 0, topics=None, timeout=5000)
case("UnregisterBroker", 0, broker_id=77)
FILTER = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
case("DescribeAcls", 3, **FILTER, resource_name_filter="nothing")
case("DeleteAcls", 3, filters=[{**FILTER, "resource_name_filter": "nothing"}])
BAD = {
    "resource_type": 2,
    "resource_name": "",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
case("CreateAcls", 3, creations=[BAD])
case(
    "DescribeClientQuotas",
    1,
    components=[{"entity_type": "user", "match_type": 0, "match": "nobody"}],
    strict=False,
)
QUOTA = {
    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
    "ops": [{"key": "consumer_byte_rate", "value": 1e6, "remove": False}],
}
case("AlterClientQuotas", 1, entries=[QUOTA], validate_only=True)
case("DescribeUserScramCredentials", 0, users=[{"name": "nobody"}])
case(
    "AlterUserScramCredentials",
    0,
    deletions=[{"name": "nobody", "mechanism": 1}],
    upsertions=[],
)
