"""Verifying a data folder: its identity, its checkpoints, what does not belong there, and every log in it.

Beside a running broker, files change between two looks at them. So damage found there is looked for again,
and told only if it is still there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import BadCheckpoint, read_offsets, read_partition_metadata, read_properties
from moldau.log.folder import META_VERSION
from moldau.log.inspect.files import (
    METADATA_LOG,
    OFFSET_CHECKPOINTS,
    FolderState,
    Standing,
    futures_in,
    partitions_in,
)
from moldau.log.inspect.findings import Finding, Kind, Seen, Severity, unreadable
from moldau.log.inspect.partition import verify_partition
from moldau.runtime.ports import Disk

KNOWN_FILES = frozenset(
    {
        *OFFSET_CHECKPOINTS,
        names.META_PROPERTIES,
        names.CLEAN_SHUTDOWN,
        names.LOCK,
        "pid",
        "bootstrap.checkpoint",  # Kafka's
        "cluster.sqlite",
        "cluster.sqlite-shm",
        "cluster.sqlite-wal",
        "lost+found",
        ".DS_Store",
    }
)
WRONG_TOPIC_ID = (
    "The next start would take the log for that of another topic, and set it aside. Write the right id into the"
    " file before."
)
LOST_WITH = {
    names.RECOVERY_POINTS: "the next start checks all logs, which takes longer",
    names.LOG_STARTS: "deleted records at the beginning of logs may come back",
    names.HIGH_WATERMARKS: "the next start takes it from the logs",
}


def verify_folder(
    disk: Disk,
    path: str,
    seen: Seen,
    *,
    records: bool = False,
    topic_ids: Mapping[str, uuid.UUID] | None = None,
) -> Iterator[Finding]:
    """`topic_ids`: the topics of the cluster, where they are known."""
    state = FolderState.of(disk, path)
    partitions = partitions_in(disk, path)
    if state.running:
        yield running_note(path)
    yield from _identity(disk, path)
    futures = futures_in(disk, path)
    yield from _checkpoints(disk, path, {partition for partition, _ in (*partitions, *futures)}, state)
    yield from _strangers(disk, path, state)
    yield from _topic_ids(disk, partitions, topic_ids)
    for partition, folder in partitions:
        if partition == METADATA_LOG:
            what = "is Kafka's own log of the cluster's metadata"
            yield Finding(Severity.NOTE, Kind.SKIPPED, folder, None, what, "It is not looked into.")
        else:
            yield from verify_log(disk, folder, state.standing(partition), seen, records=records)
    for partition, folder in futures:
        advice = "The broker goes on with it; where its log is in no folder, it leaves it alone."
        what = f"is a copy of {partition} on its way into this folder"
        yield Finding(Severity.NOTE, Kind.LEFTOVER, folder, None, what, advice)
        yield from verify_log(disk, folder, state.standing(partition), seen, records=records)


def running_note(path: str) -> Finding:
    advice = "What it is writing at the moment is not taken for damage."
    return Finding(Severity.NOTE, Kind.RUNNING, path, None, "is in use by a running broker", advice)


def verify_log(
    disk: Disk, folder: str, standing: Standing, seen: Seen, *, records: bool = False
) -> Iterator[Finding]:
    """One log of a data folder: twice, where a running broker may have changed it under the first look."""
    try:
        found = verify_partition(disk, folder, standing, seen, records=records)
        if standing.running:
            first = list(found)
            if any(finding.severity is Severity.DAMAGE for finding in first):
                again = set(verify_partition(disk, folder, standing, Seen(), records=records))
                first = [finding for finding in first if finding in again]
            found = iter(first)
        yield from found
    except OSError as error:
        if disk.exists(folder):  # else the topic was deleted meanwhile
            yield unreadable(folder, error)


def _identity(disk: Disk, path: str) -> Iterator[Finding]:
    file = f"{path}/{names.META_PROPERTIES}"
    try:
        properties = read_properties(disk.read(file))
    except FileNotFoundError:
        advice = "The broker whose folder it is makes it anew; another one refuses a folder with partitions."
        yield Finding(Severity.REPAIR, Kind.IDENTITY, file, None, "is missing", advice)
        return
    except OSError as error:
        yield unreadable(file, error)
        return
    what = ""
    for key in ("version", "cluster.id", "node.id", "directory.id"):
        if not properties.get(key):
            what = what or f"has no {key}"
    if not what and properties["version"] != META_VERSION:
        what = f"has version {properties['version']!r}, not {META_VERSION}"
    if not what and not properties["node.id"].isdecimal():
        what = f"has node.id {properties['node.id']!r}, which is no number"
    if not what and not _is_id(properties["directory.id"]):
        what = f"has directory.id {properties['directory.id']!r}, which is no id"
    if what:
        advice = "No broker starts on this folder. Write it again, with the ids of the cluster."
        yield Finding(Severity.DAMAGE, Kind.IDENTITY, file, None, what, advice)


def _is_id(text: str) -> bool:
    try:
        names.id_of(text)
    except ValueError:
        return False
    return True


def _checkpoints(
    disk: Disk, path: str, present: set[TopicPartition], state: FolderState
) -> Iterator[Finding]:
    for name in OFFSET_CHECKPOINTS:
        file = f"{path}/{name}"
        try:
            offsets = read_offsets(disk.read(file))
        except FileNotFoundError:
            if name == names.RECOVERY_POINTS and state.clean and present:
                advice = f"{LOST_WITH[name][0].upper()}{LOST_WITH[name][1:]}."
                yield Finding(Severity.REPAIR, Kind.CHECKPOINT, file, None, "is missing", advice)
            continue
        except OSError as error:
            yield unreadable(file, error)
            continue
        except BadCheckpoint as damage:
            advice = f"It is made anew: {LOST_WITH.get(name, 'compaction begins anew')}."
            yield Finding(Severity.REPAIR, Kind.CHECKPOINT, file, None, f"is malformed: {damage}", advice)
            continue
        for partition, offset in offsets.items():
            if offset < 0:
                what = f"has offset {offset} for {partition}"
                advice = "No offset is negative: take the line out, and put the number of lines right."
                yield Finding(Severity.DAMAGE, Kind.CHECKPOINT, file, None, what, advice)
        absent = [partition for partition in offsets if partition not in present]
        if absent and not state.running:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            what = f"speaks of {absent[0]}{more}, which is not in this folder"
            advice = "A deleted or moved partition leaves that until the next checkpoint."
            yield Finding(Severity.NOTE, Kind.CHECKPOINT, file, None, what, advice)


def _strangers(disk: Disk, path: str, state: FolderState) -> Iterator[Finding]:
    foreign = []
    for name in disk.list(path):
        file = f"{path}/{name}"
        if name in KNOWN_FILES:
            continue
        if name.endswith((names.DELETED_FOLDER, names.TEMPORARY)):
            if not state.running:
                advice = "The next start removes it."
                yield Finding(Severity.REPAIR, Kind.LEFTOVER, file, None, "waits for its removal", advice)
        elif name.endswith(names.STRAY_FOLDER):
            advice = "It was kept when its partition was lost or another's; the broker leaves it alone."
            yield Finding(Severity.NOTE, Kind.LEFTOVER, file, None, "is no partition in use", advice)
        elif names.log_of(name) is None or not disk.is_folder(file):
            foreign.append(file)
    if foreign:
        more = f", nor do {len(foreign) - 1} more" if len(foreign) > 1 else ""
        what = f"does not belong into a data folder{more}"
        yield Finding(Severity.NOTE, Kind.FOREIGN, foreign[0], None, what, "Left alone.")


def _topic_ids(
    disk: Disk, partitions: list[tuple[TopicPartition, str]], known: Mapping[str, uuid.UUID] | None
) -> Iterator[Finding]:
    """Partitions of one topic have one id: the cluster's, where it is known. No two topics have the same."""
    of_topic: dict[str, dict[uuid.UUID, list[str]]] = {}
    for partition, folder in partitions:
        path = f"{folder}/{names.PARTITION_METADATA}"
        if known is not None and partition.topic not in known and partition != METADATA_LOG:
            what = f"belongs to topic {partition.topic}, which the cluster does not have"
            yield Finding(
                Severity.NOTE, Kind.FOREIGN, folder, None, what, "It takes room, and is not served."
            )
        try:
            topic_id = read_partition_metadata(disk.read(path))
        except (OSError, BadCheckpoint):
            continue  # told where the partition is looked at
        of_topic.setdefault(partition.topic, {}).setdefault(topic_id, []).append(path)
    owners: dict[uuid.UUID, str] = {}
    for topic, ids in of_topic.items():
        right = (known or {}).get(topic) or max(ids, key=lambda topic_id: len(ids[topic_id]))
        for topic_id, paths in ids.items():
            other = owners.setdefault(topic_id, topic)
            if topic_id == right and other == topic:
                continue
            whose = f"that of {other}" if other != topic else f"not {names.id_text(right)}, that of {topic}"
            for path in paths:
                what = f"has topic id {names.id_text(topic_id)}, {whose}"
                yield Finding(Severity.DAMAGE, Kind.METADATA, path, None, what, WRONG_TOPIC_ID)
