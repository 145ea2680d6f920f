"""CreateTopics (19): new topics, or what would happen if they were created (validate only).

- v2: the throttle time
- v3: the client waits where it is throttled (KIP-219)
- v4: KIP-464, the numbers of partitions and replicas may be left to the broker
- v5: KIP-525, the answer has the settings that the topic got, as they are in force; flexible encoding (KIP-482)
- v6: KIP-599, THROTTLING_QUOTA_EXCEEDED; before, who is over the quota only waits
- v7: KIP-516, the answer has the topic's id

The decisions and their texts are in `controller.topics`.
"""

from __future__ import annotations

from moldau.base.limits import CONFIGS_PER_RESOURCE_MAX
from moldau.broker.answers.topics import CreatableTopicResult, CreateTopicsResponse
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.broker.throttling import mutations_of
from moldau.config.describe import effective_topic
from moldau.controller.slices import times_named
from moldau.controller.topics import METADATA_TOPIC, CreateOutcome, NewTopic
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 19
VERSIONS = (2, 7)

CREATE_ANY = right("CreateTopics", Operation.CREATE, Resource.CLUSTER)
CREATE_TOPIC = right("CreateTopics", Operation.CREATE, Resource.TOPIC)
DESCRIBE_CONFIGS = right("CreateTopics", Operation.DESCRIBE_CONFIGS, Resource.TOPIC)

NOT_AUTHORIZED = "Authorization failed."
SETTINGS_SINCE_VERSION = 5
STRICT_SINCE_VERSION = 6
CONFIGS_LOOKED_AT = CONFIGS_PER_RESOURCE_MAX + 1
"""One more than may be is enough to be refused for: the rest is not looked at."""


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> CreateTopicsResponse:
    topics = await paced(context, _new_topic, request.topics)
    topics, denied = await _asked(broker, context, topics)
    quota = mutations_of(broker, context, STRICT_SINCE_VERSION)
    outcomes = await broker.controller.create_topics(
        topics, validate_only=request.validate_only, charge=quota.charge
    )
    with_settings = context.version >= SETTINGS_SINCE_VERSION
    answers = await paced(context, lambda outcome: _answer(broker, context, outcome, with_settings), outcomes)
    return CreateTopicsResponse((*answers, *denied), quota.throttle_ms)


async def _asked(
    broker: AdminBroker, context: RequestContext, topics: list[NewTopic]
) -> tuple[list[NewTopic], list[CreatableTopicResult]]:
    """What may be created, and what is said of the others. A name that is there twice is refused for that alone."""
    if may_quietly(broker, context, CREATE_ANY):
        return topics, []
    times = await in_line(context, times_named(topics, lambda topic: topic.name))
    allowed: list[NewTopic] = []
    denied: list[CreatableTopicResult] = []
    for topic in topics:
        await context.breathe()
        is_refused_anyhow = times[topic.name] > 1 or topic.name == METADATA_TOPIC
        if is_refused_anyhow or may(broker, context, CREATE_TOPIC, topic.name):
            allowed.append(topic)
        else:
            denied.append(CreatableTopicResult(topic.name, None, CREATE_TOPIC.error, NOT_AUTHORIZED))
    return allowed, denied


def _new_topic(topic: Request) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
        [(config.name, config.value) for config in topic.configs[:CONFIGS_LOOKED_AT]],
    )


def _answer(
    broker: AdminBroker, context: RequestContext, outcome: CreateOutcome, with_settings: bool
) -> CreatableTopicResult:
    record = outcome.record
    if record is None:
        return CreatableTopicResult(outcome.name, None, outcome.error, outcome.message)
    if not may_quietly(broker, context, DESCRIBE_CONFIGS, outcome.name):
        error = DESCRIBE_CONFIGS.error
        return CreatableTopicResult(
            outcome.name, record.topic_id, outcome.error, outcome.message, topic_config_error_code=error
        )
    return CreatableTopicResult(
        outcome.name,
        record.topic_id,
        outcome.error,
        outcome.message,
        num_partitions=len(record.partitions),
        replication_factor=len(record.partitions[0].replicas),
        configs=effective_topic(broker.config, record.configs) if with_settings else (),
    )
