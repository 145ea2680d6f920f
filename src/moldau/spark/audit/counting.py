"""Record batches of Arrow as tallies by topic, partition and window: a few rows for what a task has read.

Identities of records are hashed one by one (`moldau.audit.tally.digest`, 1 us); the rest goes by whole columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy
import pyarrow

from moldau.audit.comparison import By
from moldau.audit.tally import BUCKET_SHIFT, BUCKETS, Tally, digest

COUNTED = (
    "topic STRING, partition INT, window TIMESTAMP, date DATE, by STRING, counts ARRAY<BIGINT>, sums ARRAY<BIGINT>, "
    "first_offset BIGINT, last_offset BIGINT"
)
"""The columns of the counted tables."""
ARROW = pyarrow.schema(
    [
        ("topic", pyarrow.string()),
        ("partition", pyarrow.int32()),
        ("window", pyarrow.timestamp("us", "UTC")),
        ("date", pyarrow.date32()),
        ("by", pyarrow.string()),
        ("counts", pyarrow.list_(pyarrow.int64())),
        ("sums", pyarrow.list_(pyarrow.int64())),
        ("first_offset", pyarrow.int64()),
        ("last_offset", pyarrow.int64()),
    ]
)
US_PER_MS = 1000
US_PER_DAY = 86_400_000_000
Place = tuple[str, int, int]
"""Topic, partition, begin of the window in milliseconds."""


class Counting:
    """What one task has counted."""

    def __init__(self, window_ms: int, by: tuple[By, ...]) -> None:
        self._window_ms = window_ms
        self._by = by
        self._tallies: dict[tuple[Place, By], Tally] = {}
        self._offsets: dict[Place, tuple[int, int]] = {}

    def add(self, batch: pyarrow.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        times_ms = times_of(batch.column("timestamp")) // US_PER_MS
        partitions = batch.column("partition").to_numpy(zero_copy_only=False).astype(numpy.int64)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False).astype(numpy.int64)
        topics = batch.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False).astype(numpy.int64)
        names = topics.dictionary.to_pylist()
        windows = times_ms - times_ms % self._window_ms
        keys, group = numpy.unique(numpy.stack([codes, partitions, windows]), axis=1, return_inverse=True)
        group = group.reshape(-1)
        places = [(names[code], int(partition), int(window)) for code, partition, window in keys.T]
        for by in self._by:
            ids = positions(partitions, offsets) if by is By.POSITIONS else identities(batch, times_ms)
            self._merge(places, by, group, ids)
        self._reach(places, group, offsets)

    def rows(self) -> pyarrow.RecordBatch:
        found = sorted(self._tallies.items(), key=lambda one: (one[0][0], one[0][1].value))
        columns: list[list[Any]] = [[] for _ in ARROW]
        for ((topic, partition, window_ms), by), tally in found:
            window_us = window_ms * US_PER_MS
            first, last = self._offsets[topic, partition, window_ms]
            row = (
                topic,
                partition,
                window_us,
                window_us // US_PER_DAY,
                by.value,
                tally.counts,
                tally.signed_sums,
                first,
                last,
            )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
        arrays = [pyarrow.array(values, each.type) for values, each in zip(columns, ARROW, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=ARROW)

    def _merge(self, places: list[Place], by: By, group: Any, ids: Any) -> None:
        """Counts and sums of each group and bucket, by sorting; unsigned sums wrap as they should."""
        slots = group * BUCKETS + (ids >> numpy.uint64(BUCKET_SHIFT)).astype(numpy.int64)
        order = numpy.argsort(slots, kind="stable")
        found, starts, counts = numpy.unique(slots[order], return_index=True, return_counts=True)
        sums = numpy.add.reduceat(ids[order], starts)
        for slot, count, total in zip(found.tolist(), counts.tolist(), sums.tolist(), strict=True):
            place, bucket = places[slot // BUCKETS], slot % BUCKETS
            part = Tally()
            part.counts[bucket], part.sums[bucket] = count, total
            self._tallies.setdefault((place, by), Tally()).merge(part)

    def _reach(self, places: list[Place], group: Any, offsets: Any) -> None:
        for number, place in enumerate(places):
            mine = offsets[group == number]
            first, last = int(mine.min()), int(mine.max())
            known = self._offsets.get(place, (first, last))
            self._offsets[place] = min(first, known[0]), max(last, known[1])


def counted(
    batches: Iterable[pyarrow.RecordBatch], window_ms: int, by: tuple[By, ...]
) -> Iterator[pyarrow.RecordBatch]:
    """A task's function for `mapInArrow`."""
    counting = Counting(window_ms, by)
    for batch in batches:
        counting.add(batch)
    yield counting.rows()


def times_of(column: Any) -> Any:
    """Microseconds since 1970."""
    return (
        column.cast(pyarrow.timestamp("us", column.type.tz))
        .cast(pyarrow.int64())
        .to_numpy(zero_copy_only=False)
    )


def identities(batch: pyarrow.RecordBatch, times_ms: Any) -> Any:
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    return numpy.frombuffer(b"".join(map(digest, times_ms.tolist(), keys, values)), "<u8")


def positions(partitions: Any, offsets: Any) -> Any:
    """Partition and offset, mixed by the steps of splitmix64."""
    mixed = (partitions.astype(numpy.uint64) << numpy.uint64(48)) ^ offsets.astype(numpy.uint64)
    mixed = mixed + numpy.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> numpy.uint64(31))
