"""A consumer group as the command line sees it: state, members, and for each partition the offset and the lag."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.cli.client import Connection
from moldau.cli.errors import CliError, did_you_mean, not_found
from moldau.cli.offsets import partition_offsets
from moldau.cli.shortages import result_of_group

if TYPE_CHECKING:
    from confluent_kafka.admin import ConsumerGroupDescription

NO_OFFSET = -1
STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "EMPTY": "Empty",
    "DEAD": "Dead",
    "ASSIGNING": "Assigning",
    "RECONCILING": "Reconciling",
}
"""librdkafka's names of the states, and Kafka's."""
WITHOUT_MEMBERS = ("Empty", "Dead")


@dataclass(frozen=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]

    def document(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "instance_id": self.instance_id,
            "client_id": self.client_id,
            "host": self.host,
            "partitions": [{"topic": topic, "partition": number} for topic, number in self.partitions],
        }


@dataclass(frozen=True)
class PartitionView:
    topic: str
    partition: int
    offset: int | None
    next_offset: int | None
    member: MemberView | None = None
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        """Messages between the offset and the end; none where one of them is not known."""
        if self.offset is None or self.next_offset is None:
            return None
        return max(0, self.next_offset - self.offset)

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "next_offset": self.next_offset,
            "lag": self.lag,
            "metadata": self.metadata,
            "member_id": self.member.member_id if self.member else None,
        }


@dataclass(frozen=True)
class GroupView:
    name: str
    state: str
    assignor: str
    coordinator: int
    members: list[MemberView] = field(default_factory=list)
    partitions: list[PartitionView] = field(default_factory=list)

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    def document(self) -> dict[str, Any]:
        return {
            "group": self.name,
            "state": self.state,
            "assignor": self.assignor or None,
            "coordinator": self.coordinator,
            "lag": self.lag,
            "members": [member.document() for member in self.members],
            "partitions": [partition.document() for partition in self.partitions],
        }


def all_groups(connection: Connection) -> list[dict[str, str]]:
    """Name, state and type of every group, sorted."""
    future = connection.admin.list_consumer_groups(request_timeout=connection.target.timeout_s)
    listed = connection.result(future)
    if listed.errors and not listed.valid:
        raise connection.explain(listed.errors[0].args[0])
    groups = [
        {
            "group": group.group_id,
            "state": state_name(group.state),
            "type": group.type.name.lower() if getattr(group, "type", None) else "classic",
        }
        for group in listed.valid
    ]
    return sorted(groups, key=lambda group: group["group"])


def state_name(state: Any) -> str:
    name: str = state.name
    return STATES.get(name, name.capitalize())


def view_group(connection: Connection, name: str) -> GroupView:
    """Everything there is to see of a group; CliError where it is not there."""
    description = describe_group(connection, name)
    members = [_member(member) for member in description.members]
    owners = {place: member for member in members for place in member.partitions}
    committed = committed_offsets(connection, name)
    ends = next_offsets(connection, {topic for topic, _ in [*committed, *owners]})
    partitions = [
        PartitionView(
            *place,
            offset=committed[place][0] if place in committed else None,
            next_offset=ends.get(place),
            member=owners.get(place),
            metadata=committed[place][1] if place in committed else "",
        )
        for place in sorted({*committed, *owners})
    ]
    return GroupView(
        name,
        state_name(description.state),
        description.partition_assignor or "",
        description.coordinator.id if description.coordinator else NO_OFFSET,
        members,
        partitions,
    )


def describe_group(connection: Connection, name: str) -> ConsumerGroupDescription:
    from confluent_kafka import KafkaError, KafkaException

    future = connection.admin.describe_consumer_groups([name], request_timeout=connection.target.timeout_s)[
        name
    ]
    try:
        description = result_of_group(connection, future, name)
    except CliError as error:
        cause = error.__cause__
        code = cause.args[0].code() if isinstance(cause, KafkaException) else None
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            raise no_group(connection, name) from cause
        raise
    if state_name(description.state) == "Dead":
        raise no_group(connection, name)
    return description


def no_group(connection: Connection, name: str) -> CliError:
    try:
        known = [group["group"] for group in all_groups(connection)]
    except CliError:
        known = []
    hint = did_you_mean(name, known) or "`moldau group list` shows what is there."
    return not_found(f"There is no group '{name}' on {connection.target.bootstrap}.", hint)


def _member(member: Any) -> MemberView:
    assigned = member.assignment.topic_partitions if member.assignment else []
    return MemberView(
        member.member_id,
        member.group_instance_id or None,
        member.client_id,
        member.host.removeprefix("/"),
        tuple(sorted((place.topic, place.partition) for place in assigned)),
    )


def committed_offsets(connection: Connection, name: str) -> dict[tuple[str, int], tuple[int, str]]:
    """Offset and metadata of each partition in which the group has committed."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    futures = connection.admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name)], request_timeout=connection.target.timeout_s
    )
    found = result_of_group(connection, futures[name], name)
    return {
        (place.topic, place.partition): (place.offset, place.metadata or "")
        for place in found.topic_partitions
        if place.offset >= 0
    }


def next_offsets(connection: Connection, topics: set[str]) -> dict[tuple[str, int], int]:
    """Where the partitions of topics end; topics that are gone are left out."""
    known = connection.metadata().topics
    ends = {}
    for topic in sorted(topics & known.keys()):
        bounds = partition_offsets(connection, topic, sorted(known[topic].partitions))
        ends.update({(topic, partition): bound.next for partition, bound in bounds.items()})
    return ends
