"""Partitions that lie in two data folders of a broker, as a start may find them: which of the two logs counts.

- One of the folders was away when a topic was made anew: the log with the topic's id counts. The other is left alone.
- The broker ended while a log changed its folder (`moving`): the log whose last record has the newer leader epoch, or
  which is the longer one of the same epoch, has all that the other has. Where both have the same, the one that the move
  had come to counts (`names.MOVED_HERE`): who asked for it was told that it will be done. The other is removed. (Apache
  Kafka does not start then, and asks for one to be removed by hand.)
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import BadCheckpoint, read_partition_metadata
from moldau.log.folder import DataFolder
from moldau.log.loaded import LoadedLog
from moldau.runtime.ports import Disk

if TYPE_CHECKING:
    from moldau.log.opening import Contents

logger = logging.getLogger(__name__)

Load = Callable[["Contents", TopicPartition, str], LoadedLog]
"""What a log holds, as a start finds it. OSError: it cannot be read."""


class Double(NamedTuple):
    folder: DataFolder
    contents: Contents
    path: str


def leave_out_doubles(
    disk: Disk,
    found: Mapping[DataFolder, Contents],
    topic_id_of: Callable[[str], uuid.UUID | None],
    load: Load,
) -> None:
    """Leave one log of each partition in the contents of the folders. Blocks."""
    places: dict[TopicPartition, list[Double]] = {}
    for folder, contents in found.items():
        for partition, path in contents.logs:
            places.setdefault(partition, []).append(Double(folder, contents, path))
    for partition, doubles in places.items():
        if len(doubles) > 1:
            _leave_one(disk, partition, doubles, topic_id_of(partition.topic), load)


def _leave_one(
    disk: Disk, partition: TopicPartition, doubles: list[Double], topic_id: uuid.UUID | None, load: Load
) -> None:
    of_topic = [double for double in doubles if _topic_id(disk, double.path) == topic_id] or doubles[:1]
    ends = {double.path: _end(double, partition, load) for double in of_topic} if len(of_topic) > 1 else {}

    def rank(double: Double) -> tuple[tuple[int, int], bool]:
        return ends.get(double.path, _UNREADABLE), disk.exists(f"{double.path}/{names.MOVED_HERE}")

    right = max(of_topic, key=rank)
    for double in doubles:
        if double is right:
            continue
        double.contents.logs.remove((partition, double.path))
        is_copy = double in of_topic and topic_id is not None and ends[right.path] > _UNREADABLE
        if not is_copy:
            logger.error(
                "%s lies in %s and in %s: the latter is left alone", partition, right.path, double.path
            )
            continue
        logger.warning(
            "%s lies in %s and in %s, by a move that was interrupted: the former ends with epoch %d at %d, the"
            " latter with epoch %d at %d, and is removed",
            partition,
            right.path,
            double.path,
            *ends[right.path],
            *ends[double.path],
        )
        _take_start(partition, right, double)
        double.folder.remove_tree(double.path)


_UNREADABLE = (-2, -1)


def _end(double: Double, partition: TopicPartition, load: Load) -> tuple[int, int]:
    """The leader epoch of a log's last record, and its end: of two logs of one history the larger has more."""
    try:
        loaded = load(double.contents, partition, double.path)
    except OSError as error:
        logger.error("%s cannot be read: %s", double.path, error)
        return _UNREADABLE
    return loaded.epochs.epoch_of(loaded.next_offset - 1), loaded.next_offset


def _take_start(partition: TopicPartition, right: Double, other: Double) -> None:
    """Records that were deleted in one of them do not come back in the other."""
    starts, others = right.contents.checkpoints.log_starts, other.contents.checkpoints.log_starts
    if starts is not None and others is not None and partition in others:
        starts[partition] = max(starts.get(partition, 0), others[partition])


def _topic_id(disk: Disk, path: str) -> uuid.UUID | None:
    try:
        return read_partition_metadata(disk.read(f"{path}/{names.PARTITION_METADATA}"))
    except (OSError, BadCheckpoint):
        return None
