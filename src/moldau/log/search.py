"""Searches in a log that wait for the disk, while its segments may be removed or replaced under them."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from moldau.base.errors import ErrorCode, KafkaError
from moldau.log.reader import Reader, TimestampOffset
from moldau.log.scan import DamagedSegment
from moldau.log.segments import Segments
from moldau.records.record import BadRecord
from moldau.runtime.ports import Tasks

logger = logging.getLogger(__name__)

Find = Callable[[Reader, int], TimestampOffset | None]
"""A search, from the log's start offset on."""


class SearchedLog(Protocol):
    """What must be known of the log."""

    failure: OSError | None
    log_start_offset: int
    segments: Segments


async def search_waiting(log: SearchedLog, tasks: Tasks, find: Find) -> TimestampOffset | None:
    """Search in a thread; again where it may have met a mixture of old and new segments."""
    while True:
        generation = log.segments.generation
        try:
            with damage_as_kafka_error():
                reader = Reader(log.segments.copy())
                found = await tasks.in_thread(find, reader, log.log_start_offset)
        except (FileNotFoundError, KafkaError, struct.error):
            if log.failure is not None or generation == log.segments.generation:
                raise
        else:
            if generation == log.segments.generation:
                return found


@contextmanager
def damage_as_kafka_error() -> Iterator[None]:
    try:
        yield
    except (DamagedSegment, BadRecord) as damage:
        logger.error("%s", damage)
        raise KafkaError(ErrorCode.corrupt_message, str(damage)) from None
