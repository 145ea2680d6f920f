"""ConsumerGroupDescribe (69): the state of consumer groups, and their members with what each has and is to have.

- v0: KIP-848
- v1: KIP-1099, which members speak the classic protocol
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.groups import ConsumerGroupDescribeResponse, DescribedConsumerGroup
from moldau.broker.guard import may, operations
from moldau.broker.handlers.consumer_group_heartbeat import is_served
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once, paced
from moldau.coordinator.group.consumer.messages import DescribedGroup
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 69
VERSIONS = (0, 1)

DESCRIBE_GROUP = right("ConsumerGroupDescribe", Operation.DESCRIBE, Resource.GROUP)
DESCRIBE_TOPIC = right("ConsumerGroupDescribe", Operation.DESCRIBE, Resource.TOPIC)


HAS_HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> ConsumerGroupDescribeResponse:
    asked = request.include_authorized_operations
    groups = await awaited_once(
        context,
        lambda group_id: _describe(broker, context, group_id, tells_operations=asked),
        request.group_ids,
    )
    return ConsumerGroupDescribeResponse(tuple(groups))


async def _describe(
    broker: CoordinatorBroker, context: RequestContext, group_id: str, *, tells_operations: bool
) -> DescribedConsumerGroup:
    if not is_served(broker):
        return DescribedConsumerGroup(group_id, error_code=ErrorCode.unsupported_version)
    if not may(broker, context, DESCRIBE_GROUP, group_id):
        return DescribedConsumerGroup(group_id, error_code=DESCRIBE_GROUP.error)
    if not group_id:
        return DescribedConsumerGroup(group_id, error_code=ErrorCode.invalid_group_id)
    found: DescribedGroup | str | ErrorCode = await broker.coordinators.groups.read(
        group_id,
        lambda shard, _moment: shard.describe_consumer(group_id),
        lambda error: error,
        takes_long=lambda shard: shard.is_large(group_id),
    )
    if isinstance(found, DescribedGroup):
        if not await _are_topics_visible(broker, context, found):
            error = DESCRIBE_TOPIC.error
            return DescribedConsumerGroup(group_id, error_code=error, error_message=HAS_HIDDEN_TOPICS)
        may_do = (
            operations(broker, context, Resource.GROUP, group_id) if tells_operations else OPERATIONS_UNASKED
        )
        return DescribedConsumerGroup(*found, authorized_operations=may_do)
    if isinstance(found, ErrorCode):
        return DescribedConsumerGroup(group_id, error_code=found)
    return DescribedConsumerGroup(group_id, error_code=ErrorCode.group_id_not_found, error_message=found)


async def _are_topics_visible(
    broker: CoordinatorBroker, context: RequestContext, group: DescribedGroup
) -> bool:
    """Who may not see a topic is not told who reads it."""
    if broker.guard is None:
        return True
    names: dict[str, None] = {}
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                names[topic.topic_name] = None
        await context.breathe()
    return all(await paced(context, lambda name: may(broker, context, DESCRIBE_TOPIC, name), names))
