"""ListGroups (16): the groups that this broker coordinates, by state (version 4) and type (version 5) if asked.

The words of the filters count in any case, a state's also with blanks around it. A type that nobody knows matches
nothing.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import Listed

API_KEY = 16
VERSIONS = (0, 5)


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
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
            return SimpleNamespace(throttle_time=0, error_code=listed, groups=())
        groups += listed
    wanted = (
        group
        for group in groups
        if (not states or group.group_state.lower() in states)
        and (not types or group.group_type.lower() in types)
    )
    return SimpleNamespace(throttle_time=0, error_code=ErrorCode.none, groups=tuple(wanted))
