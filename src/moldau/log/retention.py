"""Which segments of a log its topic's settings no longer keep: by age and by size, as Kafka decides it.

Segments go whole and from the oldest on, so the decision is one offset: where the log begins from now on. A
segment is too old when its newest record is (the file, where the records have no time), and too much when the
log without it is still as large as `retention.bytes`. One that compaction has emptied goes with the next. Nothing
above the high watermark goes, and an empty active segment stays. When even the active segment is to go, the answer
is the end of the log: it has to be rolled first.

Moving the start and removing the files is the log's; `LogManager` asks every `log.retention.check.interval.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from moldau.log.index import read_waiting
from moldau.log.segments import Segments
from moldau.runtime.ports import Disk

logger = logging.getLogger(__name__)


class Candidate(NamedTuple):
    """A segment, in what matters for its age and size."""

    next_offset: int
    """Where the segment after it begins; for the active one, the end of the log."""
    size: int
    newest_ms: int


class Limits(NamedTuple):
    """What is kept. -1 sets no limit."""

    retention_ms: int
    retention_bytes: int
    high_watermark: int
    now_ms: int

    @property
    def is_none(self) -> bool:
        return self.retention_ms < 0 and self.retention_bytes < 0


def start_after_retention(
    oldest_first: Iterable[Candidate], total_bytes: int, log_start_offset: int, limits: Limits
) -> int:
    """Where the log begins when what is not kept any more is gone; its start of now where all is kept."""
    left_bytes = total_bytes
    for segment in oldest_first:
        if segment.next_offset > limits.high_watermark:
            break
        if segment.size == 0:
            continue
        is_below_start = segment.next_offset <= log_start_offset
        is_old = 0 <= limits.retention_ms < limits.now_ms - segment.newest_ms
        is_too_much = 0 <= limits.retention_bytes <= left_bytes - segment.size
        if not (is_below_start or is_old or is_too_much):
            break
        left_bytes -= segment.size
        log_start_offset = max(log_start_offset, segment.next_offset)
    return log_start_offset


def look_through(segments: Segments, next_offset: int, log_start_offset: int, limits: Limits) -> int:
    """`start_after_retention` for segments on the disk. Blocks: give it a copy, in a thread.

    No more of them is looked at than goes, and one.
    """
    total_bytes = segments.size_bytes() if limits.retention_bytes >= 0 else 0
    return start_after_retention(_candidates(segments, next_offset), total_bytes, log_start_offset, limits)


def _candidates(segments: Segments, next_offset: int) -> Iterator[Candidate]:
    ends = segments.bases[1:]
    if segments.active.size:
        ends.append(next_offset)
    for index, end_offset in enumerate(ends):
        yield Candidate(end_offset, segments.by_number(index).size, segments.newest_ms(index, read_waiting))


def remove_files(disk: Disk, folder: str, found: Sequence[str]) -> None:
    """Files that are no longer part of a log. What cannot be removed goes at the next start.

    They are not emptied: a slow reader may be in the middle of one, and other names may be linked to it.
    """
    for name in found:
        path = f"{folder}/{name}"
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("%s could not be removed: %s", path, error)
