"""A producer's earlier batches, found again in the log.

Kafka's snapshots keep the last batch of each producer. A producer with several requests in flight may lose
the answers to more than that one when the broker restarts, and its retries of the others must still be
recognised: stored twice, or refused as out of order, they would break what idempotence promises. So when a
retry does not fit what a snapshot said, the headers before the last batch are looked through, once per
producer and within a bound.
"""

from __future__ import annotations

from moldau.log.index import Read
from moldau.log.producers import BATCHES_KEPT, BatchSeen, ProducerEntry
from moldau.log.scan import Batch, DamagedBatch, check_sum, headers
from moldau.log.segment import Segment
from moldau.log.segments import Segments
from moldau.records.batch import BatchHeader, sequence_after

LOOKED_THROUGH_BYTES_MAX = 8 * 1024 * 1024
"""Five requests in flight of 1 MB each, with some room for other producers' batches between them."""
_STEP_BYTES = 64 * 1024


def earlier_batches(segments: Segments, entry: ProducerEntry, read: Read) -> list[BatchSeen]:
    """Those that precede the producer's known batches without a gap, oldest first; as many as are kept."""
    oldest = entry.batches[0]
    first_sequence = oldest.first_sequence
    found: list[BatchSeen] = []
    segment: Segment | None = segments.at(oldest.first_offset)
    assert segment is not None
    place = segment.find(oldest.first_offset, read)
    stop = place.position if place else segment.size
    left_bytes = LOOKED_THROUGH_BYTES_MAX
    while segment is not None and left_bytes > 0:
        mark = segment.offsets.floor(stop - _STEP_BYTES, read, field=1)
        start = mark[1] if mark else 0
        for batch in reversed(_batches_of(entry, segment, start, stop, read)):
            header = batch.header
            if sequence_after(header.last_sequence, 1) != first_sequence:
                return found[::-1]
            try:
                check_sum(segment.log, batch, read(segment.log, header.size, batch.position))
            except DamagedBatch:  # one that is damaged is not there for anybody
                return found[::-1]
            found.append(_seen(header))
            first_sequence = header.base_sequence
            if len(found) + len(entry.batches) == BATCHES_KEPT:
                return found[::-1]
        left_bytes -= stop - start
        stop = start
        if start == 0:
            segment = segments.before(segment)
            stop = segment.size if segment is not None else 0
    return found[::-1]


def _batches_of(entry: ProducerEntry, segment: Segment, start: int, stop: int, read: Read) -> list[Batch]:
    return [
        batch
        for batch in headers(segment.log, start, stop, read)
        if batch.header.producer_id == entry.producer_id
        and batch.header.producer_epoch == entry.epoch
        and not batch.header.is_control
    ]


def _seen(header: BatchHeader) -> BatchSeen:
    return BatchSeen(
        header.base_sequence,
        header.last_sequence,
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
    )
