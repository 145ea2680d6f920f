"""Who may take closed segments out of a log: one at a time, of retention and compaction.

Whoever finds it locked leaves the log alone for now. A compaction is the one that takes long: it ends with its log,
and the log's folder stays where it is until then. How far the log is compacted is known here too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Reshaping(asyncio.Lock):
    compaction: asyncio.Task[object] | None = None
    """The one under way."""
    cleaned_to: int | None = None
    """Up to where the log is compacted, as `cleaner-offset-checkpoint` says; None where it never was."""
    is_moving: bool = False
    """The log is on its way to another data folder: it is not compacted meanwhile, as in Kafka. A copy of some old and
    some new segments could lack a tombstone and have what it deletes."""

    def cut_off(self, offset: int) -> None:
        """What comes from here on is another history, of which nothing is compacted."""
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, offset)

    def stop_compaction(self) -> None:
        """The log stays as it is; the task is done when nothing works on it any more."""
        if self.compaction is not None:
            self.compaction.cancel()

    def when_not_compacting(self, call: Callable[[], object]) -> None:
        """Call now, or after the compaction that is under way."""
        if self.compaction is None:
            call()
        else:
            self.compaction.add_done_callback(lambda _: call())
