"""CreateTopics (19): new topics, or what would happen if they were created (validate only).

The decisions and their texts are in `controller.topics`. From version 5 on the answer has the settings that
the topic got, as they are in force.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.config.describe import effective_topic
from moldau.controller.topics import CreateOutcome, NewTopic

API_KEY = 19
VERSIONS = (2, 7)

SETTINGS_SINCE_VERSION = 5


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> object:
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(one.partition_index, tuple(one.broker_ids)) for one in topic.assignments],
            [(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    outcomes = await broker.controller.create_topics(topics, validate_only=request.validate_only)
    with_settings = context.version >= SETTINGS_SINCE_VERSION
    return SimpleNamespace(
        throttle_time=0, topics=tuple(_answer(broker, outcome, with_settings) for outcome in outcomes)
    )


def _answer(broker: AdminBroker, outcome: CreateOutcome, with_settings: bool) -> SimpleNamespace:
    record = outcome.record
    configs = effective_topic(broker.config, record.configs) if record is not None and with_settings else ()
    return SimpleNamespace(
        name=outcome.name,
        topic_id=None if record is None else record.topic_id,
        error_code=outcome.error,
        error_message=outcome.message,
        topic_config_error_code=0,
        num_partitions=-1 if record is None else len(record.partitions),
        replication_factor=-1 if record is None else len(record.partitions[0].replicas),
        configs=configs,
    )
