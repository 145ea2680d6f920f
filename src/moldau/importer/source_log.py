"""One partition's log as Kafka left it: which of its files belong to it, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from moldau.base.ids import TopicPartition
from moldau.importer.refusal import ImportRefused
from moldau.log import names
from moldau.log.checkpoints import BadCheckpoint, read_partition_metadata
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY, Index, read_waiting
from moldau.log.inspect.files import SEGMENT_SUFFIXES, SWAP, LogFiles, Standing
from moldau.log.scan import DamagedSegment, headers
from moldau.log.snapshots import BadSnapshot, read_snapshot
from moldau.records.batch import HEADER_BYTES, MAGIC, MAGIC_POSITION
from moldau.runtime.ports import Disk

_KEPT = (*SEGMENT_SUFFIXES, names.SNAPSHOT)


@dataclass(frozen=True, slots=True)
class SourceFile:
    name: str
    size: int
    is_closed: bool
    """A segment's records that nothing is ever added to."""


@dataclass(frozen=True, slots=True)
class SourceLog:
    partition: TopicPartition
    folder: str
    files: tuple[SourceFile, ...]
    log_start_offset: int
    next_offset: int
    standing: Standing
    oldest_ms: int | None
    """The newest timestamp in the first segment, by which it grows old; None where there is none."""
    has_open_transactions: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def examine(
    disk: Disk, partition: TopicPartition, topic_id: UUID, folder: str, standing: Standing
) -> SourceLog:
    files = LogFiles(disk, folder)
    _check_topic_id(disk, folder, topic_id)
    if any(name.endswith(SWAP) for name in files.names):
        raise ImportRefused(
            f"A compaction of {folder} was interrupted.",
            "Start Kafka once more and stop it cleanly, then import.",
        )
    if not files.bases:
        raise ImportRefused(f"{folder} has no segments.", "Restore it from a copy.")
    for base_offset in files.bases:
        _check_message_format(disk, files.path(base_offset, names.LOG))
    next_offset = _next_offset(disk, files)
    if standing.recovery_point != next_offset:
        raise ImportRefused(
            f"{folder} ends at offset {next_offset}, and Kafka's {names.RECOVERY_POINTS} says"
            f" {standing.recovery_point}: they are not of one clean stop.",
            "Start Kafka once more and stop it cleanly, then import; or restore the whole folder from one copy.",
        )
    kept = tuple(
        SourceFile(name, disk.size(f"{folder}/{name}"), _is_closed(name, files.bases[-1]))
        for name in files.names
        if name.endswith(_KEPT) or name in (names.LEADER_EPOCHS, names.PARTITION_METADATA)
    )
    return SourceLog(
        partition,
        folder,
        kept,
        max(standing.log_start or 0, files.bases[0]),
        next_offset,
        standing,
        _oldest_ms(disk, files),
        _has_open_transactions(disk, files),
    )


def _is_closed(name: str, last_base_offset: int) -> bool:
    base_offset = names.offset_of(name, names.LOG)
    return base_offset is not None and base_offset < last_base_offset


def _check_topic_id(disk: Disk, folder: str, topic_id: UUID) -> None:
    path = f"{folder}/{names.PARTITION_METADATA}"
    try:
        found = read_partition_metadata(disk.read(path))
    except (FileNotFoundError, BadCheckpoint) as damage:
        raise ImportRefused(
            f"{path} does not say to which topic the records belong: {damage}.", "Restore it from a copy."
        ) from damage
    if found != topic_id:
        raise ImportRefused(
            f"{folder} is of another topic of this name (id {names.id_text(found)};"
            f" the metadata has {names.id_text(topic_id)}).",
            "Start Kafka once more and stop it cleanly: it puts such folders aside.",
        )


def _check_message_format(disk: Disk, path: str) -> None:
    file = disk.open(path)
    try:
        head = file.pread(HEADER_BYTES, 0)
    finally:
        file.close()
    if len(head) > MAGIC_POSITION and head[MAGIC_POSITION] < MAGIC:
        raise ImportRefused(
            f"{path} has records in the message format v{head[MAGIC_POSITION]}, from before Kafka 0.11.",
            "Copy the topic into a new one with Kafka's own tools first; that writes the present format.",
        )


def _next_offset(disk: Disk, files: LogFiles) -> int:
    """From the batches behind the last index entry."""
    base_offset = next_offset = files.bases[-1]
    path = files.path(base_offset, names.LOG)
    size = disk.size(path)
    last = Index.of_file(disk, files.path(base_offset, names.OFFSET_INDEX), OFFSET_ENTRY).last(read_waiting)
    file = disk.open(path)
    try:
        for batch in headers(file, last[1] if last else 0, size, read_waiting):
            next_offset = batch.header.next_offset
    except DamagedSegment as damage:
        raise ImportRefused(
            f"{damage}.", f"`moldau log verify {files.folder}` says more. Restore it from a copy."
        ) from damage
    finally:
        file.close()
    return next_offset


def _oldest_ms(disk: Disk, files: LogFiles) -> int | None:
    path = files.path(files.bases[0], names.TIME_INDEX)
    last = Index.of_file(disk, path, TIME_ENTRY).last(read_waiting)
    return last[0] if last else None


def _has_open_transactions(disk: Disk, files: LogFiles) -> bool:
    if not files.snapshots:
        return False
    try:
        newest = read_snapshot(disk.read(files.path(files.snapshots[-1], names.SNAPSHOT)))
    except BadSnapshot:
        return False  # it is rebuilt when the log is opened
    return any(entry.current_txn_first_offset >= 0 for entry in newest)
