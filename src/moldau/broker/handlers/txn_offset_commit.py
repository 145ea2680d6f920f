"""TxnOffsetCommit (28): offsets of a group as part of a transaction, which count when it is committed.

- v0: KIP-98
- v1: the client waits where it is throttled (KIP-219)
- v2: KIP-320, leader epochs; COORDINATOR_LOAD_IN_PROGRESS, which is COORDINATOR_NOT_AVAILABLE before
- v3: KIP-447, the group says whether the client may commit: a member that lost its partitions may not; flexible
  encoding
- v4: TRANSACTION_ABORTABLE, which is INVALID_TXN_STATE before (KIP-890)
- v5: KIP-890, this broker adds the partition to the transaction

The group's partition of `__consumer_offsets` must be part of the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.answers.common import PartitionError, TopicResult
from moldau.broker.answers.transactions import TxnOffsetCommitResponse
from moldau.broker.guard import may
from moldau.broker.interface import Request, RequestContext, TransactionBroker
from moldau.broker.paced import ELEMENTS_PER_PAUSE, in_steps
from moldau.broker.verification import verify
from moldau.coordinator.group.messages import Commit, OffsetToCommit
from moldau.coordinator.shard import Producer
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.log.producers import Verification
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 28
VERSIONS = (0, 5)

WRITE_ID = right("TxnOffsetCommit", Operation.WRITE, Resource.TRANSACTIONAL_ID)
READ_GROUP = right("TxnOffsetCommit", Operation.READ, Resource.GROUP)
READ_TOPIC = right("TxnOffsetCommit", Operation.READ, Resource.TOPIC)

LOADING_SINCE_VERSION = 2
ABORTABLE_SINCE_VERSION = 4
ADDS_SINCE_VERSION = 5
NO_EPOCH = -1
NO_GENERATION = -1
NO_SEQUENCE = -1


async def handle(
    broker: TransactionBroker, context: RequestContext, request: Request
) -> TxnOffsetCommitResponse:
    accepted: list[OffsetToCommit] = []
    errors: dict[str, dict[int, ErrorCode]] = {}
    denial = _denial(broker, context, request)
    for asked in request.topics:
        await context.breathe()
        error = denial or _denial_of_topic(broker, context, asked.name)
        topic = broker.image.topics.get(asked.name)
        for number, partition in enumerate(asked.partitions):
            if number % ELEMENTS_PER_PAUSE == 0:
                await context.breathe()
            index = partition.partition_index
            if not error and topic is not None and 0 <= index < len(topic.partitions):
                accepted.append(_offset(asked.name, topic.topic_id, partition))
            else:
                errors.setdefault(asked.name, {})[index] = error or ErrorCode.unknown_topic_or_partition
    if accepted:
        outcomes = await _commit(broker, context, request, accepted)
        for offset, outcome in zip(accepted, outcomes, strict=True):
            await context.breathe()
            if outcome is ErrorCode.coordinator_load_in_progress and context.version < LOADING_SINCE_VERSION:
                outcome = ErrorCode.coordinator_not_available  # which clients of that time can handle
            errors.setdefault(offset.topic, {})[offset.partition] = outcome
    return TxnOffsetCommitResponse(
        tuple(
            TopicResult(name, tuple(PartitionError(*outcome) for outcome in partitions.items()))
            for name, partitions in errors.items()
        )
    )


def _denial(broker: TransactionBroker, context: RequestContext, request: Request) -> ErrorCode:
    if not may(broker, context, WRITE_ID, request.transactional_id):
        return WRITE_ID.error
    if not may(broker, context, READ_GROUP, request.group_id):
        return READ_GROUP.error
    return ErrorCode.none


def _denial_of_topic(broker: TransactionBroker, context: RequestContext, name: str) -> ErrorCode:
    return ErrorCode.none if may(broker, context, READ_TOPIC, name) else READ_TOPIC.error


def _offset(topic: str, topic_id: UUID, partition: Request) -> OffsetToCommit:
    return OffsetToCommit(
        topic,
        partition.partition_index,
        partition.committed_offset,
        getattr(partition, "committed_leader_epoch", NO_EPOCH),
        partition.committed_metadata or "",
        topic_id,
    )


async def _commit(
    broker: TransactionBroker, context: RequestContext, request: Request, offsets: Sequence[OffsetToCommit]
) -> list[ErrorCode]:
    if not request.group_id:
        return [ErrorCode.invalid_group_id] * len(offsets)
    producer = Producer(request.producer_id, request.producer_epoch)

    async def step(some: Sequence[OffsetToCommit]) -> list[ErrorCode]:
        try:  # each time: the transaction may have ended since the last step
            await _verify(broker, context.version, request, producer)
        except KafkaError as error:
            return [error.code] * len(some)
        commit = Commit(
            group_id=request.group_id,
            member_id=getattr(request, "member_id", ""),
            instance_id=getattr(request, "group_instance_id", None),
            generation=getattr(request, "generation_id", NO_GENERATION),
            offsets=tuple(some),
        )
        errors: list[ErrorCode] = await broker.coordinators.groups.write(
            commit.group_id,
            lambda shard, moment, reply: shard.commit_in_transaction(commit, producer, reply, moment),
            lambda error: [error] * len(commit.offsets),
        )
        return errors

    return await in_steps(context, step, offsets)


async def _verify(broker: TransactionBroker, version: int, request: Request, producer: Producer) -> None:
    """The transaction is one that its coordinator knows, with the group's offsets in it; KafkaError otherwise."""
    index = await broker.coordinators.partition_of(CONSUMER_OFFSETS, request.group_id)
    if index is None:
        raise KafkaError(broker.coordinators.error_without(CONSUMER_OFFSETS))
    place = TopicPartition(CONSUMER_OFFSETS, index)
    try:
        partition = broker.partition(*place)
    except KafkaError as elsewhere:
        raise KafkaError(ErrorCode.not_coordinator) from elsewhere
    if partition.refusal:
        raise KafkaError(ErrorCode.not_coordinator)
    adds = version >= ADDS_SINCE_VERSION
    guard: Verification | None = None

    def take_guard() -> Verification | None:
        nonlocal guard
        producing = partition.log.producing
        guard = producing.begin_verification(producer.producer_id, producer.epoch, NO_SEQUENCE, False)
        return guard

    if take_guard() is None:
        return
    if adds or broker.config["transaction.partition.verification.enable"]:
        transaction_version = EPOCH_PER_TRANSACTION if adds else 0
        add = Add(
            request.transactional_id, producer.producer_id, producer.epoch, (place,), transaction_version
        )
        error = (await verify(broker, add, take_guard))[place]
        if error is ErrorCode.producer_fenced:
            error = ErrorCode.invalid_producer_epoch
        elif error is ErrorCode.network_exception:
            error = ErrorCode.coordinator_load_in_progress  # after which clients try the same broker again
        elif error is ErrorCode.transaction_abortable and version < ABORTABLE_SINCE_VERSION:
            error = ErrorCode.invalid_txn_state
        if error:
            raise KafkaError(error)
    if guard is not None:
        partition.log.producing.check_verified(producer.producer_id, producer.epoch, guard)
