"""How far `message produce` has come with piped input: one line on the terminal, which the next one replaces.

It is there for the person who waits: nothing is shown for what is typed or takes no time, and where nobody looks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from moldau.cli.output import count_of

EVERY_S = 0.25


class Progress:
    def __init__(self, stored: Callable[[], int], *, wanted: bool) -> None:
        """`stored`: how many messages are acknowledged."""
        self._stored = stored
        self._is_shown = wanted and sys.stderr.isatty()
        self._began_s = time.monotonic()
        self.due_s = self._began_s + EVERY_S
        """When `show` is to be called next."""
        self._width = 0

    def show(self, read: int) -> None:
        now_s = time.monotonic()
        self.due_s = now_s + EVERY_S
        if self._is_shown:
            stored = self._stored()
            rate = stored / (now_s - self._began_s)
            self._write(f"{count_of(read, 'message')} read, {stored:,} stored, {rate:,.0f} per second")

    def clear(self) -> None:
        if self._width:
            self._write("")
            self._width = 0

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\r{line:{self._width}}" + ("" if line else "\r"))
        sys.stderr.flush()
        self._width = len(line)
