"""OffsetCommit (8): keep the offsets up to which a group has read.

Topics by name, from version 10 on by id. Partitions that are not there get an error of their own; for the others the
group says whether the client may commit. Up to version 4 a client may say how long the offsets are to be kept.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.messages import Commit, OffsetToCommit
from moldau.coordinator.reply import Reply
from moldau.metadata.image import ClusterImage, Topic
from moldau.wire.times import milliseconds

API_KEY = 8
VERSIONS = (2, 10)

MISSING_GROUP_SINCE_VERSION = 9
BY_ID_SINCE_VERSION = 10
NO_EPOCH = -1
NO_RETENTION = -1


class TopicAnswer:
    """What becomes of one topic of the request: errors by partition, in the order asked for."""

    __slots__ = ("errors", "name", "topic_id")

    def __init__(self, name: str, topic_id: UUID | None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.errors: list[tuple[int, ErrorCode]] = []

    @property
    def partitions(self) -> tuple[object, ...]:
        return tuple(SimpleNamespace(partition_index=i, error_code=error) for i, error in self.errors)


def handle(broker: Any, context: Any, request: Any) -> Reply | object:
    answers: list[TopicAnswer] = []
    wanted: list[OffsetToCommit] = []
    places: list[tuple[TopicAnswer, int]] = []  # of each wanted offset: its answer, and its place there
    for asked in request.topics:
        topic = find_topic(broker.image, context.version, asked)
        answer = TopicAnswer(getattr(asked, "name", ""), getattr(asked, "topic_id", None))
        answers.append(answer)
        for partition in asked.partitions:
            index = partition.partition_index
            if topic is None:
                by_id = context.version >= BY_ID_SINCE_VERSION
                missing = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
                answer.errors.append((index, missing))
            elif not 0 <= index < len(topic.partitions):
                answer.errors.append((index, ErrorCode.unknown_topic_or_partition))
            else:
                places.append((answer, len(answer.errors)))
                answer.errors.append((index, ErrorCode.none))
                wanted.append(_offset(topic, partition))
    if not wanted:
        return _response(answers)
    commit = _commit(context.version, request, tuple(wanted))
    reply: Reply = broker.coordinators.groups.write(
        commit.group_id,
        lambda shard, moment, reply: shard.commit(commit, reply, moment),
        lambda error: [error] * len(wanted),
    )
    return reply.map(lambda errors: _response(answers, places, errors))


def find_topic(image: ClusterImage, version: int, asked: Any) -> Topic | None:
    if version >= BY_ID_SINCE_VERSION:
        return image.topic_by_id.get(asked.topic_id)
    return image.topics.get(asked.name)


def _offset(topic: Topic, partition: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_EPOCH),
        partition.committed_metadata or "",
        topic.topic_id,
    )


def _commit(version: int, request: Any, wanted: tuple[OffsetToCommit, ...]) -> Commit:
    return Commit(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=wanted,
        retention_ms=milliseconds(getattr(request, "retention_time", NO_RETENTION)),
        knows_missing_groups=version >= MISSING_GROUP_SINCE_VERSION,
    )


def _response(
    answers: list[TopicAnswer],
    places: list[tuple[TopicAnswer, int]] | None = None,
    errors: list[ErrorCode] | None = None,
) -> object:
    for (answer, place), error in zip(places or (), errors or (), strict=True):
        answer.errors[place] = (answer.errors[place][0], error)
    return SimpleNamespace(throttle_time=0, topics=tuple(answers))
