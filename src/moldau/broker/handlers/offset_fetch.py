"""OffsetFetch (9): the offsets that groups have committed.

Up to version 7 one group, since then several; some partitions, or all that have an offset (no list, from version 2 on).
A partition without one, and a group that nobody ever heard of, give -1 without an error. Topics by name, from version
10 on by id: an offset of a topic that was deleted and made anew is not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.commits import Fetched, PartitionWanted
from moldau.metadata.image import ClusterImage

API_KEY = 9
VERSIONS = (1, 10)

SEVERAL_SINCE_VERSION = 8
BY_ID_SINCE_VERSION = 10
#: Older versions have no error for the group as a whole: every partition gets it.
GROUP_ERROR_SINCE_VERSION = 2


async def handle(broker: Any, context: Any, request: Any) -> object:
    if context.version < SEVERAL_SINCE_VERSION:
        group = await _fetch(broker, context.version, request, request)
        return SimpleNamespace(throttle_time=0, topics=group.topics, error_code=group.error_code)
    groups = [await _fetch(broker, context.version, request, group) for group in request.groups]
    return SimpleNamespace(throttle_time=0, groups=tuple(groups))


async def _fetch(broker: Any, version: int, request: Any, group: Any) -> SimpleNamespace:
    require_stable: bool = getattr(request, "require_stable", False)
    unknown: list[Fetched] = []
    wanted = None if group.topics is None else _wanted(broker.image, version, group.topics, unknown)
    reply = broker.coordinators.groups.read(
        group.group_id,
        lambda shard, _moment: shard.fetch(group.group_id, wanted, require_stable=require_stable),
        lambda error: error,
    )
    found = await reply
    if isinstance(found, ErrorCode):
        return _failed(version, group, found, wanted or ())
    if wanted is None and version >= BY_ID_SINCE_VERSION:
        found = [one for one in found if one.topic in broker.image.topics]
    topics = _topics(broker.image, version, group, [*found, *unknown])
    return SimpleNamespace(group_id=group.group_id, topics=topics, error_code=ErrorCode.none)


def _wanted(
    image: ClusterImage, version: int, topics: Sequence[Any], unknown: list[Fetched]
) -> list[PartitionWanted]:
    wanted = []
    for asked in topics:
        by_id = version >= BY_ID_SINCE_VERSION
        topic = image.topic_by_id.get(asked.topic_id) if by_id else image.topics.get(asked.name)
        for index in asked.partition_indexes:
            if topic is not None:
                wanted.append(PartitionWanted(topic.name, index, topic.topic_id))
            elif by_id:
                unknown.append(Fetched(str(asked.topic_id), index, error=ErrorCode.unknown_topic_id))
            else:
                wanted.append(PartitionWanted(asked.name, index))
    return wanted


def _failed(version: int, group: Any, error: ErrorCode, wanted: Sequence[PartitionWanted]) -> SimpleNamespace:
    """The coordinator could not answer."""
    topics: tuple[object, ...] = ()
    if version < GROUP_ERROR_SINCE_VERSION:
        failed = [Fetched(one.topic, one.partition, error=error) for one in wanted]
        topics = tuple(_topic(name, None, rows) for name, rows in _by_topic(failed).items())
    return SimpleNamespace(group_id=group.group_id, topics=topics, error_code=error)


def _topics(
    image: ClusterImage, version: int, group: Any, found: Sequence[Fetched]
) -> tuple[SimpleNamespace, ...]:
    ids = (
        {str(asked.topic_id): asked.topic_id for asked in group.topics or ()}
        if version >= BY_ID_SINCE_VERSION
        else {}
    )
    answers = []
    for name, rows in _by_topic(found).items():
        topic = image.topics.get(name)
        answers.append(_topic(name, ids.get(name) if topic is None else topic.topic_id, rows))
    return tuple(answers)


def _by_topic(found: Sequence[Fetched]) -> dict[str, list[Fetched]]:
    topics: dict[str, list[Fetched]] = {}
    for one in found:
        topics.setdefault(one.topic, []).append(one)
    return topics


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
