"""LeaveGroup (13): members of a classic group go, and the others rebalance.

- v0 to v2: one member, whose error is the answer's. v3: KIP-345, several, static ones by their instance id.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import AllLeft, Leaver
from moldau.coordinator.reply import Reply

API_KEY = 13
VERSIONS = (0, 5)

SEVERAL_SINCE_VERSION = 3


def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Reply | AllLeft:
    if not request.group_id:
        return AllLeft(ErrorCode.invalid_group_id)
    is_one = context.version < SEVERAL_SINCE_VERSION
    if is_one:
        leavers = [Leaver(request.member_id)]
    else:
        leavers = [Leaver(member.member_id, member.group_instance_id) for member in request.members]
    reply = broker.coordinators.groups.write(
        request.group_id,
        lambda shard, moment, reply: shard.leave(request.group_id, leavers, reply, moment),
        AllLeft,
    )
    return reply.map(_one) if is_one else reply


def _one(response: AllLeft) -> AllLeft:
    error = response.error_code or (response.members[0].error_code if response.members else ErrorCode.none)
    return response._replace(error_code=error)
