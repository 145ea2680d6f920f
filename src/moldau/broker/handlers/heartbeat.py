"""Heartbeat (12): a member of a classic group is alive; it is told when a rebalance is under way.

- v0: the first
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-345, static members
- v4: flexible encoding (KIP-482)

While the coordinator loads, the answer has no error: clients do not expect one, and ask again soon.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import Heard, Heartbeat
from moldau.coordinator.reply import Reply
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 12
VERSIONS = (0, 4)

READ_GROUP = right("Heartbeat", Operation.READ, Resource.GROUP)


def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Reply | Heard:
    if not may(broker, context, READ_GROUP, request.group_id):
        return Heard(READ_GROUP.error)
    if not request.group_id:
        return Heard(ErrorCode.invalid_group_id)
    heartbeat = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
    )
    return broker.coordinators.groups.write(
        heartbeat.group_id, lambda shard, moment, reply: shard.heartbeat(heartbeat, reply, moment), _failed
    )


def _failed(error: ErrorCode) -> Heard:
    return Heard(ErrorCode.none if error is ErrorCode.coordinator_load_in_progress else error)
