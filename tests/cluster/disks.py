"""Small disks that a test can fill, break and take away: a tmpfs, or an ext4 file system in a file. Both need root."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

from needs import missing

SHUTDOWN = 0x8004587D  # FS_IOC_SHUTDOWN of linux/fs.h
WITHOUT_FLUSHING = struct.pack("I", 2)
MB = 1 << 20


class Disk:
    """A mounted file system of a few megabytes."""

    def __init__(self, folder: Path, size_mb: int, kind: str) -> None:
        self.path = folder / "disk"
        self._image = folder / "image"
        self._size_mb = size_mb
        self._kind = kind
        self.path.mkdir(parents=True)
        if kind == "ext4":
            with open(self._image, "wb") as image:
                image.truncate(size_mb * MB)
            _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self.mount()

    def mount(self) -> None:
        if self._kind == "ext4":
            _run("mount", "-o", "loop", str(self._image), str(self.path))
        else:
            _run("mount", "-t", "tmpfs", "-o", f"size={self._size_mb}m", "none", str(self.path))

    def unmount(self) -> None:
        _run("umount", str(self.path))

    def take(self, size: int) -> None:
        """Leave that much less room, until `make_room`."""
        with open(self.path / "filler", "wb") as filler:
            filler.write(bytes(size))

    def make_room(self) -> None:
        os.unlink(self.path / "filler")

    def die(self) -> None:
        """From now on every write fails, and every read of what is not cached."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, SHUTDOWN, WITHOUT_FLUSHING)
        finally:
            os.close(fd)


@contextlib.contextmanager
def disk(folder: Path, size_mb: int = 16, kind: str = "tmpfs") -> Iterator[Disk]:
    if os.geteuid() != 0:
        missing("Only root may mount a small disk. Run this test as root.")
    if kind == "ext4" and shutil.which("mkfs.ext4") is None:
        missing("mkfs.ext4 is missing: install e2fsprogs.")
    try:
        made = Disk(folder, size_mb, kind)
    except subprocess.CalledProcessError as refused:
        missing(f"This machine does not let root mount a small {kind} disk: {refused.stderr.strip()}")
    try:
        yield made
    finally:
        subprocess.run(["umount", "-l", str(made.path)], capture_output=True, check=False)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
