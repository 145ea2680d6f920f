"""DescribeGroups (15): the state of classic groups, and their members with what each was given.

A group that is not there is shown as `Dead`; from version 6 on with an error.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.topic_view import bits
from moldau.coordinator.group.messages import Described

API_KEY = 15
VERSIONS = (0, 6)

MISSING_SINCE_VERSION = 6
DEAD = "Dead"
GROUP_OPERATIONS = bits(3, 6, 8, 10, 11)  # read, delete, describe, describe and alter configs


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
    asked = getattr(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if asked else OPERATIONS_UNASKED
    groups = [await _describe(broker, context.version, group_id, operations) for group_id in request.groups]
    return SimpleNamespace(throttle_time=0, groups=tuple(groups))


async def _describe(
    broker: CoordinatorBroker, version: int, group_id: str, operations: int
) -> SimpleNamespace:
    found = await broker.coordinators.groups.read(
        group_id, lambda shard, _moment: shard.describe(group_id), lambda error: error
    )
    if isinstance(found, Described):
        return SimpleNamespace(
            error_code=ErrorCode.none, error_message=None, authorized_operations=operations, **found._asdict()
        )
    error, message, state = found, None, ""
    if isinstance(found, str):
        error, state = ErrorCode.none, DEAD
        if version >= MISSING_SINCE_VERSION:
            error, message = ErrorCode.group_id_not_found, found
    return SimpleNamespace(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=(),
        authorized_operations=OPERATIONS_UNASKED if error else operations,
    )
