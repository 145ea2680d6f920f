"""What lies where: data folders, the logs in them, the files of a log, and the state the last stop left them in."""

from __future__ import annotations

import os.path
from bisect import bisect_right
from dataclasses import dataclass
from enum import Enum

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import BadCheckpoint, read_offsets
from moldau.runtime.ports import Disk

TRANSACTION_INDEX = names.TRANSACTION_INDEX
CLEANED = names.CLEANED
SWAP = names.SWAP
CLEANER_OFFSETS = names.CLEANER_OFFSETS
METADATA_LOG = TopicPartition("__cluster_metadata", 0)
BROKER_FOLDER = "broker"
"""`moldau up` keeps each broker's data in `broker-<id>`."""

SEGMENT_SUFFIXES = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, TRANSACTION_INDEX)
LEFTOVER_SUFFIXES = (names.DELETED, names.TEMPORARY, CLEANED, SWAP)
OFFSET_CHECKPOINTS = (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS, CLEANER_OFFSETS)


class Place(Enum):
    """What a path is."""

    CLUSTER = "the folder of `moldau up`"
    DATA = "a data folder"
    PARTITION = "the folder of a partition"
    FILE = "a file"
    OTHER = "neither"


def place_of(disk: Disk, path: str) -> Place:
    if not disk.is_folder(path):
        return Place.FILE if disk.exists(path) else Place.OTHER
    if brokers_in(disk, path):
        return Place.CLUSTER
    found = disk.list(path)
    if names.META_PROPERTIES in found or any(name in found for name in OFFSET_CHECKPOINTS):
        return Place.DATA
    if _holds_a_log(found):
        return Place.PARTITION
    if any(_holds_a_log(disk.list(folder)) for _, folder in partitions_in(disk, path)):
        return Place.DATA  # a name such as dbus-1 alone makes no partition
    return Place.OTHER


def _holds_a_log(found: list[str]) -> bool:
    return names.PARTITION_METADATA in found or any(name.endswith(names.LOG) for name in found)


def brokers_in(disk: Disk, path: str) -> list[str]:
    """The data folders of a cluster's brokers, by id."""
    found = [(names.partition_of(name), name) for name in disk.list(path)]
    folders = sorted((p.partition, name) for p, name in found if p is not None and p.topic == BROKER_FOLDER)
    return [f"{path}/{name}" for _, name in folders if disk.exists(f"{path}/{name}/{names.META_PROPERTIES}")]


def partitions_in(disk: Disk, path: str) -> list[tuple[TopicPartition, str]]:
    """The logs of a data folder with their folders, by topic and number."""
    named = ((names.partition_of(name), f"{path}/{name}") for name in disk.list(path))
    return sorted((p, folder) for p, folder in named if p is not None and disk.is_folder(folder))


def futures_in(disk: Disk, path: str) -> list[tuple[TopicPartition, str]]:
    """The logs that are on their way into a data folder, by topic and number."""
    named = ((names.future_of(name), f"{path}/{name}") for name in disk.list(path))
    return sorted((p, folder) for p, folder in named if p is not None and disk.is_folder(folder))


def in_use(disk: Disk, path: str) -> bool:
    """Whether a running broker holds the folder's lock."""
    lock = f"{path}/{names.LOCK}"
    if not disk.exists(lock):
        return False
    try:
        disk.lock(lock).release()
    except BlockingIOError:
        return True
    except OSError:
        return False  # may not be opened by this user: nothing is known
    return False


@dataclass(frozen=True, slots=True)
class Standing:
    """How one log was left, as its data folder tells it."""

    running: bool = False
    clean: bool = False
    recovery_point: int | None = None
    log_start: int | None = None
    high_watermark: int | None = None
    cleaned_to: int = 0
    """Compaction has been here, up to this offset."""


@dataclass(frozen=True, slots=True)
class FolderState:
    """How a data folder was left. Checkpoints that cannot be read are empty here."""

    running: bool
    clean: bool
    checkpoints: dict[str, dict[TopicPartition, int]]

    @classmethod
    def of(cls, disk: Disk, path: str) -> FolderState:
        checkpoints = {}
        for name in OFFSET_CHECKPOINTS:
            try:
                checkpoints[name] = read_offsets(disk.read(f"{path}/{name}"))
            except (OSError, BadCheckpoint):
                checkpoints[name] = {}
        return cls(in_use(disk, path), disk.exists(f"{path}/{names.CLEAN_SHUTDOWN}"), checkpoints)

    def standing(self, partition: TopicPartition) -> Standing:
        return Standing(
            self.running,
            self.clean,
            self.checkpoints[names.RECOVERY_POINTS].get(partition),
            self.checkpoints[names.LOG_STARTS].get(partition),
            self.checkpoints[names.HIGH_WATERMARKS].get(partition),
            self.checkpoints[CLEANER_OFFSETS].get(partition, 0),
        )


def standing_of(disk: Disk, partition_folder: str) -> Standing:
    """How a log was left, from the data folder around it; nothing is known where there is none."""
    folder = os.path.dirname(os.path.abspath(partition_folder))
    partition = names.log_of(os.path.basename(partition_folder))
    if partition is None or not disk.exists(f"{folder}/{names.META_PROPERTIES}"):
        return Standing()
    return FolderState.of(disk, folder).standing(partition)


class LogFiles:
    """The files of one log, sorted out by their names."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.folder = folder
        self.names = disk.list(folder)
        self._present = frozenset(self.names)
        self.bases = self.offsets(names.LOG)
        self.snapshots = self.offsets(names.SNAPSHOT)

    def offsets(self, suffix: str) -> list[int]:
        found = ((names.offset_of(name, suffix), name) for name in self.names)
        return sorted(o for o, name in found if o is not None and name == names.file_name(o, suffix))

    def path(self, offset: int, suffix: str) -> str:
        return f"{self.folder}/{names.file_name(offset, suffix)}"

    def has(self, offset: int, suffix: str) -> bool:
        return names.file_name(offset, suffix) in self._present

    def next_base(self, base_offset: int) -> int | None:
        """Where the next segment begins; None for the last one."""
        index = bisect_right(self.bases, base_offset)
        return self.bases[index] if index < len(self.bases) else None

    def segments_from(self, offset: int) -> list[int]:
        """The segments in which an offset or anything after it may lie."""
        return self.bases[max(0, bisect_right(self.bases, offset) - 1) :]
