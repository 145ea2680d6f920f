"""OffsetFetch (9): the offsets that groups have committed.

- v1: the first from `__consumer_offsets`
- v2: KIP-88, all partitions of a group; the answer has an error of its own
- v3: the throttle time
- v4: the client waits where it is throttled (KIP-219)
- v5: KIP-320, leader epochs
- v6: flexible encoding (KIP-482)
- v7: KIP-447, a client may wait for open transactions to end
- v8: KIP-709, several groups
- v9: KIP-848, a member of a consumer group says who it is, and sees nothing when it is not any more
- v10: KIP-848, topics by id: an offset of a topic that was deleted and made anew is not shown

Some partitions, or all that have an offset (no list). A partition without one, and a group that nobody ever heard of,
give -1 without an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.groups import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from moldau.broker.guard import may, may_quietly
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited, in_steps, paced
from moldau.coordinator.group.messages import NO_OFFSET, Fetched, PartitionWanted
from moldau.metadata.image import ClusterImage
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

if TYPE_CHECKING:
    from moldau.coordinator.group.shard import GroupShard

API_KEY = 9
VERSIONS = (1, 10)

DESCRIBE_GROUP = right("OffsetFetch", Operation.DESCRIBE, Resource.GROUP)
DESCRIBE_TOPIC = right("OffsetFetch", Operation.DESCRIBE, Resource.TOPIC)

NO_EPOCH = -1
SEVERAL_SINCE_VERSION = 8
BY_ID_SINCE_VERSION = 10
GROUP_ERROR_SINCE_VERSION = 2
"""Before that there is no error for the group as a whole: every partition gets it."""


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> OffsetFetchResponse:
    if context.version < SEVERAL_SINCE_VERSION:
        shown = await _fetch(broker, context, request, request)
        return OffsetFetchResponse(topics=shown.topics, error_code=shown.error_code)
    groups = dict.fromkeys(request.groups)  # the same question is answered once
    found = await awaited(context, lambda group: _fetch(broker, context, request, group), groups)
    return OffsetFetchResponse(tuple(found))


async def _fetch(
    broker: CoordinatorBroker, context: RequestContext, request: Request, group: Request
) -> OffsetFetchResponseGroup:
    version = context.version
    is_allowed = may(broker, context, DESCRIBE_GROUP, group.group_id)
    asked = None
    if group.topics is not None:
        asked = await awaited(
            context, lambda topic: _asked(broker, context, topic, is_described=is_allowed), group.topics
        )
    wanted = None if asked is None else [one for topic in asked for one in topic.wanted]
    error, found = ErrorCode.none, list[Fetched]()
    try:
        if not is_allowed:
            raise KafkaError(DESCRIBE_GROUP.error)
        found = await _look(broker, context, request, group, wanted)
    except KafkaError as refusal:
        error = refusal.code
        in_partitions = version < GROUP_ERROR_SINCE_VERSION and wanted is not None
        found = [Fetched(one.topic, one.partition, error=error) for one in wanted or () if in_partitions]
        asked = asked if in_partitions else []
    if asked is None:
        found = await _described(broker, context, found)
    topics = _all(broker.image, version, found) if asked is None else _each(asked, found)
    return OffsetFetchResponseGroup(
        group.group_id, tuple(await awaited(context, lambda rows: _topic(context, *rows), topics)), error
    )


async def _described(
    broker: CoordinatorBroker, context: RequestContext, found: Sequence[Fetched]
) -> list[Fetched]:
    """Without the topics that nobody shows to this client."""
    names = list(dict.fromkeys(one.topic for one in found))
    shown = await paced(context, lambda name: may_quietly(broker, context, DESCRIBE_TOPIC, name), names)
    kept = {name for name, is_shown in zip(names, shown, strict=True) if is_shown}
    return [one for one in found if one.topic in kept]


async def _look(
    broker: CoordinatorBroker,
    context: RequestContext,
    request: Request,
    group: Request,
    wanted: Sequence[PartitionWanted] | None,
) -> list[Fetched]:
    """The offsets of some partitions, or of all (None); in several steps where they are many. KafkaError."""
    group_id: str = group.group_id
    require_stable: bool = getattr(request, "require_stable", False)
    member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", NO_EPOCH)

    def fetch(shard: GroupShard, some: Sequence[PartitionWanted]) -> ErrorCode | list[Fetched]:
        error = shard.check_fetch(group_id, member_id, member_epoch)
        return error or shard.fetch(group_id, some, require_stable=require_stable)

    async def step(some: Sequence[PartitionWanted]) -> list[Fetched]:
        found: ErrorCode | list[Fetched] = await broker.coordinators.groups.read(
            group_id, lambda shard, _moment: fetch(shard, some), lambda error: error
        )
        if isinstance(found, ErrorCode):
            raise KafkaError(found)
        return found

    is_all = wanted is None
    if wanted is None:
        places: ErrorCode | dict[str, list[int]] = await broker.coordinators.groups.read(
            group_id, lambda shard, _moment: shard.partitions_of(group_id), lambda error: error
        )
        if isinstance(places, ErrorCode):
            raise KafkaError(places)
        wanted = [
            one
            for topic, indexes in places.items()
            for one in await paced(context, partial(PartitionWanted, topic), indexes)
        ]
    found = await in_steps(context, step, wanted) if wanted else await step(())
    return [one for one in found if one.error or one.offset != NO_OFFSET] if is_all else found


Rows = tuple[str, UUID | None, Sequence[Fetched]]
"""What was found of one topic, with its name and id."""


class Asked(NamedTuple):
    """One topic of the request, and what the coordinator is asked for; a topic with an unknown id has nothing, nor has
    one that the client may not see."""

    name: str
    topic_id: UUID | None
    indexes: Sequence[int]
    wanted: Sequence[PartitionWanted]
    error: ErrorCode = ErrorCode.unknown_topic_id


async def _asked(
    broker: CoordinatorBroker, context: RequestContext, topic: Request, *, is_described: bool
) -> Asked:
    image = broker.image
    by_id = context.version >= BY_ID_SINCE_VERSION
    known = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    indexes = topic.partition_indexes
    asked_name = topic.name if not by_id else None if known is None else known.name
    if is_described and asked_name is not None and not may(broker, context, DESCRIBE_TOPIC, asked_name):
        return Asked(asked_name, topic.topic_id if by_id else None, indexes, (), DESCRIBE_TOPIC.error)
    if known is not None:
        name, topic_id = known.name, known.topic_id
        wanted = await paced(context, lambda index: PartitionWanted(name, index, topic_id), indexes)
        return Asked(name, topic_id, indexes, wanted)
    if by_id:
        return Asked("", topic.topic_id, indexes, ())
    return Asked(
        topic.name, None, indexes, await paced(context, partial(PartitionWanted, topic.name), indexes)
    )


def _each(asked: Sequence[Asked], found: Sequence[Fetched]) -> Iterator[Rows]:
    """An answer for each topic of the request, in its order; what was found comes in the order of `wanted`."""
    position = 0
    for topic in asked:
        rows: Sequence[Fetched] = found[position : position + len(topic.wanted)]
        position += len(topic.wanted)
        if not topic.wanted:
            rows = [Fetched("", index, error=topic.error) for index in topic.indexes]
        yield topic.name, topic.topic_id, rows


def _all(image: ClusterImage, version: int, found: Sequence[Fetched]) -> Iterator[Rows]:
    """All that the group has; by id only what still has one."""
    topics: dict[str, list[Fetched]] = {}
    for one in found:
        topics.setdefault(one.topic, []).append(one)
    for name, rows in topics.items():
        topic = image.topics.get(name)
        if topic is not None:
            yield name, topic.topic_id, rows
        elif version < BY_ID_SINCE_VERSION:
            yield name, None, rows


async def _topic(
    context: RequestContext, name: str, topic_id: UUID | None, rows: Sequence[Fetched]
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(name, topic_id, tuple(await paced(context, _partition, rows)))


def _partition(one: Fetched) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(one.partition, one.offset, one.leader_epoch, one.metadata, one.error)
