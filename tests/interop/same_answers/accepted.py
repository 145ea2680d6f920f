"""The differences from Apache Kafka that are accepted, each with its reason. This table may only shrink.

`where` is matched against `API vVERSION, case: path`, with `*` for anything; an entry that no longer matches any
difference fails the test, so that what has been mended leaves the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Accepted:
    where: str
    reason: str

    def covers(self, place: str) -> bool:
        return fnmatchcase(place, self.where.replace("[", "[[]"))


_UNFORESEEN = "Kafka meets an exception that it did not foresee (UNKNOWN_SERVER_ERROR)"

ACCEPTED: tuple[Accepted, ...] = (
    # ---- records
    Accepted("Produce v*, codec ?: *", f"{_UNFORESEEN}; Moldau says UNSUPPORTED_COMPRESSION_TYPE"),
    Accepted("Produce v*, garbage as *: *.error_code", f"{_UNFORESEEN}; Moldau says INVALID_RECORD"),
    Accepted("Produce v*, length 2**31-1: *.error_code", f"{_UNFORESEEN}; Moldau says INVALID_RECORD"),
    Accepted("Produce v*, a varint that does not end: *", f"{_UNFORESEEN}; Moldau says INVALID_RECORD"),
    Accepted(
        "Produce v*, null: *", "Kafka never answers a request without records; Moldau says INVALID_RECORD"
    ),
    # ---- reading
    Accepted(
        "Fetch v*, limit *00*: responses[0].partitions[1].records.length",
        "Kafka fills the limit with a part of a batch, which every client throws away; Moldau with whole ones",
    ),
    Accepted("Fetch v*, *limit -1*: *", f"{_UNFORESEEN}; Moldau takes a negative limit as 0"),
    Accepted(
        "Fetch v*, an isolation level that is none: *", f"{_UNFORESEEN}; Moldau reads as without a level"
    ),
    # ---- the cluster
    Accepted("ApiVersions v*: supported_features*", "Moldau has fewer features"),
    Accepted("ApiVersions v*: finalized_features*", "Moldau has fewer features"),
    Accepted("Metadata v*, the first time: *", "a topic that Moldau makes is in its first answer already"),
    Accepted(
        "Metadata v*, a name that collides: *", "Moldau tries at once and knows why it cannot; Kafka later"
    ),
    Accepted("Metadata v1?, neither id nor name: *", f"{_UNFORESEEN}; Moldau says INVALID_REQUEST"),
    Accepted("DescribeTopicPartitions v0, an empty name: *", f"{_UNFORESEEN}; Moldau answers for each topic"),
    # ---- topics and configs
    Accepted("AlterConfigs v*, one twice: *", "Kafka never answers; Moldau says INVALID_REQUEST"),
    Accepted("DescribeConfigs v*: *.configs.node.id.synonyms.length", "Moldau has a default for it"),
    Accepted("DescribeConfigs v*: *.configs.log.dir*.value", "each broker has its own folder"),
    Accepted(
        "DescribeConfigs v*: *.configs.listeners.*", "Moldau's listeners cannot be changed while it runs"
    ),
    *(
        Accepted(f"DescribeConfigs v*: *.configs.{key}.read_only", "Moldau reads it at the start alone")
        for key in ("sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.mechanism.inter.broker.protocol")
    ),
    Accepted(
        "DescribeConfigs v*: *.configs.listener.security.protocol.map.*", "Kafka's controller listens, too"
    ),
    Accepted("DescribeConfigs v*: *.configs.controller.listener.names.*", "Kafka's controller listens, too"),
    Accepted(
        "CreatePartitions v*, 2147483647 in all: *", f"{_UNFORESEEN}; Moldau names the limit of a request"
    ),
    # ---- malformed requests
    Accepted("* v*, negative lengths: *", "Kafka takes any negative length as null; Moldau only -1"),
)
