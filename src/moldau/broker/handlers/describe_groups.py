"""DescribeGroups (15): the state of classic groups, and their members with what each was given.

- v0: the first
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-430, the operations that the client may do
- v4: KIP-345, static members
- v5: flexible encoding (KIP-482)
- v6: KIP-1043, a group that is not there, or not a classic one, has an error as well

A group that is not there is shown as `Dead`.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import OPERATIONS_UNASKED
from moldau.broker.answers.groups import DescribedGroup, DescribeGroupsResponse
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.broker.topic_view import bits
from moldau.coordinator.group.messages import Described

API_KEY = 15
VERSIONS = (0, 6)

MISSING_SINCE_VERSION = 6
DEAD = "Dead"
GROUP_OPERATIONS = bits(3, 6, 8, 10, 11)  # read, delete, describe, describe and alter configs


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DescribeGroupsResponse:
    asked = getattr(request, "include_authorized_operations", False)
    operations = GROUP_OPERATIONS if asked else OPERATIONS_UNASKED
    groups = await awaited_once(
        context,
        lambda group_id: _describe(broker, context.version, group_id, operations),
        request.groups,
    )
    return DescribeGroupsResponse(tuple(groups))


async def _describe(
    broker: CoordinatorBroker, version: int, group_id: str, operations: int
) -> DescribedGroup:
    found: Described | str | ErrorCode = await broker.coordinators.groups.read(
        group_id, lambda shard, _moment: shard.describe(group_id), lambda error: error
    )
    if isinstance(found, Described):
        return DescribedGroup(*found, authorized_operations=operations)
    if isinstance(found, ErrorCode):
        return DescribedGroup(group_id, "", error_code=found)
    if version >= MISSING_SINCE_VERSION:
        error = ErrorCode.group_id_not_found
        return DescribedGroup(group_id, DEAD, error_code=error, error_message=found)
    return DescribedGroup(group_id, DEAD, authorized_operations=operations)
