"""JoinGroup (11): become a member of a classic group, or of its next generation.

- v0: the time-out of the rebalance is the session's
- v1: the rebalance has a time-out of its own
- v2: the throttle time
- v3: the client waits where it is throttled (KIP-219)
- v4: KIP-394, a new member is told its id first, and joins again with it
- v5: KIP-345, static members
- v6: flexible encoding (KIP-482)
- v7: KIP-559, the answer has the protocol's type, and null where there is no protocol
- v8: KIP-800, why the member joins
- v9: KIP-814, a leader can be told that there is nothing to assign

The answer waits until the generation is complete. Kafka advertises version 0 for the sake of an old librdkafka, and
serves it. The rules are in `coordinator.group.classic_protocol`.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.guard import may
from moldau.broker.handlers.consumer_group_heartbeat import seen_by
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.messages import UNKNOWN_MEMBER, Join, Joined
from moldau.coordinator.reply import Reply
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.times import milliseconds

API_KEY = 11
VERSIONS = (0, 9)

READ_GROUP = right("JoinGroup", Operation.READ, Resource.GROUP)

REBALANCE_TIMEOUT_SINCE_VERSION = 1
ID_REQUIRED_SINCE_VERSION = 4
NULL_PROTOCOL_SINCE_VERSION = 7
SKIP_ASSIGNMENT_SINCE_VERSION = 9
GROUP_ID_BYTES_MAX = 32_767
"""What a record's key can hold. A longer name of a new version would make a group that cannot be recorded."""


def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Reply | Joined:
    version = context.version
    if not may(broker, context, READ_GROUP, request.group_id):
        return shaped(version, Joined(READ_GROUP.error, UNKNOWN_MEMBER))
    if not 0 < len(request.group_id.encode()) <= GROUP_ID_BYTES_MAX:
        return shaped(version, Joined(ErrorCode.invalid_group_id, request.member_id))
    session_timeout_ms = milliseconds(request.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version >= REBALANCE_TIMEOUT_SINCE_VERSION:
        rebalance_timeout_ms = milliseconds(request.rebalance_timeout)
    sees = seen_by(broker, context)
    join = Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        is_id_required=version >= ID_REQUIRED_SINCE_VERSION,
        can_skip_assignment=version >= SKIP_ASSIGNMENT_SINCE_VERSION,
        sees=sees,
    )
    reply = broker.coordinators.groups.write(
        join.group_id,
        lambda shard, moment, reply: shard.join(join, reply, moment),
        lambda error: Joined(error, UNKNOWN_MEMBER),
    )
    if version < NULL_PROTOCOL_SINCE_VERSION:
        return reply.map(lambda response: shaped(version, response))
    return reply


def shaped(version: int, response: Joined) -> Joined:
    """Before version 7 a protocol that is not there is an empty text."""
    if version < NULL_PROTOCOL_SINCE_VERSION and response.protocol_name is None:
        return response._replace(protocol_name="")
    return response
