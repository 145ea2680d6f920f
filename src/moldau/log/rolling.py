"""When a log goes on in a new segment, and what goes with that: Kafka's rules for size, time, and full indexes.

A part of `log.Log`. The old segment's indexes are complete, and a snapshot of the producers is written, before the
recovery point passes the place.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from moldau.log import names
from moldau.log.flush import Flusher
from moldau.log.index import read_nowait, read_waiting
from moldau.log.scan import DamagedSegment
from moldau.log.search import Search
from moldau.log.segment import RELATIVE_OFFSET_MAX, Segment
from moldau.log.snapshots import write_snapshot
from moldau.runtime.ports import Runtime

if TYPE_CHECKING:
    from moldau.log.log import Log

logger = logging.getLogger(__name__)

_NOT_KNOWN_YET = 2**63 - 1


class Rolling:
    __slots__ = ("_flusher", "_log", "_runtime", "_search", "snapshot_offset")

    def __init__(
        self, log: Log, flusher: Flusher, search: Search, runtime: Runtime, snapshot_offset: int
    ) -> None:
        self._log = log
        self._flusher = flusher
        self._search = search
        self._runtime = runtime
        self.snapshot_offset = snapshot_offset
        """Of the newest snapshot; -1 where there is none."""

    def segment_for(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> Segment:
        """The active segment, after rolling it where Kafka's rules say so."""
        segment = self._log.segments.active
        config = self._log.config
        if segment.first_timestamp is None and segment.size:  # the first append after a start
            self._search.check_end(segment)
            self._load_first_timestamp(segment)
        if (
            segment.size + size > config.segment_bytes
            or segment.full
            or last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
            or segment.has_waited(max_timestamp, now_ms)
        ):
            self.roll(now_ms)
            return self._log.segments.active
        return segment

    def _load_first_timestamp(self, segment: Segment) -> None:
        """After a restart. While a cold page is brought in, the segment does not roll by time."""
        try:
            segment.load_first_timestamp(read_nowait)
        except BlockingIOError:
            segment.first_timestamp = _NOT_KNOWN_YET
            self._log.in_background(segment.load_first_timestamp, read_waiting)
        except (OSError, DamagedSegment) as damage:
            segment.first_timestamp = _NOT_KNOWN_YET
            logger.error("%s does not roll by time: %s", self._log.topic_partition, damage)

    def roll(self, now_ms: int) -> None:
        """Close the active segment and begin a new one. OSError leaves all as it was."""
        old = self._log.segments.active
        if old.size == 0:
            return
        old.seal()
        new = Segment.create(self._runtime.disk, self._log.folder, self._log.next_offset, now_ms)
        self.set_limits(new)
        self._log.segments.begin(new)
        self.queue_snapshot()
        self._flusher.queue(old.sync)
        self._flusher.queue_folder_sync()
        self._flusher.write()

    def set_limits(self, segment: Segment) -> None:
        roll_ms = self._log.config.roll_ms
        jitter_ms = min(self._log.config.segment_jitter_ms, roll_ms)
        jitter = self._runtime.random.randrange(jitter_ms) if jitter_ms > 0 else 0
        segment.set_limits(roll_ms - jitter, self._log.config.segment_index_bytes)

    def queue_snapshot(self) -> None:
        self.snapshot_offset = self._log.next_offset
        name = names.file_name(self._log.next_offset, names.SNAPSHOT)
        self._flusher.queue_file(name, write_snapshot(self._log.producing.state.entries()))
