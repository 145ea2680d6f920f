"""CreatePartitions (37): more partitions for topics. The decisions and their texts are in `controller.topics`.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
- v3: KIP-599, THROTTLING_QUOTA_EXCEEDED; before, who is over the quota only waits
"""

from __future__ import annotations

from moldau.broker.answers.topics import CreatePartitionsResponse, CreatePartitionsTopicResult
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.broker.throttling import mutations_of
from moldau.controller.slices import times_named
from moldau.controller.topics import MorePartitions
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 37
VERSIONS = (0, 3)

ALTER_TOPIC = right("CreatePartitions", Operation.ALTER, Resource.TOPIC)
STRICT_SINCE_VERSION = 3


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> CreatePartitionsResponse:
    topics = await paced(context, _more_partitions, request.topics)
    topics, denied = await _asked(broker, context, topics)
    quota = mutations_of(broker, context, STRICT_SINCE_VERSION)
    outcomes = await broker.controller.create_partitions(
        topics, validate_only=request.validate_only, charge=quota.charge
    )
    results = [
        CreatePartitionsTopicResult(outcome.name, outcome.error, outcome.message) for outcome in outcomes
    ]
    return CreatePartitionsResponse((*results, *denied), quota.throttle_ms)


async def _asked(
    broker: AdminBroker, context: RequestContext, topics: list[MorePartitions]
) -> tuple[list[MorePartitions], list[CreatePartitionsTopicResult]]:
    """What may be altered, and what is said of the others. A name that is there twice is refused for that alone."""
    if broker.guard is None:
        return topics, []
    times = await in_line(context, times_named(topics, lambda topic: topic.name))
    allowed: list[MorePartitions] = []
    denied: list[CreatePartitionsTopicResult] = []
    for topic in topics:
        await context.breathe()
        if times[topic.name] > 1 or may(broker, context, ALTER_TOPIC, topic.name):
            allowed.append(topic)
        else:
            denied.append(CreatePartitionsTopicResult(topic.name, ALTER_TOPIC.error, None))
    return allowed, denied


def _more_partitions(topic: Request) -> MorePartitions:
    return MorePartitions(
        topic.name,
        topic.count,
        None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
    )
