"""One data folder (an entry of `log.dirs`): its lock, its identity, its checkpoints and its logs' folders.

Everything here blocks on the disk and runs in threads, but for `name_sync`. The folder is one broker's: it is
locked while in use, and `meta.properties` says to which cluster and node it belongs.

A folder works, is full, or has failed. A full one is read from and tried again (`try_room`); one that has failed
is left alone until the next start.
"""

from __future__ import annotations

import errno
import json
import logging
import os.path
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import (
    BadCheckpoint,
    read_offsets,
    read_properties,
    write_offsets,
    write_properties,
)
from moldau.log.disk_errors import is_no_room, reason
from moldau.log.reshaping import Reshaping
from moldau.runtime.ports import Disk, FileLock

logger = logging.getLogger(__name__)
META_VERSION = "1"
META_TOO_NEW = "Run the version of Moldau that ran here last, or a newer one."
RESTORE_META = "Restore it from a copy; or remove it, if the folder is this broker's: then it is made anew."
ROOM_TRIED_BYTES = 65_536
_TRIED = bytes(ROOM_TRIED_BYTES)


class DataFolderError(Exception):
    """The folder cannot be used. The text is for people: what is wrong, and what to do."""


class FolderOffline(DataFolderError):
    """The folder cannot be used for a reason of its own: others can, and the broker may do without it."""

    def __init__(self, text: str, error: OSError) -> None:
        super().__init__(text)
        self.error = error


class AllFoldersFailed(Exception):
    """A broker without a data folder has nothing to do."""


WITHOUT = {
    names.RECOVERY_POINTS: "more of the logs is checked than would have to be.",
    names.LOG_STARTS: "logs begin where their leader epochs or their first segments do.",
    names.HIGH_WATERMARKS: "it is taken from the logs.",
    names.CLEANER_OFFSETS: "all compacted logs are compacted again.",
}
"""What a start does without a checkpoint."""


class CheckpointedLog(Protocol):
    """What must be known of a log."""

    topic_partition: TopicPartition
    log_start_offset: int
    reshaping: Reshaping


class Checkpoints(NamedTuple):
    """Offsets per partition, as the folder's files hold them."""

    recovery_points: dict[TopicPartition, int] | None
    log_starts: dict[TopicPartition, int] | None
    """None where they are lost."""
    high_watermarks: dict[TopicPartition, int]
    cleaned_to: dict[TopicPartition, int]
    """Of the logs that were compacted."""

    def add(self, log: CheckpointedLog, recovery_point: int, high_watermark: int) -> None:
        partition = log.topic_partition
        if self.recovery_points is not None and self.log_starts is not None:
            self.recovery_points[partition] = recovery_point
            if log.log_start_offset > 0:  # also where a segment begins there: older ones may come back
                self.log_starts[partition] = log.log_start_offset
        self.high_watermarks[partition] = high_watermark
        if log.reshaping.cleaned_to is not None:
            self.cleaned_to[partition] = log.reshaping.cleaned_to

    @property
    def partitions(self) -> set[TopicPartition]:
        """All that are named."""
        return set().union(*(offsets or () for offsets in self))


class DataFolder:
    def __init__(self, disk: Disk, path: str) -> None:
        self.path = os.path.abspath(path)
        """As DescribeLogDirs tells it, however `log.dirs` spells it."""
        self.directory_id: uuid.UUID | None = None
        self.failure: OSError | None = None
        """Why nothing in it is served any more."""
        self.no_room: OSError | None = None
        """Why not everything can be written to it now."""
        self.wanted_bytes = 0
        """The largest write that was refused since: there is room when it fits."""
        self.wanted_s = 0.0
        """When a write was refused last, by the monotonic clock."""
        self.has_put_off = False
        """Small things wait for room: files of logs, and logs that were not created."""
        self.log_count = 0
        self.stale: set[TopicPartition] = set()
        """Deleted logs that its checkpoints name still: what they say must not count for new ones of that name."""
        self._names_changed = 0
        self._names_synced = 0
        self._disk = disk
        self._lock: FileLock | None = None
        self._begins_anew = False
        self._written: dict[str, bytes] = {}

    # Whose it is

    def acquire(self, cluster_id: str, node_id: int, process_id: int, known_id: uuid.UUID | None) -> None:
        """Make the folder where it is missing, lock it, and read whose it is. DataFolderError says why not.

        `known_id` is what its directory id was when this broker last had it: then it is not made again, since
        an empty folder in its place is most likely a disk that is not mounted.
        """
        try:
            if known_id is None or self._disk.exists(self.path):
                self._make()
                self._take_lock(process_id)
                self._read_identity(cluster_id, node_id, is_known=known_id is not None)
            if known_id is not None and self.directory_id is None and not self._begins_anew:
                self._restore_identity(cluster_id, node_id, known_id)
        except BlockingIOError:
            raise DataFolderError(_in_use(self._disk, self.path)) from None
        except OSError as error:
            self.release()
            raise FolderOffline(
                f"data folder {self.path} cannot be used: {reason(error)}."
                " Choose another folder, or give the broker the right to write there.",
                error,
            ) from error
        except BaseException:
            self.release()
            raise

    def adopt(self, cluster_id: str, node_id: int, directory_id: uuid.UUID) -> None:
        """Give a folder that is nobody's yet its identity, and recovery points: they are never absent unless lost."""
        properties = {
            "version": META_VERSION,
            "cluster.id": cluster_id,
            "node.id": str(node_id),
            "directory.id": names.id_text(directory_id),
        }
        try:
            if not self._has_partitions():
                self.write_offsets(names.RECOVERY_POINTS, {})
            self._disk.write_atomic(f"{self.path}/{names.META_PROPERTIES}", write_properties(properties))
        except OSError as error:
            self.release()
            raise FolderOffline(
                f"data folder {self.path} cannot be written: {reason(error)}. Choose another folder.", error
            ) from error
        self.directory_id = directory_id

    def _restore_identity(self, cluster_id: str, node_id: int, known_id: uuid.UUID) -> None:
        """A folder that this broker has had before, and that says no longer whose it is."""
        if not self._has_partitions():
            raise FolderOffline(
                f"data folder {self.path} has lost what it held. Is its disk mounted? If it is to begin anew, put"
                f" an empty file {names.META_PROPERTIES} into it.",
                FileNotFoundError(errno.ENOENT, "the folder has lost what it held", self.path),
            )
        logger.warning(
            "%s/%s is missing; it is made anew with the id that the folder had",
            self.path,
            names.META_PROPERTIES,
        )
        self.adopt(cluster_id, node_id, known_id)

    def _make(self) -> None:
        """Make the folder with its parents, their names durable: else a power cut takes all that is in
        it."""
        folders = [self.path]
        while (parent := os.path.dirname(folders[-1])) != folders[-1] and not self._disk.exists(parent):
            folders.append(parent)
        self._disk.make_folder(self.path)
        for folder in folders:
            with suppress(PermissionError):  # a folder that exists may lie in one that only others can read
                self._disk.sync_folder(os.path.dirname(folder))

    def _take_lock(self, process_id: int) -> None:
        path = f"{self.path}/{names.LOCK}"
        self._lock = self._disk.lock(path)
        text = str(process_id).encode()
        file = self._disk.open(path)
        try:
            file.pwrite(text, 0)
            file.truncate(len(text))
        except OSError as error:
            if not is_no_room(error):  # else it is only not told to people who holds it
                raise
        finally:
            file.close()

    def _read_identity(self, cluster_id: str, node_id: int, *, is_known: bool) -> None:
        """Whose the folder is; `directory_id` stays None where it is nobody's."""
        path = f"{self.path}/{names.META_PROPERTIES}"
        has_partitions = self._has_partitions()
        if not self._disk.exists(path):
            if has_partitions and not is_known:
                raise DataFolderError(
                    f"data folder {self.path} holds partitions, but no {names.META_PROPERTIES} to say whose they"
                    " are. Restore that file, or choose another folder."
                )
            return
        content = self._disk.read(path)
        if not content and not has_partitions:
            self._begins_anew = True  # somebody has put it there: the folder is to begin anew
            return
        properties = read_properties(content)
        if (found := properties.get("version")) != META_VERSION:
            what = "is damaged" if found is None else f"has version {found}, not {META_VERSION}"
            is_too_new = found is not None and found.isdecimal() and int(found) > int(META_VERSION)
            raise DataFolderError(f"{path} {what}. {META_TOO_NEW if is_too_new else RESTORE_META}")
        for key, ours in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            theirs = properties.get(key)
            if theirs is None:
                raise DataFolderError(f"{path} has no {key}. {RESTORE_META}")
            if theirs != ours:
                raise DataFolderError(
                    f"data folder {self.path} belongs to {key}={theirs}, this broker has {key}={ours}."
                    " Choose the folder of this broker, or an empty one."
                )
        try:
            self.directory_id = names.id_of(properties["directory.id"])
        except (KeyError, ValueError):
            raise DataFolderError(f"{path} has no valid directory.id. {RESTORE_META}") from None

    def _has_partitions(self) -> bool:
        return self._disk.exists(self.path) and any(
            names.partition_of(name) is not None for name in self._disk.list(self.path)
        )

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # What it holds

    def take_clean_mark(self) -> bool:
        """Whether the last stop was clean. The mark is removed: from now on a stop without it is a crash."""
        path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        if not self._disk.exists(path):
            return False
        self._disk.remove(path)
        self._disk.sync_folder(self.path)
        return True

    def leave_clean_mark(self, broker_epoch: int) -> None:
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        self._disk.write_atomic(f"{self.path}/{names.CLEAN_SHUTDOWN}", content.encode())

    def read_checkpoints(self) -> Checkpoints:
        recovery_points = self._read_offsets(names.RECOVERY_POINTS)
        are_due = recovery_points != {}  # else as `adopt` left them: the others were not written yet, either
        return Checkpoints(
            recovery_points,
            self._read_offsets(names.LOG_STARTS, is_due=are_due),
            self._read_offsets(names.HIGH_WATERMARKS, is_due=are_due) or {},
            self._read_offsets(names.CLEANER_OFFSETS, is_due=are_due) or {},
        )

    def write_checkpoints(self, checkpoints: Checkpoints) -> None:
        self.write_offsets(names.RECOVERY_POINTS, checkpoints.recovery_points or {})
        self.write_offsets(names.LOG_STARTS, checkpoints.log_starts or {})
        self.write_offsets(names.HIGH_WATERMARKS, checkpoints.high_watermarks)
        self.write_offsets(names.CLEANER_OFFSETS, checkpoints.cleaned_to)

    def _read_offsets(self, name: str, *, is_due: bool = True) -> dict[TopicPartition, int] | None:
        """None where the file cannot be used: told, unless it is missing before it was due."""
        path = f"{self.path}/{name}"
        try:
            return read_offsets(self._disk.read(path))
        except FileNotFoundError:
            if not is_due:
                return None
            damage = "is missing"
        except BadCheckpoint as found:
            damage = f"is damaged: {found}"
        except OSError as error:
            damage = f"cannot be read: {reason(error)}"
        if self._has_partitions():
            logger.warning("%s %s. It is made anew; %s", path, damage, WITHOUT[name])
        return None

    def write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint, unless it says the same already."""
        content = write_offsets(offsets)
        if self._written.get(name) != content:
            self._disk.write_atomic(f"{self.path}/{name}", content)
            self._written[name] = content

    def name_sync(self) -> Callable[[], None]:
        """A name in the folder has changed: the work that makes it durable, done once for all until then."""
        self._names_changed += 1
        mine = self._names_changed

        def sync() -> None:
            changed = self._names_changed
            if self._names_synced < mine:
                self._disk.sync_folder(self.path)
                self._names_synced = max(self._names_synced, changed)

        return sync

    def try_room(self, tried_bytes: int) -> None:
        """Whether there is room for so many bytes: OSError where not.

        A file is made and filled, since free bytes say nothing of quotas, of blocks that are kept for some users, and
        of how many files there may be. Where they say that it cannot fit, what is left is not taken from others, not
        even for a moment. Where they are 0, there is nothing to take, and a little may fit in kept blocks.
        """
        path = f"{self.path}/room{names.TEMPORARY}"
        free_bytes = self._disk.free_bytes(self.path)
        if free_bytes < tried_bytes and (free_bytes or tried_bytes > ROOM_TRIED_BYTES):
            raise OSError(errno.ENOSPC, "No space left on device", path)
        file = self._disk.open(path, create=True)
        try:
            for position in range(0, tried_bytes, ROOM_TRIED_BYTES):
                piece = _TRIED[: tried_bytes - position]
                if file.pwrite(piece, position) != len(piece):
                    raise OSError(errno.ENOSPC, "No space left on device", path)
        finally:
            file.close()
            self._disk.remove(path)

    def partitions(self) -> list[tuple[TopicPartition, str]]:
        """The logs in the folder, with their folders. What a deletion or a crash left behind is removed."""
        found = []
        self._disk.sync_folder(self.path)  # a process that was killed may not have come to it
        for name in self._disk.list(self.path):
            path = f"{self.path}/{name}"
            if name.endswith(names.DELETED_FOLDER):
                self.remove_tree(path)
            elif name.endswith(names.TEMPORARY) and not self._disk.is_folder(path):
                self._disk.remove(path)
            elif (partition := names.partition_of(name)) is not None and self._disk.is_folder(path):
                found.append((partition, path))
        return found

    def futures(self) -> list[tuple[TopicPartition, str]]:
        """The logs that are on their way into the folder."""
        found = ((names.future_of(name), f"{self.path}/{name}") for name in self._disk.list(self.path))
        return [(partition, path) for partition, path in found if partition is not None]

    def remove_tree(self, path: str) -> None:
        try:
            self._disk.remove_tree(path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                logger.warning("%s could not be removed: %s", path, error)


def check_not_in_use(disk: Disk, paths: Sequence[str]) -> None:
    """Whether another broker has one of these folders now, before anything is begun; DataFolderError where it has."""
    for path in paths:
        try:
            if disk.exists(f"{path}/{names.LOCK}"):
                disk.lock(f"{path}/{names.LOCK}").release()
        except BlockingIOError:
            raise DataFolderError(_in_use(disk, path)) from None
        except OSError:
            continue  # opening it will say why


def _in_use(disk: Disk, path: str) -> str:
    try:
        holder = disk.read(f"{path}/{names.LOCK}").decode().strip()
    except (OSError, UnicodeDecodeError):
        holder = ""
    by = f" (pid {holder})" if holder else ""
    return f"data folder {path} is in use by another broker{by}. Stop it, or choose another folder."
