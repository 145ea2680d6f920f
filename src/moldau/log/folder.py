"""One data folder (an entry of `log.dirs`): its lock, its identity, its checkpoints and its logs' folders.

Everything here blocks on the disk and runs in threads, but for `create`. The folder is one broker's: it is
locked while in use, and `meta.properties` says to which cluster and node it belongs.
"""

from __future__ import annotations

import errno
import json
import logging
import os.path
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import (
    BadCheckpoint,
    read_offsets,
    read_properties,
    write_offsets,
    write_properties,
)
from moldau.runtime.ports import Disk, FileLock

logger = logging.getLogger(__name__)
META_VERSION = "1"


class DataFolderError(Exception):
    """The folder cannot be used. The text is for people: what is wrong, and what to do."""


class Checkpoints(NamedTuple):
    """Offsets per partition, as the folder's files hold them."""

    recovery_points: dict[TopicPartition, int]
    log_starts: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]


class DataFolder:
    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.directory_id: uuid.UUID | None = None
        self.failure: OSError | None = None
        self.log_count = 0
        self._names_changed = 0
        self._names_synced = 0
        self._disk = disk
        self._lock: FileLock | None = None
        self._written: dict[str, bytes] = {}

    def acquire(self, cluster_id: str, node_id: int, new_directory_id: uuid.UUID, process_id: int) -> None:
        """Make the folder where it is missing, lock it, and check whose it is. DataFolderError says why
        not."""
        try:
            self._make()
            self._take_lock(process_id)
        except BlockingIOError:
            raise DataFolderError(self._in_use()) from None
        except OSError as error:
            raise DataFolderError(
                f"data folder {self.path} cannot be used: {error.strerror or error}."
                " Choose another folder, or give the broker the right to write there."
            ) from error
        try:
            self._check_identity(cluster_id, node_id, new_directory_id)
        except BaseException:
            self.release()
            raise

    def _make(self) -> None:
        """Make the folder with its parents, their names durable: else a power cut takes all that is in
        it."""
        folders = [os.path.abspath(self.path)]
        while (parent := os.path.dirname(folders[-1])) != folders[-1] and not self._disk.exists(parent):
            folders.append(parent)
        self._disk.make_folder(self.path)
        for folder in folders:
            with suppress(PermissionError):  # a folder that exists may lie in one that only others can read
                self._disk.sync_folder(os.path.dirname(folder))

    def _take_lock(self, process_id: int) -> None:
        path = f"{self.path}/{names.LOCK}"
        self._lock = self._disk.lock(path)
        file = self._disk.open(path)
        text = str(process_id).encode()
        file.pwrite(text, 0)
        file.truncate(len(text))
        file.close()

    def _in_use(self) -> str:
        try:
            holder = self._disk.read(f"{self.path}/{names.LOCK}").decode().strip()
        except (OSError, UnicodeDecodeError):
            holder = ""
        by = f" (pid {holder})" if holder else ""
        return f"data folder {self.path} is in use by another broker{by}. Stop it, or choose another folder."

    def _check_identity(self, cluster_id: str, node_id: int, new_directory_id: uuid.UUID) -> None:
        path = f"{self.path}/{names.META_PROPERTIES}"
        if not self._disk.exists(path):
            properties = {
                "version": META_VERSION,
                "cluster.id": cluster_id,
                "node.id": str(node_id),
                "directory.id": names.id_text(new_directory_id),
            }
            self._disk.write_atomic(path, write_properties(properties))
            self.directory_id = new_directory_id
            return
        properties = read_properties(self._disk.read(path))
        if properties.get("version") != META_VERSION:
            raise DataFolderError(f"{path} has version {properties.get('version')}, not {META_VERSION}.")
        for key, ours in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            if properties.get(key) != ours:
                raise DataFolderError(
                    f"data folder {self.path} belongs to {key}={properties.get(key)}, this broker has {key}={ours}."
                    " Choose the folder of this broker, or an empty one."
                )
        try:
            self.directory_id = names.id_of(properties["directory.id"])
        except (KeyError, ValueError):
            raise DataFolderError(f"{path} has no valid directory.id.") from None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

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
        return Checkpoints(
            self._read_offsets(names.RECOVERY_POINTS),
            self._read_offsets(names.LOG_STARTS),
            self._read_offsets(names.HIGH_WATERMARKS),
        )

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self.path}/{name}"
        try:
            return read_offsets(self._disk.read(path))
        except FileNotFoundError:
            return {}
        except BadCheckpoint as damage:
            logger.warning("%s is rebuilt: %s", path, damage)
            return {}

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

    def partitions(self) -> list[tuple[TopicPartition, str]]:
        """The logs in the folder, with their folders. What a deletion left behind is removed."""
        found = []
        self._disk.sync_folder(self.path)  # a process that was killed may not have come to it
        for name in self._disk.list(self.path):
            path = f"{self.path}/{name}"
            if name.endswith(names.DELETED_FOLDER):
                self.remove_tree(path)
            elif (partition := names.partition_of(name)) is not None and self._disk.is_folder(path):
                found.append((partition, path))
        return found

    def remove_tree(self, path: str) -> None:
        try:
            self._disk.remove_tree(path)
        except OSError as error:
            if error.errno != errno.ENOENT:
                logger.warning("%s could not be removed: %s", path, error)
