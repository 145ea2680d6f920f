"""Spark's own `spark-pipelines`, one at a time on this machine.

Its Connect server is at port 15002, and its client looks for it there whatever the server's own setting says: two at
once meet each other's.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone() -> Iterator[None]:
    """Until the others' have ended."""
    with open(Path(tempfile.gettempdir()) / "moldau-tests-spark-pipelines.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
