"""Files that are no part of a log any more: renamed at once, removed after `file.delete.delay.ms` or by a start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from moldau.log import names
from moldau.log.flush import Flusher
from moldau.log.retention import remove_files
from moldau.runtime.ports import Runtime


class Owner(Protocol):
    """The log whose files they were. Its folder's name changes when it is deleted."""

    folder: str


class Removal:
    __slots__ = ("_flusher", "_log", "_name", "_runtime")

    def __init__(self, log: Owner, flusher: Flusher, runtime: Runtime, name: str) -> None:
        self._log = log
        self._flusher = flusher
        self._runtime = runtime
        self._name = name

    def drop_snapshot(self, offset: int) -> list[str]:
        """A snapshot is no longer wanted; the names under which its file waits, if there is one."""
        name = names.file_name(offset, names.SNAPSHOT)
        self._flusher.drop_file(name)
        try:
            path = f"{self._log.folder}/{name}"
            self._runtime.disk.rename(path, path + names.DELETED)
        except FileNotFoundError:
            return []
        return [name + names.DELETED]

    def later(self, gone: Sequence[str], delay_ms: int) -> None:
        """Remove files, by their names, when whoever reads them has had time to finish."""
        tasks = self._runtime.tasks

        async def remove() -> None:
            await tasks.sleep(delay_ms / 1000)
            await tasks.in_thread(remove_files, self._runtime.disk, self._log.folder, gone)

        if gone:
            tasks.spawn(remove(), name=f"remove segments of {self._name}")
