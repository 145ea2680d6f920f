"""Consumer groups as ConsumerGroupDescribe shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from moldau.coordinator.group.consumer.group import NO_TARGET, ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember, in_order
from moldau.coordinator.group.consumer.messages import (
    Assignment,
    DescribedGroup,
    DescribedMember,
    TopicPartitions,
)
from moldau.coordinator.group.consumer.topics import Topics

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def described(group: ConsumerGroup, topics: Topics, assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group.group_id,
        group.state.value,
        group.epoch,
        group.assignment_epoch,
        assignor,
        tuple(_member(group, member, topics) for member in group.members.values()),
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> DescribedMember:
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        in_order(member.topics),
        member.regex,
        _assignment(member.held, topics),
        _assignment(group.targets.get(member.member_id, NO_TARGET), topics),
        CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> Assignment:
    """Topics that were deleted are left out."""
    found = ((topics.topic_by_id.get(topic_id), numbers) for topic_id, numbers in partitions.items())
    return Assignment(
        tuple(
            TopicPartitions(topic.topic_id, tuple(sorted(numbers)), topic.name)
            for topic, numbers in found
            if topic is not None
        )
    )
