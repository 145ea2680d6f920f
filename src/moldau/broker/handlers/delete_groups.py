"""DeleteGroups (42): groups without members go, with their offsets (KIP-229).

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
"""

from __future__ import annotations

from moldau.broker.answers.groups import DeletableGroupResult, DeleteGroupsResponse
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited, paced
from moldau.coordinator.reply import Reply

API_KEY = 42
VERSIONS = (0, 2)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    begun = await paced(context, lambda group_id: (group_id, _delete(broker, group_id)), names)
    return DeleteGroupsResponse(tuple(await awaited(context, lambda one: _result(broker, *one), begun)))


def _delete(broker: CoordinatorBroker, group_id: str) -> Reply:
    return broker.coordinators.groups.write(
        group_id, lambda shard, _moment, reply: shard.delete(group_id, reply), lambda error: error
    )


async def _result(broker: CoordinatorBroker, group_id: str, reply: Reply) -> DeletableGroupResult:
    """A group with very many offsets goes in several steps."""
    while (error := await reply) is None:
        reply = _delete(broker, group_id)
    return DeletableGroupResult(group_id, error)
