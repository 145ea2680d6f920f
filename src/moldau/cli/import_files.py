"""Bringing files over on a real disk: as a second name of the same file, as a clone that shares its blocks until one
of both changes (btrfs, XFS, APFS on newer systems), or as a copy.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from moldau.importer.carry_out import How

if sys.platform == "linux":
    import fcntl

_FICLONE = 0x40049409
"""The ioctl of Linux that makes one file a clone of another."""
CHUNK_BYTES = 8 * 1024 * 1024


class RealCarrier:
    def bring(self, source: str, target: str, *, may_share: bool, on_bytes: Callable[[int], object]) -> How:
        size = os.path.getsize(source)
        if may_share:
            try:
                os.link(source, target)
            except OSError:
                pass  # another file system, or one without links
            else:
                on_bytes(size)
                return How.SHARED
        with open(source, "rb", buffering=0) as reader, open(target, "xb", buffering=0) as writer:
            if _clone(reader.fileno(), writer.fileno()):
                how = How.CLONED
                on_bytes(size)
            else:
                how = How.COPIED
                while chunk := reader.read(CHUNK_BYTES):
                    _write_all(writer.fileno(), chunk)
                    on_bytes(len(chunk))
        found = os.stat(source)
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))
        return how

    def sync(self) -> None:
        if hasattr(os, "sync"):
            os.sync()  # one call for thousands of files


def _clone(source: int, target: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def can_clone(source: str, folder: str) -> bool:
    """Whether files of the folder of `source` can be cloned into another."""
    probe = os.path.join(folder, "clone.probe")
    try:
        with open(source, "rb") as reader, open(probe, "wb") as writer:
            return _clone(reader.fileno(), writer.fileno())
    except OSError:
        return False
    finally:
        if os.path.exists(probe):
            os.remove(probe)
