"""What became of a batch that was to be appended."""

from __future__ import annotations

from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.records.validate import RecordError


class Appended(NamedTuple):
    """What became of a batch, in the terms of a Produce answer."""

    error: ErrorCode
    base_offset: int
    last_offset: int
    append_time_ms: int
    """With LogAppendTime, and for a duplicate (the stored batch's timestamp); else -1."""
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
    duplicate: bool = False
    flush_due: bool = False
    """`flush.messages` is reached: answer after `Log.flush_then`."""
