"""The broker's data folders: what the cluster store remembers of them, and what health and metrics say of them.

The store keeps the directory id of each folder by its path. So a start can tell a new folder from one whose disk
is not mounted: partitions that lay there are offline, and are not begun anew elsewhere.
"""

from __future__ import annotations

import json
import logging
import os.path
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from moldau.broker.metrics.text import Sample, Samples, labelled
from moldau.log.disk_errors import reason
from moldau.log.folder import DataFolder
from moldau.store.port import Conflict, Create, Put, Store

log = logging.getLogger(__name__)

STATES = ("ok", "full", "failed")


class KnownFolders:
    """Directory ids by path, as the store has them."""

    def __init__(self, store: Store, node_id: int) -> None:
        self._store = store
        self._path = f"/brokers/{node_id}/log_dirs"
        self.ids: dict[str, UUID] = {}
        self._version: int | None = None

    async def load(self) -> None:
        entry = await self._store.get(self._path)
        if entry is not None:
            self._version = entry.version
            known = json.loads(entry.value)
            self.ids = {os.path.abspath(path): UUID(text) for path, text in known.items()}

    async def save(self, folders: Sequence[DataFolder]) -> None:
        """Remember the folders of now; those that are offline keep the id that they had."""
        ids = {folder.path: folder.directory_id or self.ids.get(folder.path) for folder in folders}
        for path in self.ids.keys() - ids.keys():
            if self.ids[path] not in ids.values():
                log.warning("%s is no longer one of log.dirs: what lies there is not served", path)
        known = {path: directory_id for path, directory_id in ids.items() if directory_id is not None}
        if known == self.ids:
            return
        value = json.dumps({path: str(directory_id) for path, directory_id in known.items()}).encode()
        change = Create(self._path, value) if self._version is None else Put(self._path, value, self._version)
        try:
            await self._store.multi([change])
        except (OSError, Conflict) as error:  # a start that finds a folder missing will not know that it is
            log.warning("the data folders could not be noted in the cluster store: %s", error)


def state_of(folder: DataFolder) -> str:
    if folder.failure is not None:
        return "failed"
    return "full" if folder.no_room is not None else "ok"


def health(folders: Sequence[DataFolder]) -> list[dict[str, Any]]:
    told = []
    for folder in folders:
        error = folder.failure or folder.no_room
        told.append(
            {
                "path": folder.path,
                "state": state_of(folder),
                "reason": None if error is None else reason(error),
            }
        )
    return told


def folder_samples(folders: Sequence[DataFolder]) -> Samples:
    values = tuple(
        (labelled(folder=folder.path, state=state), int(state_of(folder) == state))
        for folder in folders
        for state in STATES
    )
    yield Sample("moldau_data_folder_state", values)
