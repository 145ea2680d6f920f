"""DeleteGroups (42): groups without members go, with their offsets (KIP-229).

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.groups import DeletableGroupResult, DeleteGroupsResponse
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited, paced
from moldau.coordinator.reply import Reply
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 42
VERSIONS = (0, 2)

DELETE_GROUP = right("DeleteGroups", Operation.DELETE, Resource.GROUP)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    begun = await paced(context, lambda group_id: _begun(broker, context, group_id), names)
    return DeleteGroupsResponse(tuple(await awaited(context, lambda one: _result(broker, *one), begun)))


def _begun(
    broker: CoordinatorBroker, context: RequestContext, group_id: str
) -> tuple[str, Reply | ErrorCode]:
    if not may(broker, context, DELETE_GROUP, group_id):
        return group_id, DELETE_GROUP.error
    return group_id, _delete(broker, group_id)


def _delete(broker: CoordinatorBroker, group_id: str) -> Reply:
    return broker.coordinators.groups.write(
        group_id, lambda shard, _moment, reply: shard.delete(group_id, reply), lambda error: error
    )


async def _result(broker: CoordinatorBroker, group_id: str, reply: Reply | ErrorCode) -> DeletableGroupResult:
    """A group with very many offsets goes in several steps."""
    if isinstance(reply, ErrorCode):
        return DeletableGroupResult(group_id, reply)
    while (error := await reply) is None:
        reply = _delete(broker, group_id)
    return DeletableGroupResult(group_id, error)
