"""Arrow's columns as the sink reads them: where the bytes of each row are."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from moldau.spark.topic_sink.columns import BadRow, Columns, headers_column, partition_column
from moldau.spark.topic_sink.rows import Cells

pa = pytest.importorskip("pyarrow")


def read(cells: Cells) -> list[bytes | None]:
    """By their addresses alone."""
    return [
        ctypes.string_at(address, length) if address else None
        for address, length in zip(cells.addresses.tolist(), cells.lengths.tolist(), strict=True)
    ]


VALUES = [b"one", None, b"", b"\xff\0", b"x" * 3000]
TEXTS = ["one", None, "", "é", "x" * 3000]


@pytest.mark.parametrize("kind", ["binary", "large_binary", "string", "large_string"])
def test_the_bytes_of_a_column_are_found_where_they_are(kind: str) -> None:
    is_text = "string" in kind
    column = pa.array(TEXTS if is_text else VALUES, getattr(pa, kind)())
    expected = [None if text is None else text.encode() for text in TEXTS] if is_text else VALUES
    assert read(Cells.of_arrow(column)) == expected
    assert read(Cells.of_arrow(column.slice(1, 3))) == expected[1:4]
    assert Cells.of_arrow(column).unpacked(1, 4) == expected[1:4]


@pytest.mark.parametrize("values", [[], [None], [b""], [b"", None]])
def test_columns_without_bytes_are_read(values: list[bytes | None]) -> None:
    assert read(Cells.of_arrow(pa.array(values, pa.binary()))) == values
    assert read(Cells.of_values(values)) == values


def test_values_are_where_their_cells_say() -> None:
    assert read(Cells.of_values(VALUES)) == VALUES


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_rows_of_a_batch_have_what_their_columns_have() -> None:
    made = batch(
        value=pa.array([b"1", b"2", None]),
        topic=pa.array(["a", "b", "a"]),
        partition=pa.array([None, 0, 7], pa.int32()),
    )
    rows = Columns(None, {"value": 0, "topic": 1, "partition": 2}).rows(made)
    found = {
        topic: [(message["len"].item(), message["partition"].item()) for message in rows.messages(numbers)]
        for topic, numbers in rows.by_topic()
    }
    assert found == {"a": [(1, -1), (0, 7)], "b": [(1, 0)]}


def test_what_no_record_can_have_is_refused_in_the_words_of_sparks_connector() -> None:
    with pytest.raises(BadRow, match=r"Invalid partition: -3\. Partition number should always be"):
        partition_column(batch(partition=pa.array([None, 1, -3], pa.int32())), 0)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    with pytest.raises(BadRow, match="Null header keys are not permitted"):
        headers_column(batch(headers=pa.array([[{"key": None, "value": b"x"}]], pa.list_(header))), 0)
