"""Files with secrets: written for this user alone, and whether others can read those that are there."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
PUBLIC_FILE = 0o644


def make_private_folder(folder: str) -> None:
    """With its parents; one that exists keeps its permissions."""
    os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
    try:
        os.mkdir(folder, PRIVATE_FOLDER)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def write_file(path: str, data: bytes, mode: int = PRIVATE_FILE, *, replace: bool = False) -> None:
    """A whole file or none, with these permissions from its first byte on. FileExistsError where there is one that is
    not to be replaced.
    """
    written = f"{path}.{secrets.token_hex(4)}.tmp" if replace else path
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise


def read_by_others(path: str) -> bool:
    """Whether every user of this machine can read a file, or list a folder: by its permissions, and those of the
    folders above it. A group is not everyone: who shares it was chosen.
    """
    if sys.platform == "win32" or not os.stat(path).st_mode & stat.S_IROTH:
        return False
    return all(os.stat(above).st_mode & stat.S_IXOTH for above in _above(path))


def _above(path: str) -> Iterator[str]:
    folder = os.path.dirname(os.path.realpath(path))
    while True:
        yield folder
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)
