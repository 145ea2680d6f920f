"""ListGroups (16): the groups that this broker coordinates, by state and type if asked.

- v0: the first
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: flexible encoding (KIP-482)
- v4: KIP-518, states
- v5: KIP-848, types

The words of the filters count in any case, a state's also with blanks around it. A type that nobody knows matches
nothing.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.groups import ListGroupsResponse
from moldau.broker.guard import may_quietly
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import Listed
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 16
VERSIONS = (0, 5)

DESCRIBE_CLUSTER = right("ListGroups", Operation.DESCRIBE, Resource.CLUSTER)
DESCRIBE_GROUP = right("ListGroups", Operation.DESCRIBE, Resource.GROUP)


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> ListGroupsResponse:
    states = {state.lower().strip() for state in getattr(request, "states_filter", ())}
    types = {type_.lower() for type_ in getattr(request, "types_filter", ())}
    groups: list[Listed] = []
    for reply in broker.coordinators.groups.read_all(
        lambda shard, _moment: shard.list_groups(), lambda error: error
    ):
        listed = await reply
        if listed is ErrorCode.not_coordinator:
            continue  # given up meanwhile: another broker has its groups
        if isinstance(listed, ErrorCode):
            return ListGroupsResponse(listed)
        groups += listed
        await context.breathe()
    wanted = (
        group
        for group in groups
        if (not states or group.group_state.lower() in states)
        and (not types or group.group_type.lower() in types)
    )
    if may_quietly(broker, context, DESCRIBE_CLUSTER):
        return ListGroupsResponse(ErrorCode.none, tuple(wanted))
    shown = []
    for group in wanted:
        await context.breathe()
        if may_quietly(broker, context, DESCRIBE_GROUP, group.group_id):
            shown.append(group)
    return ListGroupsResponse(ErrorCode.none, tuple(shown))
