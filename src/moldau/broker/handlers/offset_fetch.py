"""OffsetFetch (9): the offsets that groups have committed.

Up to version 7 one group, since then several; some partitions, or all that have an offset (no list, from version 2 on).
A partition without one, and a group that nobody ever heard of, give -1 without an error. Topics by name, from version
10 on by id: an offset of a topic that was deleted and made anew is not shown. From version 9 on a member of a consumer
group says who it is, and sees nothing when it is not any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.coordinator.group.commits import Fetched, PartitionWanted
from moldau.metadata.image import ClusterImage

API_KEY = 9
VERSIONS = (1, 10)

NO_EPOCH = -1
SEVERAL_SINCE_VERSION = 8
BY_ID_SINCE_VERSION = 10
#: Older versions have no error for the group as a whole: every partition gets it.
GROUP_ERROR_SINCE_VERSION = 2


async def handle(broker: CoordinatorBroker, context: RequestContext, request: Request) -> object:
    if context.version < SEVERAL_SINCE_VERSION:
        group = await _fetch(broker, context.version, request, request)
        return SimpleNamespace(throttle_time=0, topics=group.topics, error_code=group.error_code)
    groups = [await _fetch(broker, context.version, request, group) for group in request.groups]
    return SimpleNamespace(throttle_time=0, groups=tuple(groups))


async def _fetch(
    broker: CoordinatorBroker, version: int, request: Request, group: Request
) -> SimpleNamespace:
    image: ClusterImage = broker.image
    asked = None if group.topics is None else [_asked(image, version, topic) for topic in group.topics]
    wanted = None if asked is None else [one for topic in asked for one in topic.wanted]
    require_stable: bool = getattr(request, "require_stable", False)
    member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", NO_EPOCH)

    def look(shard: Any, _moment: Any) -> Any:
        error = shard.check_fetch(group.group_id, member_id, member_epoch)
        return error or shard.fetch(group.group_id, wanted, require_stable=require_stable)

    found = await broker.coordinators.groups.read(group.group_id, look, lambda error: error)
    error = ErrorCode.none
    if isinstance(found, ErrorCode):
        error = found
        in_partitions = version < GROUP_ERROR_SINCE_VERSION and wanted is not None
        found = [Fetched(one.topic, one.partition, error=error) for one in wanted or () if in_partitions]
        asked = asked if in_partitions else []
    topics = _all(image, version, found) if asked is None else _each(asked, found)
    return SimpleNamespace(group_id=group.group_id, topics=tuple(topics), error_code=error)


class Asked(NamedTuple):
    """One topic of the request, and what the coordinator is asked for; a topic with an unknown id has nothing."""

    name: str
    topic_id: UUID | None
    indexes: Sequence[int]
    wanted: Sequence[PartitionWanted]


def _asked(image: ClusterImage, version: int, topic: Request) -> Asked:
    by_id = version >= BY_ID_SINCE_VERSION
    known = image.topic_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
    indexes = topic.partition_indexes
    if known is not None:
        wanted = [PartitionWanted(known.name, index, known.topic_id) for index in indexes]
        return Asked(known.name, known.topic_id, indexes, wanted)
    if by_id:
        return Asked("", topic.topic_id, indexes, ())
    return Asked(topic.name, None, indexes, [PartitionWanted(topic.name, index) for index in indexes])


def _each(asked: Sequence[Asked], found: Sequence[Fetched]) -> Iterator[SimpleNamespace]:
    """An answer for each topic of the request, in its order; what was found comes in the order of `wanted`."""
    position = 0
    for topic in asked:
        rows: Sequence[Fetched] = found[position : position + len(topic.wanted)]
        position += len(topic.wanted)
        if not topic.wanted:
            rows = [Fetched("", index, error=ErrorCode.unknown_topic_id) for index in topic.indexes]
        yield _topic(topic.name, topic.topic_id, rows)


def _all(image: ClusterImage, version: int, found: Sequence[Fetched]) -> Iterator[SimpleNamespace]:
    """All that the group has; by id only what still has one."""
    topics: dict[str, list[Fetched]] = {}
    for one in found:
        topics.setdefault(one.topic, []).append(one)
    for name, rows in topics.items():
        topic = image.topics.get(name)
        if topic is not None:
            yield _topic(name, topic.topic_id, rows)
        elif version < BY_ID_SINCE_VERSION:
            yield _topic(name, None, rows)


def _topic(name: str, topic_id: UUID | None, rows: Sequence[Fetched]) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        topic_id=topic_id,
        partitions=tuple(
            SimpleNamespace(
                partition_index=one.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=one.error,
            )
            for one in rows
        ),
    )
