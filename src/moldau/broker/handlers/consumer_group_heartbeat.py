"""ConsumerGroupHeartbeat (68): join, stay in, change or leave a consumer group (KIP-848).

- v0: the coordinator chooses the members' ids
- v1: KIP-1082, members choose their own ids; they may subscribe by a regular expression

The coordinator assigns the partitions; the answer has them when they have changed. The rules are in
`coordinator.group.consumer`.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.guard import may
from moldau.broker.interface import CoordinatorBroker, Request, RequestContext
from moldau.broker.paced import in_slices
from moldau.coordinator.group.consumer.messages import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    NOT_SAID_MS,
    Beat,
    Beaten,
)
from moldau.coordinator.group.messages import Sees
from moldau.coordinator.reply import Reply
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.times import milliseconds

API_KEY = 68
VERSIONS = (0, 1)

READ_GROUP = right("ConsumerGroupHeartbeat", Operation.READ, Resource.GROUP)
DESCRIBE_TOPIC = right("ConsumerGroupHeartbeat", Operation.DESCRIBE, Resource.TOPIC)

OWN_ID_SINCE_VERSION = 1


def handle(
    broker: CoordinatorBroker, context: RequestContext, request: Request
) -> Reply | Beaten | Slices[Reply | Beaten]:
    if not is_served(broker):
        return Beaten(ErrorCode.unsupported_version)
    if not may(broker, context, READ_GROUP, request.group_id):
        return Beaten(READ_GROUP.error)
    if broker.guard is not None and request.subscribed_topic_names:
        return _asking(broker, context, request)
    return _serve(broker, context, request)


def _asking(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Slices[Reply | Beaten]:
    names = dict.fromkeys(request.subscribed_topic_names)
    allowed = yield from in_slices(lambda name: may(broker, context, DESCRIBE_TOPIC, name), names)
    return _serve(broker, context, request) if all(allowed) else Beaten(DESCRIBE_TOPIC.error)


def seen_by(broker: CoordinatorBroker, context: RequestContext) -> Sees | None:
    """Which topics a client may know of; None where everyone may know of all."""
    guard = broker.guard
    return None if guard is None else lambda name: guard.allows_quietly(context, DESCRIBE_TOPIC, name)


def _serve(broker: CoordinatorBroker, context: RequestContext, request: Request) -> Reply | Beaten:
    beat = _beat(context, request)._replace(sees=seen_by(broker, context))
    try:
        _check(context.version, beat, broker.config["group.consumer.assignors"])
    except KafkaError as refusal:
        return Beaten(refusal.code, refusal.message)
    return broker.coordinators.groups.write(
        beat.group_id,
        lambda shard, moment, reply: shard.beat(beat, reply, moment),
        lambda error: Beaten(error, broker.coordinators.reason_of(error, CONSUMER_OFFSETS)),
        takes_long=lambda shard: shard.beat_takes_long(beat),
    )


def is_served(broker: CoordinatorBroker) -> bool:
    return "consumer" in broker.config["group.coordinator.rebalance.protocols"]


def _beat(context: RequestContext, request: Request) -> Beat:
    owned = request.topic_partitions
    return Beat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        regex=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=None if owned is None else owned_partitions(owned),
    )


def owned_partitions(rows: Iterable[Request]) -> dict[UUID, frozenset[int]]:
    """A topic that is named twice counts with both: what a member has must not seem to be free."""
    owned: dict[UUID, frozenset[int]] = {}
    for row in rows:
        owned[row.topic_id] = owned.get(row.topic_id, frozenset()).union(row.partitions)
    return owned


def _check(version: int, beat: Beat, assignors: list[str]) -> None:
    """As Kafka's throwIfConsumerGroupHeartbeatRequestIsInvalid does, before it looks for the group."""
    has_own_id = version >= OWN_ID_SINCE_VERSION or beat.epoch > JOINING or beat.epoch == LEAVING
    if has_own_id and not beat.member_id.strip():
        raise _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", beat.group_id),
        ("InstanceId", beat.instance_id),
        ("RackId", beat.rack_id),
    ):
        if text is not None and not text.strip():
            raise _invalid(f"{name} can't be empty.")
    if beat.epoch == JOINING:
        _check_first(beat)
    elif beat.epoch == LEAVING_FOR_A_WHILE and beat.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif beat.epoch < LEAVING_FOR_A_WHILE:
        raise _invalid("MemberEpoch is invalid.")
    if beat.assignor is not None and beat.assignor not in assignors:
        raise KafkaError(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_first(beat: Beat) -> None:
    if beat.rebalance_timeout_ms == NOT_SAID_MS:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if beat.owned is None or beat.owned:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if beat.topics is None and beat.regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.invalid_request, message)
