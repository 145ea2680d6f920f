"""Batches of Arrow are counted as one record after the other would be."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("numpy")

from moldau.audit.comparison import By, Part  # noqa: E402
from moldau.audit.tally import Tally, identity, window_of  # noqa: E402
from moldau.spark.audit.counting import counted  # noqa: E402
from moldau.spark.audit.reading import parts_in  # noqa: E402

MINUTE_MS = 60_000
BEGIN_MS = 1_794_960_000_000
Row = tuple[str, int, int, int, bytes | None, bytes | None]


def rows(seed: int, number: int) -> list[Row]:
    random_ = random.Random(seed)
    return [
        (
            random_.choice(["orders", "views"]),
            random_.randrange(3),
            offset,
            BEGIN_MS + random_.randrange(5 * MINUTE_MS),
            random_.choice([None, b"", b"key"]),
            random_.choice([None, b"", b"%d" % offset]),
        )
        for offset in range(number)
    ]


def batches(found: list[Row], size: int) -> Iterator[Any]:
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
        ]
    )
    for start in range(0, len(found), size):
        columns = list(zip(*found[start : start + size], strict=True))
        columns[3] = tuple(at_ms * 1000 for at_ms in columns[3])
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )
        yield pa.RecordBatch.from_pylist([], schema=schema)


def parts(found: list[Row], size: int, *by: By) -> list[Part]:
    return [
        part for batch in counted(batches(found, size), MINUTE_MS, by) for part in parts_in(batch.to_pylist())
    ]


def test_tallies_and_offsets_are_those_of_each_record_on_its_own() -> None:
    expected: dict[tuple[str, int, int], Tally] = {}
    offsets: dict[tuple[str, int, int], list[int]] = {}
    found = rows(7, 2000)
    for topic, partition, offset, at_ms, key, value in found:
        place = topic, partition, window_of(at_ms, MINUTE_MS)
        expected.setdefault(place, Tally()).add(identity(at_ms, key, value))
        offsets.setdefault(place, []).append(offset)
    counted_parts = parts(found, 300, By.RECORDS)
    assert {(part.topic, part.partition, part.window_ms): part.tally for part in counted_parts} == expected
    assert {
        (part.topic, part.partition, part.window_ms): (part.first_offset, part.last_offset)
        for part in counted_parts
    } == {place: (min(each), max(each)) for place, each in offsets.items()}


def test_positions_tell_every_offset_of_every_partition_apart() -> None:
    whole = parts(rows(1, 1000), 1000, By.POSITIONS)
    assert whole == parts(rows(1, 1000), 37, By.POSITIONS)
    assert sum(part.tally.count for part in whole) == 1000
    sums = [parts([row], 1, By.POSITIONS)[0].tally for row in rows(1, 200)]
    assert len({tuple(tally.sums) for tally in sums}) == 200


def test_a_task_without_records_gives_no_rows_and_days_are_those_of_the_window() -> None:
    assert parts([], 1, By.RECORDS, By.POSITIONS) == []
    (batch,) = counted(batches([("orders", 0, 5, -1, None, b"1")], 1), MINUTE_MS, (By.RECORDS,))
    assert batch.to_pylist()[0]["date"] == date(1969, 12, 31)
