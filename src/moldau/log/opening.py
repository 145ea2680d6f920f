"""The start of a broker's data folders: whose they are, what they hold, and every log in them opened.

Folders are looked at and opened side by side, each with `num.recovery.threads.per.data.dir` threads at once. A
folder that cannot be used is left out, with all that is in it, as long as there is another one; a log that cannot
be read is offline, and the others of its folder are not.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.config.topic import TopicConfig
from moldau.log import names
from moldau.log.disk_errors import reason
from moldau.log.doubles import leave_out_doubles
from moldau.log.folder import Checkpoints, DataFolder, DataFolderError, FolderOffline
from moldau.log.host import Owner
from moldau.log.loaded import LoadedLog
from moldau.log.mended import Mended, summary
from moldau.log.recovery import Opening, load_log, unopened_log
from moldau.runtime.ports import Disk, Runtime

logger = logging.getLogger(__name__)

LOGS_PER_JOB = 32
"""Logs that one thread opens before it reports: few enough to spread, enough to make the hand-over cheap."""


@dataclass(slots=True)
class Contents:
    """What a folder holds."""

    clean: bool
    checkpoints: Checkpoints
    logs: list[tuple[TopicPartition, str]]
    futures: list[tuple[TopicPartition, str]] = field(default_factory=list)
    """Logs on their way into the folder."""


class Opened(NamedTuple):
    partition: TopicPartition
    opening: Opening
    loaded: LoadedLog
    error: OSError | None
    """Why it cannot be used."""


# Whose they are


async def acquire_folders(runtime: Runtime, folders: Sequence[DataFolder], owner: Owner) -> None:
    """Lock all folders. Those that cannot be used have a `failure` afterwards; DataFolderError where the broker
    must not start, or none is left."""
    in_thread = runtime.tasks.in_thread
    refusals: list[str] = []
    has_identity = {
        folder.path: await in_thread(runtime.disk.exists, f"{folder.path}/{names.META_PROPERTIES}")
        for folder in folders
    }
    # Folders may have changed places: one that is empty is missed only if its id is in no other one.
    for folder in sorted(folders, key=lambda folder: not has_identity[folder.path]):
        missed = owner.known_folders.get(folder.path)
        if missed in [other.directory_id for other in folders]:
            missed = None
        try:
            await in_thread(folder.acquire, owner.cluster_id, owner.node_id, owner.process_id, missed)
            if folder.directory_id is None:
                await in_thread(folder.adopt, owner.cluster_id, owner.node_id, new_id(runtime))
        except FolderOffline as refusal:
            folder.failure = refusal.error
            refusals.append(str(refusal))
    _need_one(folders, refusals)
    for text in refusals:
        logger.error("%s Its partitions are offline", text[:1].upper() + text[1:])


def _need_one(folders: Sequence[DataFolder], refusals: list[str]) -> None:
    if all(folder.failure is not None for folder in folders):
        if len(refusals) == 1:
            raise DataFolderError(refusals[0])
        raise DataFolderError(f"none of the data folders can be used. {' '.join(refusals)}")


def new_id(runtime: Runtime) -> uuid.UUID:
    """A random id whose text does not begin with a dash: it may be an argument of a command."""
    while True:
        value = runtime.random.uuid()
        if not names.id_text(value).startswith("-"):
            return value


# What they hold


async def survey(
    runtime: Runtime,
    folders: Sequence[DataFolder],
    topic_id_of: Callable[[str], uuid.UUID | None],
    config_of: Callable[[str], TopicConfig],
) -> dict[DataFolder, Contents]:
    """What the folders hold that can be used. One that cannot be read has a `failure` afterwards."""
    found: dict[DataFolder, Contents] = {}
    refusals: list[str] = []
    for folder in folders:
        if folder.failure is None:
            try:
                found[folder] = await runtime.tasks.in_thread(_contents, folder)
            except OSError as error:
                folder.failure = error
                refusals.append(f"data folder {folder.path} cannot be used: {reason(error)}.")
    _need_one(folders, refusals)
    for text in refusals:
        logger.error("%s Its partitions are offline", text[:1].upper() + text[1:])

    def load(contents: Contents, partition: TopicPartition, path: str) -> LoadedLog:
        return load_log(
            runtime.disk, _opening(runtime, partition, path, contents, config_of(partition.topic))
        )

    await runtime.tasks.in_thread(leave_out_doubles, runtime.disk, found, topic_id_of, load)
    return found


def _contents(folder: DataFolder) -> Contents:
    clean = folder.take_clean_mark()
    checkpoints = folder.read_checkpoints()
    return Contents(clean, checkpoints, folder.partitions(), folder.futures())


# Their logs


async def open_logs(
    runtime: Runtime,
    folder: DataFolder,
    contents: Contents,
    config_of: Callable[[str], TopicConfig],
    threads: int,
    keep: Callable[[Opened, DataFolder], object],
) -> None:
    """Open every log of a folder, in so many threads at once."""
    logs, clean = contents.logs, contents.clean
    if not clean and logs:
        logger.info("%s was not closed cleanly: %d logs are checked", folder.path, len(logs))
    # To check a log may take long, so each is a job of its own; to open one does not.
    size = min(LOGS_PER_JOB, -(-len(logs) // threads)) if clean else 1
    limit = asyncio.Semaphore(threads)
    mended: list[list[Mended]] = []

    async def open_some(some: list[tuple[TopicPartition, str]]) -> None:
        openings = [(p, _opening(runtime, p, path, contents, config_of(p.topic))) for p, path in some]
        async with limit:
            opened = await runtime.tasks.in_thread(_load, runtime.disk, openings)
        for one in opened:
            mended.append(one.opening.mended)
            keep(one, folder)

    jobs = [logs[i : i + size] for i in range(0, len(logs), size or 1)]
    for task in [runtime.tasks.spawn(open_some(some), name="open logs") for some in jobs]:
        await task
    if any(mended):
        logger.warning("%s: %d logs are checked after the crash: %s", folder.path, len(logs), summary(mended))


def _opening(
    runtime: Runtime, partition: TopicPartition, path: str, contents: Contents, config: TopicConfig
) -> Opening:
    points, starts = contents.checkpoints.recovery_points, contents.checkpoints.log_starts
    return Opening(
        folder=path,
        clean=contents.clean,
        recovery_point=None if points is None else points.get(partition),
        has_checkpoint=points is not None,
        log_start_offset=None if starts is None else starts.get(partition, 0),
        index_interval_bytes=config.index_interval_bytes,
        now_ms=runtime.clock.wall_ms(),
    )


def _load(disk: Disk, openings: Sequence[tuple[TopicPartition, Opening]]) -> list[Opened]:
    opened = []
    for partition, opening in openings:
        try:
            opened.append(Opened(partition, opening, load_log(disk, opening), None))
        except OSError as error:
            # What is known of it from before goes into the next checkpoints as it is.
            start = opening.log_start_offset or 0
            unopened = unopened_log(disk, opening.folder, start, max(start, opening.recovery_point or 0))
            opened.append(Opened(partition, opening, unopened, error))
    return opened
