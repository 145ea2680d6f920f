"""What is in a data folder, and what is wrong with it. Nothing is changed, and nothing is locked.

The folder may be one of `moldau up` (with `broker-1/` in it) or of one broker. The checks read small files and names;
with `deep` also every batch of every log, with its checksum.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from moldau.cli.data_folder import STORE_FILE, is_broker_folder, is_kafkas, read_pid, visible_names
from moldau.cli.findings import Finding, ok, problem, remark, warning
from moldau.cli.output import count_of, human_bytes
from moldau.log import names
from moldau.log.checkpoints import (
    BadCheckpoint,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from moldau.log.scan import DamagedSegment, checked_batches
from moldau.runtime.ports import File

REBUILT = "Nothing to do: it is rebuilt at the next start."
SHOWN_MAX = 5  # findings of one kind in full; the rest are counted


@dataclass
class Contents:
    """What the logs of a broker add up to."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    batches: int = 0
    damage: list[Finding] = field(default_factory=list)


def examine_data(data: str, *, deep: bool) -> Iterator[Finding]:
    if not os.path.isdir(data):
        yield problem("folder", f"there is no folder {data}", "Name another with --data.")
        return
    brokers = [os.path.join(data, name) for name in visible_names(data) if is_broker_folder(data, name)]
    if not brokers and os.path.exists(os.path.join(data, names.META_PROPERTIES)):
        brokers = [data]
    if not brokers:
        yield problem(
            "folder", f"{data} holds no data of Moldau", "`moldau up --data DIR` makes a data folder."
        )
        return
    yield ok("folder", f"{os.path.abspath(data)}, {count_of(len(brokers), 'broker')}")
    if not os.access(data, os.W_OK):
        yield problem("folder", "this user may not write there", "Change its owner or permissions.")
    yield from examine_store(os.path.join(data, STORE_FILE))
    for broker in brokers:
        yield from examine_broker(broker, deep=deep)


def examine_store(path: str) -> Iterator[Finding]:
    if not os.path.exists(path):
        if is_kafkas(visible_names(os.path.dirname(path))):
            yield remark("store", "none: Apache Kafka wrote this folder", "`moldau import` takes it over.")
        else:
            yield remark("store", f"no {STORE_FILE} here", "It is elsewhere where --store was given.")
        return
    try:
        verdict, entries = read_store(path)
    except sqlite3.Error as error:
        yield problem(
            "store", f"{path} cannot be read: {error}", "Restore it from a copy; topics are named there."
        )
        return
    if verdict != "ok":
        yield problem(
            "store", f"{path} is damaged: {verdict}", "Restore it from a copy; topics are named there."
        )
    else:
        yield ok("store", f"{STORE_FILE}, {count_of(entries, 'entry', 'entries')}")


def read_store(path: str) -> tuple[str, int]:
    """SQLite's verdict on its file, and how many entries there are."""
    # A reader of a store in WAL mode writes beside it. Where it may not, the file is read as it lies there.
    mode = "mode=ro" if os.access(os.path.dirname(path) or ".", os.W_OK) else "immutable=1"
    connection = sqlite3.connect(f"file:{quote(path)}?{mode}", uri=True)
    try:
        verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        entries = connection.execute("SELECT count(*) FROM entries").fetchone()[0]
    finally:
        connection.close()
    return verdict, entries


def examine_broker(folder: str, *, deep: bool) -> Iterator[Finding]:
    subject = os.path.basename(folder) or folder
    pid = read_pid(folder)
    yield from examine_identity(folder, subject)
    if pid is not None:
        yield ok(subject, f"is running as process {pid}")
    elif os.path.exists(os.path.join(folder, names.CLEAN_SHUTDOWN)):
        yield ok(subject, "was stopped cleanly")
    else:
        advice = "Nothing to do: the next start checks the ends of the logs."
        yield remark(subject, "was not stopped cleanly, or never started", advice)
    yield from examine_checkpoints(folder)
    contents = Contents()
    for partition in partition_folders(folder):
        examine_partition(partition, contents, deep=deep and pid is None)
    size = human_bytes(contents.bytes)
    yield ok(
        subject,
        f"{count_of(contents.partitions, 'partition')}, {count_of(contents.segments, 'segment')}, {size}",
    )
    yield from contents.damage[:SHOWN_MAX]
    if len(contents.damage) > SHOWN_MAX:
        yield problem("logs", f"and {len(contents.damage) - SHOWN_MAX} more")
    if deep and pid is not None:
        yield remark("logs", "not read while the broker is running")
    elif deep and not contents.damage:
        yield ok("logs", f"{count_of(contents.batches, 'batch', 'batches')} checked, all sound")


def examine_identity(folder: str, subject: str) -> Iterator[Finding]:
    path = os.path.join(folder, names.META_PROPERTIES)
    try:
        properties = read_properties(read(path))
    except FileNotFoundError:
        yield remark(subject, f"no {names.META_PROPERTIES} yet: it never finished a start")
        return
    except OSError as error:
        yield problem(subject, f"{path}: {error.strerror}")
        return
    if not {"cluster.id", "node.id"} <= properties.keys():
        yield problem(subject, f"{path} is damaged", "Restore it from a copy, or start with a new folder.")
    else:
        yield ok(subject, f"broker {properties['node.id']} of cluster {properties['cluster.id']}")


def examine_checkpoints(folder: str) -> Iterator[Finding]:
    for name in (names.RECOVERY_POINTS, names.LOG_STARTS, names.HIGH_WATERMARKS):
        try:
            read_offsets(read(os.path.join(folder, name)))
        except FileNotFoundError:
            continue
        except (BadCheckpoint, OSError) as error:
            yield warning("checkpoint", f"{name} cannot be read: {error}", REBUILT)


def partition_folders(folder: str) -> Iterator[str]:
    for name in visible_names(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path) and names.log_of(name) is not None:
            yield path


def examine_partition(folder: str, contents: Contents, *, deep: bool) -> None:
    contents.partitions += 1
    title = os.path.basename(folder)
    try:
        read_partition_metadata(read(os.path.join(folder, names.PARTITION_METADATA)))
        read_epochs(read(os.path.join(folder, names.LEADER_EPOCHS)))
    except FileNotFoundError:
        pass  # neither is written before it is needed
    except (BadCheckpoint, OSError) as error:
        contents.damage.append(problem(title, str(error), "Move the file away; it is made again."))
    segments = sorted(
        (offset, name)
        for name in visible_names(folder)
        if (offset := names.offset_of(name, names.LOG)) is not None
    )
    next_offset = 0
    for base_offset, name in segments:
        path = os.path.join(folder, name)
        contents.segments += 1
        contents.bytes += os.path.getsize(path)
        if deep:
            if base_offset < next_offset:
                contents.damage.append(problem(title, f"{name} begins before the segment before it ends"))
            next_offset = check_segment(path, base_offset, contents)


def check_segment(path: str, base_offset: int, contents: Contents) -> int:
    """Every batch of one segment; the offset after its last one."""
    next_offset = base_offset
    with ReadOnly(path) as file:
        try:
            for batch, _ in checked_batches(cast(File, file), 0, file.size(), ReadOnly.read):
                if batch.header.base_offset < next_offset:
                    raise DamagedSegment(cast(File, file), batch.position, "its offsets go back")
                next_offset = batch.header.next_offset
                contents.batches += 1
        except DamagedSegment as damage:
            advice = "After a crash the next start cuts the end off here; else restore it from a replica."
            contents.damage.append(problem(os.path.basename(os.path.dirname(path)), str(damage), advice))
    return next_offset


class ReadOnly:
    """As much of a port's File as reading batches needs, from a file that is opened for reading only."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115 (closed by the with block of the caller)

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    @staticmethod
    def read(file: Any, length: int, position: int) -> bytes:
        file._file.seek(position)
        data: bytes = file._file.read(length)
        return data

    def __enter__(self) -> ReadOnly:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
