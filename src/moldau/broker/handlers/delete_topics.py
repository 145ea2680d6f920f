"""DeleteTopics (20): by name or id. The decisions and their texts are in `controller.topics`.

- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: TOPIC_DELETION_DISABLED, which is INVALID_REQUEST before
- v4: flexible encoding (KIP-482)
- v5: KIP-599, THROTTLING_QUOTA_EXCEEDED; before, who is over the quota only waits. The answer has a text
- v6: KIP-516, topics also by id
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.topics import DeletableTopicResult, DeleteTopicsResponse
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.broker.throttling import mutations_of
from moldau.controller.slices import times_named
from moldau.controller.topics import NOT_HERE, DeleteOutcome, TopicReference
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 20
VERSIONS = (1, 6)

DELETE_ANY = right("DeleteTopics", Operation.DELETE, Resource.CLUSTER)
DESCRIBE_TOPIC = right("DeleteTopics", Operation.DESCRIBE, Resource.TOPIC)
DELETE_TOPIC = right("DeleteTopics", Operation.DELETE, Resource.TOPIC)

BY_ID_SINCE_VERSION = 6
STRICT_SINCE_VERSION = 5
DISABLED_SINCE_VERSION = 3


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> DeleteTopicsResponse:
    quota = mutations_of(broker, context, STRICT_SINCE_VERSION)
    if context.version >= BY_ID_SINCE_VERSION:
        topics = await paced(
            context, lambda topic: TopicReference(topic.name, topic.topic_id), request.topics
        )
    else:
        topics = await paced(context, TopicReference, request.topic_names)
    topics, denied = await _asked(broker, context, topics)
    outcomes = await broker.controller.delete_topics(topics, charge=quota.charge)
    answers = await paced(context, lambda outcome: _answer(context, outcome), outcomes)
    return DeleteTopicsResponse((*answers, *denied), quota.throttle_ms)


async def _asked(
    broker: AdminBroker, context: RequestContext, topics: list[TopicReference]
) -> tuple[list[TopicReference], list[DeletableTopicResult]]:
    """What may be deleted, and what is said of the others. What is named twice is refused for that alone."""
    if not broker.config["delete.topic.enable"] or may_quietly(broker, context, DELETE_ANY):
        return topics, []
    times = await in_line(context, times_named(topics, lambda topic: topic))
    allowed: list[TopicReference] = []
    denied: list[DeletableTopicResult] = []
    for topic in topics:
        await context.breathe()
        refusal = None if times[topic] > 1 else _denial(broker, context, topic)
        if refusal is None:
            allowed.append(topic)
        else:
            denied.append(refusal)
    return allowed, denied


def _denial(
    broker: AdminBroker, context: RequestContext, topic: TopicReference
) -> DeletableTopicResult | None:
    """By a name that may not be described, nothing is said of it; by an id, not its name. A name that is not there is
    not passed on where it may not be deleted: it may be there by the time at which the controller decides.
    """
    known = broker.controller.image.topic_by_id.get(topic.topic_id) if topic.topic_id is not None else None
    name = topic.name
    if name is not None and topic.topic_id is None:
        if may(broker, context, DESCRIBE_TOPIC, name):
            if name not in broker.controller.image.topics:
                if may_quietly(broker, context, DELETE_TOPIC, name):
                    return None
                return DeletableTopicResult(name, None, ErrorCode.unknown_topic_or_partition, NOT_HERE)
            if may(broker, context, DELETE_TOPIC, name):
                return None
    elif name is None and known is not None:
        if may(broker, context, DELETE_TOPIC, known.name):
            return None
        name = known.name if may_quietly(broker, context, DESCRIBE_TOPIC, known.name) else None
    else:
        return None
    return DeletableTopicResult(name, topic.topic_id, DELETE_TOPIC.error, DELETE_TOPIC.message)


def _answer(context: RequestContext, outcome: DeleteOutcome) -> DeletableTopicResult:
    error = outcome.error
    if error is ErrorCode.topic_deletion_disabled and context.version < DISABLED_SINCE_VERSION:
        error = ErrorCode.invalid_request  # The error's own code came later.
    return DeletableTopicResult(outcome.name, outcome.topic_id, error, outcome.message)
