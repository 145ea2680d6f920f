"""A producer's open windows: what was acknowledged in each, and which totals have not been published yet.

Pure: times and messages come and go as values. Memory is bounded by `WINDOWS_MAX`: beyond it the window that was
counted in longest ago is given up, its total handed out once more, and a record that comes for it later begins a new
part. Windows that nobody has counted in for `KEPT_MS` are given up, too, when they are published.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.audit.messages import Counts, Origin
from moldau.audit.tally import Tally, identity, window_of

WINDOWS_MAX = 1000
KEPT_MS = 10 * 60_000


@dataclass(slots=True)
class Open:
    topic: str
    window_ms: int
    part: int
    tally: Tally = field(default_factory=Tally)
    sequence: int = 0
    """Of the last total that was handed out."""
    published: int = 0
    """Of the last one that the brokers have."""
    counted_at_ms: int = 0
    is_changed: bool = True
    """Since the last total was handed out."""

    @property
    def is_published(self) -> bool:
        return self.published == self.sequence and not self.is_changed


class Counter:
    def __init__(self, origin: Origin, window_length_ms: int, windows_max: int = WINDOWS_MAX) -> None:
        self.origin = origin
        self._length_ms = window_length_ms
        self._windows_max = windows_max
        self._open: dict[tuple[str, int], Open] = {}
        self._parts = 0

    @property
    def window_length_ms(self) -> int:
        return self._length_ms

    def count(
        self, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None, now_ms: int
    ) -> Counts | None:
        """One more record; the total of a window that had to be given up for it, which must be published."""
        window, given_up = self._window(topic, window_of(timestamp_ms, self._length_ms), now_ms)
        window.tally.add(identity(timestamp_ms, key, value))
        return given_up

    def merge(self, topic: str, window_ms: int, tally: Tally, now_ms: int) -> Counts | None:
        """Several records of a window at once, as `count`."""
        window, given_up = self._window(topic, window_ms, now_ms)
        window.tally.merge(tally)
        return given_up

    def unpublished(self) -> list[Counts]:
        """The totals that have changed since they were published."""
        found = [window for window in self._open.values() if not window.is_published]
        return [self._total(window) for window in found]

    def published(self, counts: Counts) -> None:
        """The brokers have these totals."""
        window = self._window_of(counts)
        if window is not None:
            window.published = max(window.published, counts.sequence)

    def is_there(self, counts: Counts) -> bool:
        """Whether the brokers have these totals, or later ones."""
        window = self._window_of(counts)
        return window is None or window.published >= counts.sequence

    def forget(self, now_ms: int) -> None:
        """Give up what is published and has been quiet for long."""
        quiet = [
            place
            for place, window in self._open.items()
            if window.is_published and window.counted_at_ms + KEPT_MS <= now_ms
        ]
        for place in quiet:
            del self._open[place]

    def __len__(self) -> int:
        return len(self._open)

    def _window_of(self, counts: Counts) -> Open | None:
        window = self._open.get((counts.topic, counts.window_ms))
        return window if window is not None and window.part == counts.part else None

    def _window(self, topic: str, window_ms: int, now_ms: int) -> tuple[Open, Counts | None]:
        window = self._open.pop((topic, window_ms), None)
        given_up = None
        if window is None:
            given_up = self._make_room()
            self._parts += 1
            window = Open(topic, window_ms, self._parts)
        self._open[topic, window_ms] = window  # the one that was counted in longest ago stands first
        window.counted_at_ms = now_ms
        window.is_changed = True
        return window, given_up

    def _make_room(self) -> Counts | None:
        if len(self._open) < self._windows_max:
            return None
        oldest = next(iter(self._open.values()))
        del self._open[oldest.topic, oldest.window_ms]
        return None if oldest.is_published else self._total(oldest)

    def _total(self, window: Open) -> Counts:
        window.sequence += 1
        window.is_changed = False
        tally = Tally(list(window.tally.counts), list(window.tally.sums))
        return Counts(
            self.origin,
            window.part,
            window.sequence,
            window.topic,
            window.window_ms,
            self._length_ms,
            tally,
        )
