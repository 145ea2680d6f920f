"""The table of Kafka's APIs: key, name, the versions that can be coded, and the first flexible one.

A dispatcher needs the header's version before it can look at anything else of a request, so this table is
plain data: it imports none of kio's message modules. A test holds it equal to them. Which of these versions
a broker serves and advertises is not decided here: that table is made from the handlers.

A version is flexible (KIP-482: compact strings, tagged fields) in the request's and the response's body and
header alike. The one exception is the header of the ApiVersions response, which never is, so that a client
can read it before it knows the broker.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

NEVER: Final = 1 << 15  # above every int16 version
API_VERSIONS: Final = 18


class Api(NamedTuple):
    key: int
    name: str
    min_version: int
    max_version: int
    flexible_from: int

    @property
    def module(self) -> str:
        """The name as kio's modules have it: `FindCoordinator` is `find_coordinator`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()


_TABLE: Final = (
    Api(0, "Produce", 3, 13, 9),
    Api(1, "Fetch", 4, 18, 12),
    Api(2, "ListOffsets", 1, 11, 6),
    Api(3, "Metadata", 0, 13, 9),
    Api(8, "OffsetCommit", 2, 10, 8),
    Api(9, "OffsetFetch", 1, 10, 6),
    Api(10, "FindCoordinator", 0, 6, 3),
    Api(11, "JoinGroup", 0, 9, 6),
    Api(12, "Heartbeat", 0, 4, 4),
    Api(13, "LeaveGroup", 0, 5, 4),
    Api(14, "SyncGroup", 0, 5, 4),
    Api(15, "DescribeGroups", 0, 6, 5),
    Api(16, "ListGroups", 0, 5, 3),
    Api(17, "SaslHandshake", 0, 1, NEVER),
    Api(18, "ApiVersions", 0, 4, 3),
    Api(19, "CreateTopics", 2, 7, 5),
    Api(20, "DeleteTopics", 1, 6, 4),
    Api(21, "DeleteRecords", 0, 2, 2),
    Api(22, "InitProducerId", 0, 6, 2),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4),
    Api(24, "AddPartitionsToTxn", 0, 5, 3),
    Api(25, "AddOffsetsToTxn", 0, 4, 3),
    Api(26, "EndTxn", 0, 5, 3),
    Api(27, "WriteTxnMarkers", 1, 2, 1),
    Api(28, "TxnOffsetCommit", 0, 5, 3),
    Api(29, "DescribeAcls", 1, 3, 2),
    Api(30, "CreateAcls", 1, 3, 2),
    Api(31, "DeleteAcls", 1, 3, 2),
    Api(32, "DescribeConfigs", 1, 4, 4),
    Api(33, "AlterConfigs", 0, 2, 2),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2),
    Api(35, "DescribeLogDirs", 1, 5, 2),
    Api(36, "SaslAuthenticate", 0, 2, 2),
    Api(37, "CreatePartitions", 0, 3, 2),
    Api(38, "CreateDelegationToken", 1, 3, 2),
    Api(39, "RenewDelegationToken", 1, 2, 2),
    Api(40, "ExpireDelegationToken", 1, 2, 2),
    Api(41, "DescribeDelegationToken", 1, 3, 2),
    Api(42, "DeleteGroups", 0, 2, 2),
    Api(43, "ElectLeaders", 0, 2, 2),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1),
    Api(45, "AlterPartitionReassignments", 0, 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0, 0),
    Api(47, "OffsetDelete", 0, 0, NEVER),
    Api(48, "DescribeClientQuotas", 0, 1, 1),
    Api(49, "AlterClientQuotas", 0, 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0, 0),
    Api(52, "Vote", 0, 2, 0),
    Api(53, "BeginQuorumEpoch", 0, 1, 1),
    Api(54, "EndQuorumEpoch", 0, 1, 1),
    Api(55, "DescribeQuorum", 0, 2, 0),
    Api(56, "AlterPartition", 2, 3, 2),
    Api(57, "UpdateFeatures", 0, 2, 0),
    Api(58, "Envelope", 0, 0, 0),
    Api(59, "FetchSnapshot", 0, 1, 0),
    Api(60, "DescribeCluster", 0, 2, 0),
    Api(61, "DescribeProducers", 0, 0, 0),
    Api(62, "BrokerRegistration", 0, 4, 0),
    Api(63, "BrokerHeartbeat", 0, 2, 0),
    Api(64, "UnregisterBroker", 0, 0, 0),
    Api(65, "DescribeTransactions", 0, 0, 0),
    Api(66, "ListTransactions", 0, 2, 0),
    Api(67, "AllocateProducerIds", 0, 0, 0),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0),
    Api(70, "ControllerRegistration", 0, 0, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0),
    Api(72, "PushTelemetry", 0, 0, 0),
    Api(73, "AssignReplicasToDirs", 0, 0, 0),
    Api(74, "ListConfigResources", 0, 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1),
    Api(77, "ShareGroupDescribe", 1, 1, 1),
    Api(78, "ShareFetch", 1, 2, 1),
    Api(79, "ShareAcknowledge", 1, 2, 1),
    Api(80, "AddRaftVoter", 0, 1, 0),
    Api(81, "RemoveRaftVoter", 0, 0, 0),
    Api(82, "UpdateRaftVoter", 0, 0, 0),
    Api(83, "InitializeShareGroupState", 0, 0, 0),
    Api(84, "ReadShareGroupState", 0, 0, 0),
    Api(85, "WriteShareGroupState", 0, 1, 0),
    Api(86, "DeleteShareGroupState", 0, 0, 0),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 0),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0),
    Api(89, "StreamsGroupDescribe", 0, 0, 0),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0),
)

APIS: Final[dict[int, Api]] = {api.key: api for api in _TABLE}
APIS_BY_NAME: Final[dict[str, Api]] = {api.name: api for api in _TABLE}

FLEXIBLE_FROM: Final[dict[int, int]] = {api.key: api.flexible_from for api in _TABLE}
RESPONSE_HEADER_FLEXIBLE_FROM: Final[dict[int, int]] = FLEXIBLE_FROM | {API_VERSIONS: NEVER}


def is_known(api_key: int, version: int) -> bool:
    """Whether there is a codec for this version of this API."""
    api = APIS.get(api_key)
    return api is not None and api.min_version <= version <= api.max_version
