"""SyncGroup (14): the leader hands in the assignment of a generation, and every member gets its own part.

- v0: the first
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-345, static members
- v4: flexible encoding (KIP-482)
- v5: KIP-559, a member says which protocol it believes was chosen

Answers wait for the leader's, and for its record to be committed.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import Sync, Synced
from moldau.coordinator.reply import Reply
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 14
VERSIONS = (0, 5)

READ_GROUP = right("SyncGroup", Operation.READ, Resource.GROUP)

PROTOCOL_SINCE_VERSION = 5


def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Reply | Synced:
    if context.version >= PROTOCOL_SINCE_VERSION and None in (request.protocol_type, request.protocol_name):
        return Synced(ErrorCode.inconsistent_group_protocol)
    if not may(broker, context, READ_GROUP, request.group_id):
        return Synced(READ_GROUP.error)
    if not request.group_id:
        return Synced(ErrorCode.invalid_group_id)
    sync = Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )
    return broker.coordinators.groups.write(
        sync.group_id, lambda shard, moment, reply: shard.sync(sync, reply, moment), Synced
    )
