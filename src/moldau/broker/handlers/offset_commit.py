"""OffsetCommit (8): keep the offsets up to which a group has read.

- v2: a client may say how long the offsets are to be kept
- v3: the throttle time
- v4: the client waits where it is throttled (KIP-219)
- v5: KIP-211, the broker says how long offsets are kept
- v6: KIP-320, leader epochs
- v7: KIP-345, static members
- v8: flexible encoding (KIP-482)
- v9: KIP-848, members of consumer groups; a group that is not there has an error of its own
- v10: KIP-848, topics by id

Partitions that are not there get an error of their own; for the others the group says whether the client may commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from moldau.base.errors import ErrorCode
from moldau.base.limits import COORDINATOR_ELEMENTS_PER_STEP
from moldau.broker.answers.common import PartitionError
from moldau.broker.answers.groups import OffsetCommitResponse, OffsetCommitResponseTopic
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import ELEMENTS_PER_PAUSE, in_steps
from moldau.coordinator.group.messages import Commit, OffsetToCommit
from moldau.coordinator.reply import Reply
from moldau.metadata.image import ClusterImage, Topic
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.times import milliseconds

API_KEY = 8
VERSIONS = (2, 10)

READ_GROUP = right("OffsetCommit", Operation.READ, Resource.GROUP)
READ_TOPIC = right("OffsetCommit", Operation.READ, Resource.TOPIC)

MISSING_GROUP_SINCE_VERSION = 9
BY_ID_SINCE_VERSION = 10
NO_EPOCH = -1
NO_RETENTION = -1

Refused = dict[object, OffsetCommitResponseTopic]
"""The partitions that are not there, by topic."""
Accepted = list[tuple[OffsetCommitResponseTopic, OffsetToCommit]]


def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> Slices[Reply | OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
    refused: Refused = {}
    accepted: Accepted = []
    if not may(broker, context, READ_GROUP, request.group_id):
        return (yield from _denied(request))
    for asked in request.topics:
        yield
        topic = find_topic(broker.image, context.version, asked)
        answer = _topic(asked)
        why_not = _why_not(broker, context, asked, topic)
        for number, partition in enumerate(asked.partitions):
            if number % ELEMENTS_PER_PAUSE == 0:
                yield
            index = partition.partition_index
            if not why_not and topic is not None and 0 <= index < len(topic.partitions):
                accepted.append((answer, _offset(topic, partition)))
            else:
                missing = why_not or ErrorCode.unknown_topic_or_partition
                shown = refused.setdefault((answer.name, answer.topic_id), _topic(asked))
                shown.partitions.append(PartitionError(index, missing))
    if not accepted:
        return _response(refused, accepted, [])
    offsets = tuple(offset for _, offset in accepted)
    if len(offsets) > COORDINATOR_ELEMENTS_PER_STEP:
        return _in_steps(broker, context, request, refused, accepted, offsets)
    reply = _write(broker, _commit(context.version, request, offsets))
    return reply.map(lambda errors: _response(refused, accepted, errors))


def _denied(request: Request) -> Slices[OffsetCommitResponse]:
    topics = []
    for asked in request.topics:
        yield
        topics.append(_topic(asked))
        for number, partition in enumerate(asked.partitions):
            if number % ELEMENTS_PER_PAUSE == 0:
                yield
            topics[-1].partitions.append(PartitionError(partition.partition_index, READ_GROUP.error))
    return OffsetCommitResponse(tuple(topics))


def _why_not(
    broker: CoordinatorBroker, context: RequestContext, asked: Request, topic: Topic | None
) -> ErrorCode:
    """Why no offset of a topic is taken, whatever its partition."""
    by_id = context.version >= BY_ID_SINCE_VERSION
    if topic is None and by_id:
        return ErrorCode.unknown_topic_id
    if not may(broker, context, READ_TOPIC, asked.name if topic is None else topic.name):
        return READ_TOPIC.error
    return ErrorCode.none


async def _in_steps(
    broker: CoordinatorBroker,
    context: RequestContext,
    request: Request,
    refused: Refused,
    accepted: Accepted,
    offsets: Sequence[OffsetToCommit],
) -> OffsetCommitResponse:
    """Each step is a batch of its own, where Kafka has one for all (and refuses what does not fit into it)."""

    async def step(some: Sequence[OffsetToCommit]) -> list[ErrorCode]:
        errors: list[ErrorCode] = await _write(broker, _commit(context.version, request, tuple(some)))
        return errors

    return _response(refused, accepted, await in_steps(context, step, offsets))


def _write(broker: CoordinatorBroker, commit: Commit) -> Reply:
    return broker.coordinators.groups.write(
        commit.group_id,
        lambda shard, moment, reply: shard.commit(commit, reply, moment),
        lambda error: [error] * len(commit.offsets),
    )


def _topic(asked: Request) -> OffsetCommitResponseTopic:
    """What becomes of one topic of the request, without its partitions."""
    return OffsetCommitResponseTopic(getattr(asked, "name", ""), getattr(asked, "topic_id", None), [])


def find_topic(image: ClusterImage, version: int, asked: Request) -> Topic | None:
    if version >= BY_ID_SINCE_VERSION:
        return image.topic_by_id.get(asked.topic_id)
    return image.topics.get(asked.name)


def _offset(topic: Topic, partition: Request) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_EPOCH),
        partition.committed_metadata or "",
        topic.topic_id,
    )


def _commit(version: int, request: Request, wanted: tuple[OffsetToCommit, ...]) -> Commit:
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
    refused: Refused,
    accepted: Accepted,
    errors: list[ErrorCode],
) -> OffsetCommitResponse:
    """In the order of Kafka's OffsetCommitResponse.Builder: what was refused first; a topic with both parts once."""
    topics = list(refused.values())
    for (answer, offset), error in zip(accepted, errors, strict=True):
        shown = refused.get((answer.name, answer.topic_id), answer)
        if not shown.partitions:
            topics.append(shown)
        shown.partitions.append(PartitionError(offset.partition, error))
    return OffsetCommitResponse(tuple(topics))
