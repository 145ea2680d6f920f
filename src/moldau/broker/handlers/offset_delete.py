"""OffsetDelete (47): forget offsets that a group has committed, of topics that it does not read any more.

- v0: KIP-496
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.groups import OffsetDeleteResponse
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import ELEMENTS_PER_PAUSE, in_steps
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 47
VERSIONS = (0, 0)

DELETE_GROUP = right("OffsetDelete", Operation.DELETE, Resource.GROUP)
READ_TOPIC = right("OffsetDelete", Operation.READ, Resource.TOPIC)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> OffsetDeleteResponse:
    if not may(broker, context, DELETE_GROUP, request.group_id):
        return OffsetDeleteResponse(DELETE_GROUP.error)
    if not request.group_id:
        return OffsetDeleteResponse(ErrorCode.invalid_group_id)
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        await context.breathe()
        is_allowed = may(broker, context, READ_TOPIC, topic.name)
        known = broker.image.topics.get(topic.name)
        for number, partition in enumerate(topic.partitions):
            if number % ELEMENTS_PER_PAUSE == 0:
                await context.breathe()
            index = partition.partition_index
            is_there = known is not None and 0 <= index < len(known.partitions)
            missing = ErrorCode.unknown_topic_or_partition if is_allowed else READ_TOPIC.error
            errors[topic.name, index] = ErrorCode.none if is_there and is_allowed else missing
    wanted = [place for place, error in errors.items() if not error]

    async def step(some: Sequence[tuple[str, int]]) -> list[ErrorCode]:
        error, outcomes = await broker.coordinators.groups.write(
            request.group_id,
            lambda shard, _moment, reply: shard.delete_offsets(request.group_id, some, reply),
            lambda error: (error, []),
        )
        if error:
            raise KafkaError(error)
        return list(outcomes)

    try:
        outcomes = await in_steps(context, step, wanted) if wanted else await step(())
    except KafkaError as refusal:
        return OffsetDeleteResponse(refusal.code)
    errors.update(zip(wanted, outcomes, strict=True))
    topics: dict[str, list[PartitionError]] = {}
    for (name, index), outcome in errors.items():
        topics.setdefault(name, []).append(PartitionError(index, outcome))
    return OffsetDeleteResponse(
        ErrorCode.none, tuple(TopicResult(name, tuple(rows)) for name, rows in topics.items())
    )
