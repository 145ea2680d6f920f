"""DeleteGroups (42): groups without members go, with their offsets."""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.reply import Reply

API_KEY = 42
VERSIONS = (0, 2)


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
    replies = {group_id: _delete(broker, group_id) for group_id in request.groups_names}
    results = [
        SimpleNamespace(group_id=group_id, error_code=await reply) for group_id, reply in replies.items()
    ]
    return SimpleNamespace(throttle_time=0, results=tuple(results))


def _delete(broker: CoordinatorBroker, group_id: str) -> Reply:
    reply: Reply = broker.coordinators.groups.write(
        group_id, lambda shard, _moment, reply: shard.delete(group_id, reply), lambda error: error
    )
    return reply
