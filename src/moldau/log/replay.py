"""Bringing what is known of a log's producers from one offset to another, by the headers of the batches between."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from moldau.log.index import read_waiting
from moldau.log.producers import Producers
from moldau.log.scan import DamagedSegment, headers
from moldau.log.segment import Segment

logger = logging.getLogger(__name__)


def replay(segments: Iterable[Segment], start: int, stop: int, producers: Producers) -> None:
    """Take in the batches of some segments with offsets from one on that begin before another. Blocks. Damage is passed
    over, and told."""
    for segment in segments:
        try:
            for batch in headers(segment.log, 0, segment.size, read_waiting):
                if batch.header.base_offset >= stop:
                    return
                if batch.header.next_offset > start:
                    producers.add_batch(segment.log, batch, read_waiting)
        except DamagedSegment as damage:
            logger.error("producers' state may be incomplete: %s", damage)
