"""CreatePartitions (37): more partitions for topics. The decisions and their texts are in `controller.topics`.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
- v3: KIP-599, THROTTLING_QUOTA_EXCEEDED, which is never answered here
"""

from __future__ import annotations

from moldau.broker.answers.topics import CreatePartitionsResponse, CreatePartitionsTopicResult
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.topics import MorePartitions

API_KEY = 37
VERSIONS = (0, 3)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> CreatePartitionsResponse:
    topics = await paced(context, _more_partitions, request.topics)
    outcomes = await broker.controller.create_partitions(topics, validate_only=request.validate_only)
    return CreatePartitionsResponse(
        tuple(
            CreatePartitionsTopicResult(outcome.name, outcome.error, outcome.message) for outcome in outcomes
        )
    )


def _more_partitions(topic: Request) -> MorePartitions:
    return MorePartitions(
        topic.name,
        topic.count,
        None if topic.assignments is None else [tuple(one.broker_ids) for one in topic.assignments],
    )
