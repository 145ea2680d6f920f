"""DeleteTopics (20): by name or id. The decisions and their texts are in `controller.topics`.

- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: TOPIC_DELETION_DISABLED, which is INVALID_REQUEST before
- v4: flexible encoding (KIP-482)
- v5: KIP-599, the answer has a text
- v6: KIP-516, topics also by id
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.topics import DeletableTopicResult, DeleteTopicsResponse
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.topics import DeleteOutcome, TopicReference

API_KEY = 20
VERSIONS = (1, 6)

BY_ID_SINCE_VERSION = 6
DISABLED_SINCE_VERSION = 3


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> DeleteTopicsResponse:
    if context.version >= BY_ID_SINCE_VERSION:
        by_id = await paced(context, lambda topic: TopicReference(topic.name, topic.topic_id), request.topics)
        outcomes = await broker.controller.delete_topics(by_id)
    else:
        by_name = await paced(context, TopicReference, request.topic_names)
        outcomes = await broker.controller.delete_topics(by_name)
    answers = await paced(context, lambda outcome: _answer(context, outcome), outcomes)
    return DeleteTopicsResponse(tuple(answers))


def _answer(context: RequestContext, outcome: DeleteOutcome) -> DeletableTopicResult:
    error = outcome.error
    if error is ErrorCode.topic_deletion_disabled and context.version < DISABLED_SINCE_VERSION:
        error = ErrorCode.invalid_request  # The error's own code came later.
    return DeletableTopicResult(outcome.name, outcome.topic_id, error, outcome.message)
