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
from moldau.broker.guard import may, operations
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited_once
from moldau.coordinator.group.messages import Described
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 15
VERSIONS = (0, 6)

DESCRIBE_GROUP = right("DescribeGroups", Operation.DESCRIBE, Resource.GROUP)

MISSING_SINCE_VERSION = 6
DEAD = "Dead"


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DescribeGroupsResponse:
    asked = getattr(request, "include_authorized_operations", False)
    groups = await awaited_once(
        context,
        lambda group_id: _describe(broker, context, group_id, tells_operations=asked),
        request.groups,
    )
    return DescribeGroupsResponse(tuple(groups))


async def _describe(
    broker: CoordinatorBroker, context: RequestContext, group_id: str, *, tells_operations: bool
) -> DescribedGroup:
    if not may(broker, context, DESCRIBE_GROUP, group_id):
        return DescribedGroup(group_id, "", error_code=DESCRIBE_GROUP.error)
    may_do = OPERATIONS_UNASKED
    if tells_operations:
        may_do = operations(broker, context, Resource.GROUP, group_id)
    found: Described | str | ErrorCode = await broker.coordinators.groups.read(
        group_id, lambda shard, _moment: shard.describe(group_id), lambda error: error
    )
    if isinstance(found, Described):
        return DescribedGroup(*found, authorized_operations=may_do)
    if isinstance(found, ErrorCode):
        return DescribedGroup(group_id, "", error_code=found)
    if context.version >= MISSING_SINCE_VERSION:
        error = ErrorCode.group_id_not_found
        return DescribedGroup(group_id, DEAD, error_code=error, error_message=found)
    return DescribedGroup(group_id, DEAD, authorized_operations=may_do)
