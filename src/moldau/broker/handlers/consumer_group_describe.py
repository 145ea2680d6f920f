"""ConsumerGroupDescribe (69): the state of consumer groups, and their members with what each has and is to have.

From version 1 on it says which members speak the classic protocol.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.handlers.consumer_group_heartbeat import is_served
from moldau.broker.handlers.describe_groups import GROUP_OPERATIONS
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.consumer.messages import DescribedGroup

API_KEY = 69
VERSIONS = (0, 1)


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
    asked = request.include_authorized_operations
    operations = GROUP_OPERATIONS if asked else OPERATIONS_UNASKED
    groups = [await _describe(broker, group_id, operations) for group_id in request.group_ids]
    return SimpleNamespace(throttle_time=0, groups=tuple(groups))


async def _describe(broker: CoordinatorBroker, group_id: str, operations: int) -> SimpleNamespace:
    if not is_served(broker):
        return _missing(group_id, ErrorCode.unsupported_version, None)
    if not group_id:
        return _missing(group_id, ErrorCode.invalid_group_id, None)
    found = await broker.coordinators.groups.read(
        group_id, lambda shard, _moment: shard.describe_consumer(group_id), lambda error: error
    )
    if isinstance(found, DescribedGroup):
        return SimpleNamespace(
            error_code=ErrorCode.none, error_message=None, authorized_operations=operations, **found._asdict()
        )
    if isinstance(found, ErrorCode):
        return _missing(group_id, found, None)
    return _missing(group_id, ErrorCode.group_id_not_found, found)


def _missing(group_id: str, error: ErrorCode, message: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=OPERATIONS_UNASKED,
    )
