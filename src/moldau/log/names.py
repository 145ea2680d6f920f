"""The names of files and folders, as Kafka gives them."""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode, urlsafe_b64encode

from moldau.base.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
TRANSACTION_INDEX = ".txnindex"
CLEANED = ".cleaned"
SWAP = ".swap"
"""New segments of a compaction: under way, and complete but not yet in their place."""
DELETED = ".deleted"
"""Files that wait for their removal."""
TEMPORARY = ".tmp"
DELETED_FOLDER = "-delete"
STRAY_FOLDER = "-stray"
FUTURE_FOLDER = "-future"
"""A log on its way to another data folder (KIP-113)."""

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
MOVED_HERE = "moved-here"
"""In a log's folder from shortly before it takes the place of the one in another data folder until that has gone. Not a
file of Kafka, which leaves it alone."""
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"

FOLDER_NAME_BYTES_MAX = 255
_FOLDER = re.compile(r"(.+)-(\d+)")
_FUTURE = re.compile(r"(.+)-(\d+)\.[^.]+-future")


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def deleted_files(base_offset: int) -> list[str]:
    """The names of a segment's files that wait for their removal."""
    return [file_name(base_offset, suffix + DELETED) for suffix in (OFFSET_INDEX, TIME_INDEX, LOG)]


def offset_of(name: str, suffix: str) -> int | None:
    """The offset in a file's name, None where it is not a name of that kind."""
    digits = name[: -len(suffix)]
    return int(digits) if name.endswith(suffix) and digits.isdecimal() else None


def partition_of(folder: str) -> TopicPartition | None:
    """The partition whose log a folder is; None for any other folder."""
    match = _FOLDER.fullmatch(folder)
    if match is None or folder.endswith((DELETED_FOLDER, STRAY_FOLDER)):
        return None
    return TopicPartition(match[1], int(match[2]))


def future_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """The name of a log on its way to another data folder. It may be longer than a file system takes."""
    return f"{partition}.{unique.hex}{FUTURE_FOLDER}"


def future_of(folder: str) -> TopicPartition | None:
    """The partition whose log is on its way into a folder; None for any other folder."""
    match = _FUTURE.fullmatch(folder)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def log_of(folder: str) -> TopicPartition | None:
    """The partition whose log a folder is, there or on its way there."""
    return partition_of(folder) or future_of(folder)


def deleted_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """The name of a log that waits for its removal."""
    return _set_aside(partition, unique, DELETED_FOLDER)


def stray_folder(partition: TopicPartition, unique: uuid.UUID) -> str:
    """The name of a log that belongs to no partition, and is kept."""
    return _set_aside(partition, unique, STRAY_FOLDER)


def _set_aside(partition: TopicPartition, unique: uuid.UUID, ending: str) -> str:
    """Long topic names are cut, as file systems limit names."""
    suffix = f".{unique.hex}{ending}"
    return str(partition)[: FOLDER_NAME_BYTES_MAX - len(suffix)] + suffix


def id_text(value: uuid.UUID) -> str:
    """An id as Kafka prints it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes)[:22].decode()


def id_of(text: str) -> uuid.UUID:
    """ValueError where it is not an id."""
    return uuid.UUID(bytes=urlsafe_b64decode(text + "=="))
