"""OffsetFetch (9): the offsets that groups have committed.

Some partitions, or all that have an offset (no list). A partition without one, and a group that nobody ever heard of,
give -1 without an error.

- v2: KIP-88, all partitions of a group; the answer has an error of its own.
- v5: KIP-320, leader epochs.
- v7: KIP-447, a client may wait for open transactions to end.
- v8: KIP-709, several groups.
- v9: KIP-848, a member of a consumer group says who it is, and sees nothing when it is not any more.
- v10: KIP-848, topics by id: an offset of a topic that was deleted and made anew is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.broker.answers.groups import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import awaited, paced
from moldau.coordinator.group.commits import Fetched, PartitionWanted
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import Moment
from moldau.metadata.image import ClusterImage

API_KEY = 9
VERSIONS = (1, 10)

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
    image, version = broker.image, context.version
    asked = None
    if group.topics is not None:
        asked = [await _asked(image, context, topic) for topic in group.topics]
    wanted = None if asked is None else [one for topic in asked for one in topic.wanted]
    await context.breathe()
    require_stable: bool = getattr(request, "require_stable", False)
    member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", NO_EPOCH)

    def look(shard: GroupShard, _moment: Moment) -> ErrorCode | list[Fetched]:
        error = shard.check_fetch(group.group_id, member_id, member_epoch)
        return error or shard.fetch(group.group_id, wanted, require_stable=require_stable)

    found: ErrorCode | list[Fetched] = await broker.coordinators.groups.read(
        group.group_id, look, lambda error: error
    )
    error = ErrorCode.none
    if isinstance(found, ErrorCode):
        error = found
        in_partitions = version < GROUP_ERROR_SINCE_VERSION and wanted is not None
        found = [Fetched(one.topic, one.partition, error=error) for one in wanted or () if in_partitions]
        asked = asked if in_partitions else []
    topics = []
    for name, topic_id, rows in _all(image, version, found) if asked is None else _each(asked, found):
        shown = await paced(context, _partition, rows)
        topics.append(OffsetFetchResponseTopic(name, topic_id, tuple(shown)))
    return OffsetFetchResponseGroup(group.group_id, tuple(topics), error)


class Asked(NamedTuple):
    """One topic of the request, and what the coordinator is asked for; a topic with an unknown id has nothing."""

    name: str
    topic_id: UUID | None
    indexes: Sequence[int]
    wanted: Sequence[PartitionWanted]


async def _asked(image: ClusterImage, context: RequestContext, topic: Request) -> Asked:
    by_id = context.version >= BY_ID_SINCE_VERSION
    known = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    indexes = topic.partition_indexes
    if known is not None:
        name, topic_id = known.name, known.topic_id
        wanted = await paced(context, lambda index: PartitionWanted(name, index, topic_id), indexes)
        return Asked(name, topic_id, indexes, wanted)
    if by_id:
        return Asked("", topic.topic_id, indexes, ())
    unknown = await paced(context, lambda index: PartitionWanted(topic.name, index), indexes)
    return Asked(topic.name, None, indexes, unknown)


Shown = tuple[str, UUID | None, Sequence[Fetched]]
"""A topic of the answer: name, id, and what was found of each partition."""


def _each(asked: Sequence[Asked], found: Sequence[Fetched]) -> Iterator[Shown]:
    """An answer for each topic of the request, in its order; what was found comes in the order of `wanted`."""
    position = 0
    for topic in asked:
        rows: Sequence[Fetched] = found[position : position + len(topic.wanted)]
        position += len(topic.wanted)
        if not topic.wanted:
            rows = [Fetched("", index, error=ErrorCode.unknown_topic_id) for index in topic.indexes]
        yield topic.name, topic.topic_id, rows


def _all(image: ClusterImage, version: int, found: Sequence[Fetched]) -> Iterator[Shown]:
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


def _partition(one: Fetched) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(one.partition, one.offset, one.leader_epoch, one.metadata, one.error)
