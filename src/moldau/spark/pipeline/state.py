"""The note that a run leaves in its storage for `status` and `stop`, and the lock by which they see whether it lives.

The run holds an exclusive `flock` on `lock` until its process ends, however it ends. So a note without a held lock
is what a run left that is no more, and two runs of one project cannot write to the same tables.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.tables import OWN_FOLDER

NOTE = "run.json"
LOCK = "lock"
OWN_FOLDER_AT_PROJECT = ".moldau"


class AlreadyRunning(Exception):
    """Another process runs this project; its note, where it has written one."""

    def __init__(self, note: Mapping[str, Any] | None) -> None:
        super().__init__("the project is being run")
        self.note = note


class RunNote:
    def __init__(self, project: Project) -> None:
        local = project.local_storage
        self.folder = project.folder / OWN_FOLDER_AT_PROJECT if local is None else local / OWN_FOLDER

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """The lock, for the length of a run."""
        import fcntl

        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyRunning(self.read()) from None
            yield
        finally:
            os.close(descriptor)

    def is_held(self) -> bool:
        import fcntl

        try:
            descriptor = os.open(self.folder / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)

    def write(self, document: Mapping[str, Any]) -> None:
        """In one step: a reader sees the old note or the new one."""
        whole = {"pid": os.getpid(), "host": socket.gethostname(), **document}
        draft = self.folder / f"{NOTE}.new"
        draft.write_text(json.dumps(whole), encoding="utf-8")
        os.replace(draft, self.folder / NOTE)

    def read(self) -> dict[str, Any] | None:
        try:
            note = json.loads((self.folder / NOTE).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        return note if isinstance(note, dict) else None

    @property
    def path(self) -> Path:
        return self.folder / NOTE
