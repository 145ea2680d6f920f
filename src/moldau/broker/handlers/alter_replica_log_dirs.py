"""AlterReplicaLogDirs (34): replicas of this broker move to other data folders of it (KIP-113).

- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)

Sent to the broker that holds them, leader or not. The answer says that a move has begun; DescribeLogDirs tells how far
it is. A partition that is not here yet is created in the folder that is named, when it comes (REPLICA_NOT_AVAILABLE
says so): kafka-reassign-partitions asks before and after. The folder where a log lies ends its move to another. Errors
and their order are those of Kafka's `ReplicaManager.alterReplicaLogDirs`; while any folder is offline nothing moves.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.broker.answers.topics import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from moldau.broker.guard import may
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.log import names
from moldau.log.folder import DataFolder
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 34
VERSIONS = (1, 2)

ALTER_CLUSTER = right("AlterReplicaLogDirs", Operation.ALTER, Resource.CLUSTER)

UNIQUE_BYTES = 32
"""Of the name of a log on its way, besides the partition and the dots and words."""


async def handle(
    broker: DataBroker, context: RequestContext, request: Request
) -> AlterReplicaLogDirsResponse:
    """Of a partition that is named twice, the last folder counts."""
    wanted: dict[TopicPartition, str] = {}
    for folder in request.dirs:
        for topic in folder.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = folder.path
                await context.breathe()
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    is_allowed = may(broker, context, ALTER_CLUSTER)
    for place, path in wanted.items():
        error = await _alter(broker, place, path) if is_allowed else ALTER_CLUSTER.error
        results.setdefault(place.topic, []).append(AlterReplicaLogDirPartitionResult(place.partition, error))
        await broker.runtime.tasks.sleep(0)  # a folder was made
    return AlterReplicaLogDirsResponse(
        tuple(AlterReplicaLogDirTopicResult(name, tuple(some)) for name, some in results.items())
    )


async def _alter(broker: DataBroker, place: TopicPartition, path: str) -> ErrorCode:
    if len(str(place)) + len(f".{names.FUTURE_FOLDER}") + UNIQUE_BYTES > names.FOLDER_NAME_BYTES_MAX:
        return ErrorCode.invalid_topic_exception
    folder = _folder(broker, path)
    if folder is None:
        return ErrorCode.log_dir_not_found
    if folder.failure is not None or place in broker.offline:
        return ErrorCode.kafka_storage_error
    if place not in broker.partitions:
        broker.log_manager.moves.prefer(place, path)
        return _why_not_here(broker, place)
    return await _move(broker, place, folder)


def _folder(broker: DataBroker, path: str) -> DataFolder | None:
    return next((folder for folder in broker.log_manager.folders if folder.path == path), None)


def _why_not_here(broker: DataBroker, place: TopicPartition) -> ErrorCode:
    try:
        broker.partition(place.topic, place.partition)
    except KafkaError as error:
        if error.code is not ErrorCode.not_leader_or_follower:
            return error.code
    return ErrorCode.replica_not_available


async def _move(broker: DataBroker, place: TopicPartition, folder: DataFolder) -> ErrorCode:
    manager, log = broker.log_manager, broker.partitions[place].log
    moves = manager.moves
    if place in moves.under_way and moves.under_way[place].target is not folder:
        await moves.give_up(place)
    if place in moves.under_way or manager.folder_of(place) is folder:
        return ErrorCode.none
    if manager.has_failed_folders:
        return ErrorCode.kafka_storage_error
    try:
        await moves.begin(log, folder)
    except OSError as error:
        manager.creation_error(folder, error)
        return ErrorCode.kafka_storage_error
    return ErrorCode.none
