"""One process at a time: a file's lock that the kernel frees when its holder dies."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

HIDDEN = "_moldau"
"""The lake's own folder within a table's: readers pass over what begins with `_`."""
WAIT_S = 120.0
POLL_S = 0.02


class Busy(TimeoutError):
    """Another process has held the lock for too long."""


@contextmanager
def locked(table: str, name: str, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the table's lock of this name, waiting for it no longer than `wait_s`."""
    os.makedirs(os.path.join(table, HIDDEN), exist_ok=True)
    deadline = time.monotonic() + wait_s
    with open(os.path.join(table, HIDDEN, name), "a", encoding="utf-8") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Busy(f"{table}: another process has held {name} for {wait_s:.0f} s") from None
                time.sleep(POLL_S)
        yield
