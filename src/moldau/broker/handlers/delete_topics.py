"""DeleteTopics (20): by name, from version 6 on also by id. The decisions and their texts are in
`controller.topics`.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.controller.topics import DeleteOutcome, TopicReference

API_KEY = 20
VERSIONS = (1, 6)

BY_ID_SINCE_VERSION = 6
DISABLED_SINCE_VERSION = 3


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> object:
    if context.version >= BY_ID_SINCE_VERSION:
        topics = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        topics = [TopicReference(name) for name in request.topic_names]
    outcomes = await broker.controller.delete_topics(topics)
    return SimpleNamespace(
        throttle_time=0, responses=tuple(_answer(context, outcome) for outcome in outcomes)
    )


def _answer(context: RequestContext, outcome: DeleteOutcome) -> SimpleNamespace:
    error = outcome.error
    if error is ErrorCode.topic_deletion_disabled and context.version < DISABLED_SINCE_VERSION:
        error = ErrorCode.invalid_request  # The error's own code came later.
    return SimpleNamespace(
        name=outcome.name, topic_id=outcome.topic_id, error_code=error, error_message=outcome.message
    )
