"""What may come next in a statement."""

from __future__ import annotations

import pytest

from moldau.spark.sql.completion import complete

TABLES = {"orders": ["id", "item", "_offset"], "my-orders.v1": ["customer id", "code"], "__hidden": []}


class Known:
    def tables(self) -> list[str]:
        return list(TABLES)

    def columns(self, table: str) -> list[str]:
        return TABLES.get(table, [])

    def streams(self) -> list[str]:
        return ["counts"]


@pytest.mark.parametrize(
    ("before", "word", "after", "expected"),
    [
        ("SELECT * FROM ", "or", "", ["orders"]),
        ("SELECT * FROM ", "my", "", ["`my-orders.v1`"]),
        ("SELECT * FROM ", "`my-or", "", ["`my-orders.v1`"]),
        ("SELECT * FROM STREAM ", "OR", "", ["orders"]),
        ("SELECT * FROM orders, ", "m", "", ["`my-orders.v1`"]),
        ("SELECT * FROM ", "s", "", ["stream"]),
        ("SELECT * FROM ", "", "", ["orders", "`my-orders.v1`"]),
        ("SELECT * FROM ", "__", "", ["__hidden"]),
        ("SELECT ", "i", " FROM orders", ["id", "item", "inner", "in", "is", "interval"]),
        ("SELECT ", "_", " FROM orders", ["_offset"]),
        ("SELECT ", "o.it", " FROM STREAM(orders) AS o", ["o.item"]),
        ("SELECT m.code FROM `my-orders.v1` m WHERE ", "m.cu", "", ["m.`customer id`"]),
        ("SELECT item, ", "it", " FROM orders", ["item"]),
        ("SELECT 'from ", "or", "", []),
        ("STOP ", "", "", ["counts"]),
        ("DESCRIBE ", "o", "", ["orders"]),
        ("", "SEL", "", ["SELECT"]),
    ],
)
def test_what_fits_is_offered(before: str, word: str, after: str, expected: list[str]) -> None:
    assert complete(before, word, after, Known()) == expected
