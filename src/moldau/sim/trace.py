"""What happened in a run, as a running digest and the last lines of it in words."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable

LINES_KEPT = 2000


class Trace:
    """Every event is one line: virtual time, host, kind, details. Only what is the same in every process goes
    in: no addresses, no hash order, no names that asyncio counts up."""

    __slots__ = ("_digest", "_time", "count", "lines")

    def __init__(self, time: Callable[[], float], lines_kept: int = LINES_KEPT) -> None:
        self._time = time
        self._digest = hashlib.sha256()
        self.count = 0
        self.lines: deque[str] = deque(maxlen=lines_kept)

    def record(self, host: str, kind: str, *details: object) -> None:
        line = f"{self._time():.6f} {host} {kind} {' '.join(map(str, details))}"
        self.count += 1
        self.lines.append(line)
        self._digest.update(line.encode())

    def digest(self) -> str:
        return self._digest.hexdigest()
