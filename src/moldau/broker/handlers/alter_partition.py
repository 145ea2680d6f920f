"""AlterPartition (56): a leader wants another in-sync set (KIP-497); `controller.alter_partition` decides.

- v2: KIP-841, topics by id
- v3: KIP-903, each member with the broker epoch in which it was seen to be in sync
"""

from __future__ import annotations

from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.cluster import AlteredPartition, AlteredTopic, AlterPartitionResponse
from moldau.broker.guard import may
from moldau.broker.interface import ControllerBroker, Request, RequestContext
from moldau.controller.alter_partition import Altered, InSync, Proposal
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 56
VERSIONS = (2, 3)
IS_INTERNAL = True

BETWEEN_BROKERS = right("AlterPartition", Operation.CLUSTER_ACTION, Resource.CLUSTER)


async def handle(
    broker: ControllerBroker, context: RequestContext, request: Request
) -> AlterPartitionResponse:
    if not may(broker, context, BETWEEN_BROKERS):
        return AlterPartitionResponse(BETWEEN_BROKERS.error)
    controller = broker.active_controller
    if controller is None:
        return AlterPartitionResponse(ErrorCode.not_controller)
    proposals = [
        Proposal(
            topic.topic_id,
            partition.partition_index,
            partition.leader_epoch,
            partition.partition_epoch,
            _members(partition),
            bool(partition.leader_recovery_state),
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    try:
        outcomes = await controller.alter_partition(request.broker_id, request.broker_epoch, proposals)
    except KafkaError as error:
        return AlterPartitionResponse(error.code)
    topics: dict[UUID, list[AlteredPartition]] = {}
    for outcome in outcomes:
        topics.setdefault(outcome.topic_id, []).append(_answer(outcome))
    return AlterPartitionResponse(
        ErrorCode.none, tuple(AlteredTopic(topic_id, tuple(found)) for topic_id, found in topics.items())
    )


def _members(partition: Request) -> tuple[InSync, ...]:
    with_epochs = getattr(partition, "new_isr_with_epochs", None)
    if with_epochs is None:
        return tuple(InSync(member) for member in partition.new_isr)
    return tuple(InSync(member.broker_id, member.broker_epoch) for member in with_epochs)


def _answer(outcome: Altered) -> AlteredPartition:
    state = outcome.state
    if state is None:
        return AlteredPartition(outcome.partition, outcome.error)
    return AlteredPartition(
        outcome.partition,
        outcome.error,
        state.leader,
        state.leader_epoch,
        state.isr,
        int(state.recovering),
        state.partition_epoch,
    )
