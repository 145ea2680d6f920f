"""OffsetDelete (47): forget offsets that a group has committed, of topics that it does not read any more (KIP-496)."""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.groups import OffsetDeleteResponse
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext

API_KEY = 47
VERSIONS = (0, 0)


async def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> OffsetDeleteResponse:
    if not request.group_id:
        return OffsetDeleteResponse(ErrorCode.invalid_group_id)
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in request.topics:
        known = broker.image.topics.get(topic.name)
        for partition in topic.partitions:
            index = partition.partition_index
            is_there = known is not None and 0 <= index < len(known.partitions)
            missing = ErrorCode.unknown_topic_or_partition
            errors[topic.name, index] = ErrorCode.none if is_there else missing
    wanted = [place for place, error in errors.items() if not error]
    error, outcomes = await broker.coordinators.groups.write(
        request.group_id,
        lambda shard, _moment, reply: shard.delete_offsets(request.group_id, wanted, reply),
        lambda error: (error, []),
    )
    if error:
        return OffsetDeleteResponse(error)
    errors.update(zip(wanted, outcomes, strict=True))
    topics: dict[str, list[PartitionError]] = {}
    for (name, index), outcome in errors.items():
        topics.setdefault(name, []).append(PartitionError(index, outcome))
    return OffsetDeleteResponse(error, tuple(TopicResult(name, tuple(rows)) for name, rows in topics.items()))
