"""What each API asks before it does something: the one table, which handlers take their checks from (`right`), and
docs/security.md is made from (`rights_page`). Pure.

The rows of an API stand in the order in which they are asked, as in Kafka 4.3 (KafkaApis, ControllerApis, AuthHelper,
ConfigHelper). A row says which operation on which kind of resource is asked, and the error where it is denied;
`ErrorCode.none` where what is denied is left out of the answer, or another row is asked instead. An API without rows
asks nothing. A test holds the table and the handlers equal, both ways.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.security.acls import Operation, Resource

_O, _R = Operation, Resource
_CLUSTER, _TOPIC, _GROUP, _TXN = _R.CLUSTER, _R.TOPIC, _R.GROUP, _R.TRANSACTIONAL_ID

ERRORS = {
    _CLUSTER: ErrorCode.cluster_authorization_failed,
    _TOPIC: ErrorCode.topic_authorization_failed,
    _GROUP: ErrorCode.group_authorization_failed,
    _TXN: ErrorCode.transactional_id_authorization_failed,
}
LEFT_OUT = ErrorCode.none


class Right(NamedTuple):
    """What an API asks of one kind of resource."""

    api: str
    operation: Operation
    resource: Resource
    error: ErrorCode
    note: str

    @property
    def message(self) -> str:
        """Kafka's own text of the error."""
        return MESSAGES[self.error]


MESSAGES = {
    ErrorCode.cluster_authorization_failed: "Cluster authorization failed.",
    ErrorCode.topic_authorization_failed: "Topic authorization failed.",
    ErrorCode.group_authorization_failed: "Group authorization failed.",
    ErrorCode.transactional_id_authorization_failed: "Transactional Id authorization failed.",
}

_Row = tuple[Operation, Resource, str] | tuple[Operation, Resource, str, ErrorCode]

_BETWEEN_BROKERS: tuple[_Row, ...] = ((_O.CLUSTER_ACTION, _CLUSTER, "it is for brokers"),)
_ELSE = "else, by topic"

_ROWS: dict[str, tuple[_Row, ...]] = {
    "Produce": (
        (_O.WRITE, _TXN, "where there are batches of a transaction; the whole request is refused"),
        (_O.WRITE, _TOPIC, ""),
    ),
    "Fetch": (
        (_O.CLUSTER_ACTION, _CLUSTER, "of a follower", ErrorCode.topic_authorization_failed),
        (_O.READ, _TOPIC, "of a consumer"),
    ),
    "ListOffsets": ((_O.DESCRIBE, _TOPIC, ""),),
    "Metadata": (
        (_O.DESCRIBE, _TOPIC, "where all topics are asked for, others are left out"),
        (_O.CREATE, _CLUSTER, "to create a topic that is not there", LEFT_OUT),
        (_O.CREATE, _TOPIC, _ELSE),
        (_O.DESCRIBE, _CLUSTER, "for the operations on the cluster: none are told", LEFT_OUT),
    ),
    "OffsetCommit": ((_O.READ, _GROUP, ""), (_O.READ, _TOPIC, "")),
    "OffsetFetch": (
        (_O.DESCRIBE, _GROUP, ""),
        (_O.DESCRIBE, _TOPIC, "where all topics are asked for, others are left out"),
    ),
    "FindCoordinator": ((_O.DESCRIBE, _GROUP, ""), (_O.DESCRIBE, _TXN, "")),
    "JoinGroup": ((_O.READ, _GROUP, ""),),
    "Heartbeat": ((_O.READ, _GROUP, ""),),
    "LeaveGroup": ((_O.READ, _GROUP, ""),),
    "SyncGroup": ((_O.READ, _GROUP, ""),),
    "DescribeGroups": ((_O.DESCRIBE, _GROUP, ""),),
    "ListGroups": (
        (_O.DESCRIBE, _CLUSTER, "all groups are listed", LEFT_OUT),
        (_O.DESCRIBE, _GROUP, "else, by group; others are left out", LEFT_OUT),
    ),
    "SaslHandshake": (),
    "ApiVersions": (),
    "CreateTopics": (
        (_O.CREATE, _CLUSTER, "of whatever name", LEFT_OUT),
        (_O.CREATE, _TOPIC, _ELSE),
        (_O.DESCRIBE_CONFIGS, _TOPIC, "for the settings in the answer: in the field for their error"),
    ),
    "DeleteTopics": (
        (_O.DELETE, _CLUSTER, "of whatever name", LEFT_OUT),
        (_O.DESCRIBE, _TOPIC, "else, by topic: without it, an id does not tell the name"),
        (_O.DELETE, _TOPIC, _ELSE),
    ),
    "DeleteRecords": ((_O.DELETE, _TOPIC, ""),),
    "InitProducerId": (
        (_O.WRITE, _TXN, "with a transactional id"),
        (_O.IDEMPOTENT_WRITE, _CLUSTER, "without one", LEFT_OUT),
        (_O.WRITE, _TOPIC, "else, any topic at all", ErrorCode.cluster_authorization_failed),
    ),
    "OffsetForLeaderEpoch": (
        (_O.CLUSTER_ACTION, _CLUSTER, "of all topics", LEFT_OUT),
        (_O.DESCRIBE, _TOPIC, _ELSE),
    ),
    "AddPartitionsToTxn": (
        (_O.CLUSTER_ACTION, _CLUSTER, "from version 4 on, which is for brokers"),
        (_O.WRITE, _TXN, "before"),
        (_O.WRITE, _TOPIC, "before"),
    ),
    "AddOffsetsToTxn": ((_O.WRITE, _TXN, ""), (_O.READ, _GROUP, "")),
    "EndTxn": ((_O.WRITE, _TXN, ""),),
    "WriteTxnMarkers": (
        (_O.ALTER, _CLUSTER, "", LEFT_OUT),
        (_O.CLUSTER_ACTION, _CLUSTER, "where that is denied"),
    ),
    "TxnOffsetCommit": ((_O.WRITE, _TXN, ""), (_O.READ, _GROUP, ""), (_O.READ, _TOPIC, "")),
    "DescribeAcls": ((_O.DESCRIBE, _CLUSTER, ""),),
    "CreateAcls": ((_O.ALTER, _CLUSTER, ""),),
    "DeleteAcls": ((_O.ALTER, _CLUSTER, ""),),
    "DescribeConfigs": (
        (_O.DESCRIBE_CONFIGS, _CLUSTER, "of brokers, loggers and client metrics"),
        (_O.DESCRIBE_CONFIGS, _TOPIC, ""),
        (_O.DESCRIBE_CONFIGS, _GROUP, ""),
    ),
    "AlterConfigs": (
        (_O.ALTER_CONFIGS, _CLUSTER, "of brokers and client metrics"),
        (_O.ALTER_CONFIGS, _TOPIC, ""),
        (_O.ALTER_CONFIGS, _GROUP, ""),
    ),
    "AlterReplicaLogDirs": ((_O.ALTER, _CLUSTER, ""),),
    "DescribeLogDirs": ((_O.DESCRIBE, _CLUSTER, ""),),
    "SaslAuthenticate": (),
    "CreatePartitions": ((_O.ALTER, _TOPIC, ""),),
    "DeleteGroups": ((_O.DELETE, _GROUP, ""),),
    "ElectLeaders": ((_O.ALTER, _CLUSTER, ""),),
    "IncrementalAlterConfigs": (
        (_O.ALTER_CONFIGS, _CLUSTER, "of brokers, loggers and client metrics"),
        (_O.ALTER_CONFIGS, _TOPIC, ""),
        (_O.ALTER_CONFIGS, _GROUP, ""),
    ),
    "AlterPartitionReassignments": ((_O.ALTER, _CLUSTER, ""),),
    "ListPartitionReassignments": ((_O.DESCRIBE, _CLUSTER, ""),),
    "OffsetDelete": ((_O.DELETE, _GROUP, ""), (_O.READ, _TOPIC, "")),
    "DescribeClientQuotas": ((_O.DESCRIBE_CONFIGS, _CLUSTER, ""),),
    "AlterClientQuotas": ((_O.ALTER_CONFIGS, _CLUSTER, ""),),
    "DescribeUserScramCredentials": ((_O.DESCRIBE, _CLUSTER, ""),),
    "AlterUserScramCredentials": ((_O.ALTER, _CLUSTER, ""),),
    "AlterPartition": _BETWEEN_BROKERS,
    "Envelope": (
        (_O.CLUSTER_ACTION, _CLUSTER, "of the broker that forwards; what is within asks for who sent it"),
    ),
    "DescribeCluster": (
        (_O.DESCRIBE, _CLUSTER, "for the operations on the cluster: none are told", LEFT_OUT),
    ),
    "DescribeProducers": ((_O.READ, _TOPIC, ""),),
    "BrokerHeartbeat": _BETWEEN_BROKERS,
    "UnregisterBroker": ((_O.ALTER, _CLUSTER, ""),),
    "DescribeTransactions": (
        (_O.DESCRIBE, _TXN, ""),
        (_O.DESCRIBE, _TOPIC, "of a transaction's partitions; others are left out", LEFT_OUT),
    ),
    "ListTransactions": ((_O.DESCRIBE, _TXN, "others are left out", LEFT_OUT),),
    "AllocateProducerIds": _BETWEEN_BROKERS,
    "ConsumerGroupHeartbeat": (
        (_O.READ, _GROUP, ""),
        (_O.DESCRIBE, _TOPIC, "of each topic that it names; what an expression finds is left out"),
    ),
    "ConsumerGroupDescribe": (
        (_O.DESCRIBE, _GROUP, ""),
        (_O.DESCRIBE, _TOPIC, "of each topic that a member has"),
    ),
    "ListConfigResources": ((_O.DESCRIBE_CONFIGS, _CLUSTER, ""),),
    "DescribeTopicPartitions": (
        (_O.DESCRIBE, _TOPIC, "where all topics are asked for, others are left out"),
    ),
    "Cluster": _BETWEEN_BROKERS,
}


def _rights(api: str, rows: tuple[_Row, ...]) -> Iterator[Right]:
    for operation, resource, note, *error in rows:
        yield Right(api, operation, resource, error[0] if error else ERRORS[resource], note)


RIGHTS: dict[str, tuple[Right, ...]] = {api: tuple(_rights(api, rows)) for api, rows in _ROWS.items()}


def right(api: str, operation: Operation, resource: Resource) -> Right:
    """A row of the table. A handler has it as a constant, so that one that asks what is not there cannot be loaded."""
    for row in RIGHTS[api]:
        if (row.operation, row.resource) == (operation, resource):
            return row
    raise KeyError(f"{api} does not ask for {operation.name} on {resource.name}")
