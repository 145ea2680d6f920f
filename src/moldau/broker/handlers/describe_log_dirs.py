"""DescribeLogDirs (35): the data folders, how large each partition in them is, and the room that is left.

- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
- v3: the answer has an error of its own
- v4: KIP-827, the size of a folder and the room in it
- v5: whether a folder is cordoned, which none is here

A log on its way to another folder (AlterReplicaLogDirs) is told there too, as a future one and with its lag.
A folder that has failed has an error and no partitions, and its sizes are not known (-1), as in Kafka's ReplicaManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.answers.common import TopicResult
from moldau.broker.answers.topics import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from moldau.broker.guard import may
from moldau.broker.interface import DataBroker, Request, RequestContext
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 35
VERSIONS = (1, 5)

DESCRIBE_CLUSTER = right("DescribeLogDirs", Operation.DESCRIBE, Resource.CLUSTER)

UNKNOWN_BYTES = -1

Topics = dict[str, list[DescribeLogDirsPartition]]


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> DescribeLogDirsResponse:
    if not may(broker, context, DESCRIBE_CLUSTER):
        return DescribeLogDirsResponse((), DESCRIBE_CLUSTER.error)
    folders = broker.log_manager.folders
    by_folder: dict[str, Topics] = {folder.path: {} for folder in folders}
    for place in await _asked(broker, context, request.topics):
        await context.breathe()
        if place not in broker.partitions or place in broker.offline:
            continue
        log = broker.partitions[place].log
        folder = log.folder.rpartition("/")[0]
        by_folder.setdefault(folder, {}).setdefault(place.topic, []).append(
            DescribeLogDirsPartition(place.partition, log.size_bytes())
        )
        move = broker.log_manager.moves.under_way.get(place)
        if move is not None:
            by_folder[move.target.path].setdefault(place.topic, []).append(
                DescribeLogDirsPartition(
                    place.partition, move.copy.size_bytes(), move.offset_lag, is_future_key=True
                )
            )
    failed = {folder.path for folder in folders if folder.failure is not None}
    results = [await _folder(broker, path, topics, path in failed) for path, topics in by_folder.items()]
    return DescribeLogDirsResponse(tuple(results))


async def _asked(broker: DataBroker, context: RequestContext, topics: Request) -> Iterable[TopicPartition]:
    """All partitions that this broker holds where no list is given; else each of the list once."""
    if topics is None:
        return list(broker.partitions)
    places: dict[TopicPartition, None] = {}
    for topic in topics:
        for index in topic.partitions:
            places[TopicPartition(topic.topic, index)] = None
            await context.breathe()
    return places


async def _folder(broker: DataBroker, path: str, topics: Topics, has_failed: bool) -> DescribeLogDirsResult:
    error, usable_bytes, total_bytes = ErrorCode.none, UNKNOWN_BYTES, UNKNOWN_BYTES
    disk, in_thread = broker.runtime.disk, broker.runtime.tasks.in_thread
    try:
        if has_failed:
            error = ErrorCode.kafka_storage_error
        else:
            usable_bytes = await in_thread(disk.free_bytes, path)
            total_bytes = await in_thread(disk.total_bytes, path)
    except OSError:
        error = ErrorCode.kafka_storage_error
    shown = tuple(TopicResult(name, tuple(partitions)) for name, partitions in topics.items())
    return DescribeLogDirsResult(error, path, shown, total_bytes, usable_bytes)
