"""AlterPartition: a leader proposes another in-sync set, and the controller decides (KIP-497, KIP-903, KIP-966). Pure.

What a leader believes may be old in every way: its epoch, the partition's, the brokers that it wants in the set. Each
is checked against the image, with Kafka's error for it (ReplicationControlManager.validateAlterPartitionData); nothing
of a refused proposal is done. A proposal that completes a reassignment may make another broker the leader: it is
carried out, and the one who proposed it hears NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.controller.changes import Changes
from moldau.controller.partition_change import Target
from moldau.metadata.image import ClusterImage, Topic
from moldau.metadata.records import PartitionState

ANY_EPOCH = -1


class InSync(NamedTuple):
    """A member of a proposed set; the epoch is that of the fetches that showed it to be in sync."""

    broker_id: int
    broker_epoch: int = ANY_EPOCH


class Proposal(NamedTuple):
    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[InSync]
    recovering: bool = False


class Altered(NamedTuple):
    """What became of a proposal; the state is the partition's as it is now, with an error it is None."""

    topic_id: UUID
    partition: int
    error: ErrorCode
    state: PartitionState | None = None


def decide_alter_partition(
    image: ClusterImage, changes: Changes, broker_id: int, proposals: Sequence[Proposal]
) -> list[Altered]:
    """The broker's epoch has been checked before."""
    return [_decide(image, changes, broker_id, proposal) for proposal in proposals]


def _decide(image: ClusterImage, changes: Changes, broker_id: int, proposal: Proposal) -> Altered:
    topic = image.topic_by_id.get(proposal.topic_id)
    error = _refusal(image, changes, broker_id, topic, proposal)
    if topic is None or error:
        return Altered(proposal.topic_id, proposal.partition, error)
    target = Target(isr=tuple(member.broker_id for member in proposal.isr), recovering=proposal.recovering)
    after = changes.change(topic, proposal.partition, target)
    if after is not None and after.leader != broker_id:
        return Altered(proposal.topic_id, proposal.partition, ErrorCode.new_leader_elected)
    state = changes.state(topic, proposal.partition)
    return Altered(proposal.topic_id, proposal.partition, ErrorCode.none, state)


def _refusal(
    image: ClusterImage, changes: Changes, broker_id: int, topic: Topic | None, proposal: Proposal
) -> ErrorCode:
    if topic is None:
        return ErrorCode.unknown_topic_id
    if not 0 <= proposal.partition < len(topic.partitions):
        return ErrorCode.unknown_topic_or_partition
    state = changes.state(topic, proposal.partition)
    # Someone who knows more than this controller has heard it from its successor.
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > state.partition_epoch:
        return ErrorCode.not_controller
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.fenced_leader_epoch
    if broker_id != state.leader:
        return ErrorCode.invalid_request
    if proposal.partition_epoch < state.partition_epoch:
        return ErrorCode.invalid_update_version
    if not _is_sound(state, proposal):
        return ErrorCode.invalid_request
    if not all(_is_eligible(image, state, member) for member in proposal.isr):
        return ErrorCode.ineligible_replica
    return ErrorCode.none


def _is_sound(state: PartitionState, proposal: Proposal) -> bool:
    ids = [member.broker_id for member in proposal.isr]
    if len(set(ids)) < len(ids) or not set(ids) <= set(state.replicas) or state.leader not in ids:
        return False
    return not proposal.recovering or (len(ids) == 1 and state.recovering)


def _is_eligible(image: ClusterImage, state: PartitionState, member: InSync) -> bool:
    broker = image.registered.get(member.broker_id)
    if broker is None or not broker.is_active or broker.id in state.offline:
        return False
    return member.broker_epoch in (ANY_EPOCH, broker.epoch)
