"""DeleteGroups (42): groups without members go, with their offsets (KIP-229)."""

from __future__ import annotations

from moldau.broker.answers.groups import DeletableGroupResult, DeleteGroupsResponse
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.reply import Reply

API_KEY = 42
VERSIONS = (0, 2)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> DeleteGroupsResponse:
    replies = {group_id: _delete(broker, group_id) for group_id in request.groups_names}
    results = [DeletableGroupResult(group_id, await reply) for group_id, reply in replies.items()]
    return DeleteGroupsResponse(tuple(results))


def _delete(broker: CoordinatorBroker, group_id: str) -> Reply:
    return broker.coordinators.groups.write(
        group_id, lambda shard, _moment, reply: shard.delete(group_id, reply), lambda error: error
    )
