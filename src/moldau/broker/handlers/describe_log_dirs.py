"""DescribeLogDirs (35): the data folders, how large each partition in them is, and the room that is left.

A folder that has failed has an error and no partitions, and its sizes are not known (-1), as in Kafka.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.interface import DataBroker, Request, RequestContext

API_KEY = 35
VERSIONS = (1, 5)

UNKNOWN_BYTES = -1


async def handle(broker: DataBroker, context: RequestContext, request: Request) -> object:
    folders = broker.log_manager.folders
    by_folder: dict[str, dict[str, list[SimpleNamespace]]] = {folder.path: {} for folder in folders}
    for place in _asked(broker, request.topics):
        log = broker.partitions[place].log
        folder = log.folder.rpartition("/")[0]
        by_folder.setdefault(folder, {}).setdefault(place.topic, []).append(
            _partition(place, log.size_bytes())
        )
    failed = {folder.path for folder in folders if folder.failure is not None}
    results = [await _folder(broker, path, topics, path in failed) for path, topics in by_folder.items()]
    return SimpleNamespace(throttle_time=0, error_code=ErrorCode.none, results=tuple(results))


def _asked(broker: DataBroker, topics: Request) -> list[TopicPartition]:
    """Those that this broker holds: all where no list is given."""
    if topics is None:
        return sorted(broker.partitions.keys() - broker.offline)
    places = (TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions)
    held = broker.partitions.keys() - broker.offline
    return [place for place in dict.fromkeys(places) if place in held]


def _partition(place: TopicPartition, size_bytes: int) -> SimpleNamespace:
    return SimpleNamespace(
        partition_index=place.partition, partition_size=size_bytes, offset_lag=0, is_future_key=False
    )


async def _folder(
    broker: DataBroker, path: str, topics: dict[str, list[SimpleNamespace]], has_failed: bool
) -> SimpleNamespace:
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
    return SimpleNamespace(
        error_code=error,
        log_dir=path,
        topics=tuple(
            SimpleNamespace(name=name, partitions=tuple(partitions)) for name, partitions in topics.items()
        ),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=False,
    )
