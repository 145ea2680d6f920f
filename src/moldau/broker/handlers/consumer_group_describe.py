"""ConsumerGroupDescribe (69): the state of consumer groups, and their members with what each has and is to have.

- v0: KIP-848
- v1: KIP-1099, which members speak the classic protocol
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.groups import ConsumerGroupDescribeResponse, DescribedConsumerGroup
from moldau.broker.handlers.consumer_group_heartbeat import is_served
from moldau.broker.handlers.describe_groups import GROUP_OPERATIONS
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.coordinator.group.consumer.messages import DescribedGroup

API_KEY = 69
VERSIONS = (0, 1)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> ConsumerGroupDescribeResponse:
    asked = request.include_authorized_operations
    operations = GROUP_OPERATIONS if asked else OPERATIONS_UNASKED
    groups = await awaited_once(
        context, lambda group_id: _describe(broker, group_id, operations), request.group_ids
    )
    return ConsumerGroupDescribeResponse(tuple(groups))


async def _describe(broker: CoordinatorBroker, group_id: str, operations: int) -> DescribedConsumerGroup:
    if not is_served(broker):
        return DescribedConsumerGroup(group_id, error_code=ErrorCode.unsupported_version)
    if not group_id:
        return DescribedConsumerGroup(group_id, error_code=ErrorCode.invalid_group_id)
    found: DescribedGroup | str | ErrorCode = await broker.coordinators.groups.read(
        group_id,
        lambda shard, _moment: shard.describe_consumer(group_id),
        lambda error: error,
        takes_long=lambda shard: shard.is_large(group_id),
    )
    if isinstance(found, DescribedGroup):
        return DescribedConsumerGroup(*found, authorized_operations=operations)
    if isinstance(found, ErrorCode):
        return DescribedConsumerGroup(group_id, error_code=found)
    return DescribedConsumerGroup(group_id, error_code=ErrorCode.group_id_not_found, error_message=found)
