"""LeaveGroup (13): members of a classic group go, and the others rebalance.

- v0: one member, whose error is the answer's
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-345, several members, static ones by their instance id
- v4: flexible encoding (KIP-482)
- v5: KIP-800, why the member leaves
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import COORDINATOR_ELEMENTS_PER_STEP
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import in_steps
from moldau.coordinator.group.messages import AllLeft, Leaver, Left
from moldau.coordinator.reply import Reply
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 13
VERSIONS = (0, 5)

READ_GROUP = right("LeaveGroup", Operation.READ, Resource.GROUP)

SEVERAL_SINCE_VERSION = 3


def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> Reply | AllLeft | Awaitable[AllLeft]:
    if not may(broker, context, READ_GROUP, request.group_id):
        return AllLeft(READ_GROUP.error)
    if not request.group_id:
        return AllLeft(ErrorCode.invalid_group_id)
    if context.version < SEVERAL_SINCE_VERSION:
        return _leave(broker, request.group_id, [Leaver(request.member_id)]).map(_one)
    if len(request.members) > COORDINATOR_ELEMENTS_PER_STEP:
        return _in_steps(broker, context, request)
    return _leave(broker, request.group_id, _leavers(request.members))


def _leavers(members: Sequence[Request]) -> list[Leaver]:
    return [Leaver(member.member_id, member.group_instance_id) for member in members]


def _leave(broker: CoordinatorBroker, group_id: str, leavers: Sequence[Leaver]) -> Reply:
    return broker.coordinators.groups.write(
        group_id, lambda shard, moment, reply: shard.leave(group_id, leavers, reply, moment), AllLeft
    )


async def _in_steps(broker: CoordinatorBroker, context: RequestContext, request: Request) -> AllLeft:
    async def step(some: Sequence[Request]) -> Sequence[Left]:
        left: AllLeft = await _leave(broker, request.group_id, _leavers(some))
        if left.error_code:
            raise KafkaError(left.error_code)
        return left.members

    try:
        return AllLeft(ErrorCode.none, tuple(await in_steps(context, step, request.members)))
    except KafkaError as refusal:
        return AllLeft(refusal.code)


def _one(response: AllLeft) -> AllLeft:
    error = response.error_code or (response.members[0].error_code if response.members else ErrorCode.none)
    return response._replace(error_code=error)
