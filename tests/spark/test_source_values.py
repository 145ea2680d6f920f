"""Values decoded by Arrow: whole batches, and what becomes of those that are bad."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest

from moldau.spark.source.values import (
    MalformedRecord,
    ValueSettings,
    decode,
    decode_batch,
    parse_json,
    parse_string,
    unsupported,
)

KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("tags", pa.list_(pa.field("element", pa.string()))),
    ]
)
GOOD = b'{"id": 1, "day": "2024-01-02", "at": "2024-01-02T03:04:05Z", "tags": ["a"], "more": [{}]}'
DECODED = {
    "id": 1,
    "day": datetime.date(2024, 1, 2),
    "at": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "tags": ["a"],
}
NOTHING = {"id": None, "day": None, "at": None, "tags": None}


def json_of(*values: bytes | None) -> tuple[list[Any], list[int]]:
    decoded, reasons = decode(pa.array(values, pa.binary()), KIND, parse_json)
    assert decoded.type == KIND
    return decoded.to_pylist(), sorted(reasons)


def test_objects_and_tombstones_keep_their_places() -> None:
    assert json_of(GOOD, None, b"{}", GOOD) == ([DECODED, None, NOTHING, DECODED], [])
    assert json_of(None) == ([None], [])


def test_an_object_may_have_several_lines_and_spaces_around() -> None:
    several = b'\n {"id":\n 7,\r\n"day": null}\t'
    for value in (several, several.strip(), b'{"id":\r7}'):
        assert json_of(value, GOOD) == ([NOTHING | {"id": 7}, DECODED], [])
        assert json_of(GOOD, value) == ([DECODED, NOTHING | {"id": 7}], [])
    assert json_of(*[several.strip()] * 3) == ([NOTHING | {"id": 7}] * 3, [])


def test_values_in_the_middle_of_an_array_are_decoded() -> None:
    given = pa.array([b"x", GOOD, GOOD, b"y"], pa.binary())[1:3]
    assert decode(given, KIND, parse_json)[0].to_pylist() == [DECODED, DECODED]


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b" ",
        b"x",
        b"[1]",
        b"7",
        b'{"id": 1',
        b'{"id": 1} {"id": 2}',
        b'{"id": 1}\n{"id": 2}',
        b'{"id": 1.5}',
        b'{"id": "1"}',
        b'{"day": "yesterday"}',
        b'{"at": 5}',
        b'{"tags": ["\xff"]}',
        b'{"tags": ["a\nb"]}',
        b'{"tags": ["a\rb"]}',
        b'{"id": 1, "id": 2}',
    ],
)
def test_a_bad_value_spoils_no_other(bad: bytes) -> None:
    assert json_of(bad) == ([None], [0])
    assert json_of(GOOD, bad, None, GOOD, GOOD) == ([DECODED, None, None, DECODED, DECODED], [1])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'{"id": 1, "a": [', b'{"x": 1}]}'),
        (b'{"id": 1, "a":', b'{"x": 1}}'),
        (b'{"id": 1, "a": [{}', b'{"x": 1}]}'),
        (b'{"id": 1, "a": [{},', b'{"x": 1}]}'),
        (b'{"id": 1, "a": "}', b'{"}'),
        (b'{"id": 1, "a": "\\}', b'{"}'),
    ],
)
def test_two_values_that_are_one_object_together_are_bad(first: bytes, second: bytes) -> None:
    twice = b'{"id": 3}{"id": 4}'
    assert json_of(first, second, twice, GOOD) == ([None, None, None, DECODED], [0, 1, 2])
    assert json_of(twice, first, second, GOOD) == ([None, None, None, DECODED], [0, 1, 2])


def test_two_objects_in_one_value_are_not_taken_for_the_blank_ones_next_to_them() -> None:
    assert json_of(b'{"id": 1}{"id": 2}', b"  ", GOOD) == ([None, None, DECODED], [0, 1])


def test_text_that_is_no_utf8_is_bad() -> None:
    decoded, reasons = decode(pa.array([b"a", b"\xff", None, b""]), pa.string(), parse_string)
    assert (decoded.to_pylist(), sorted(reasons)) == (["a", None, None, ""], [1])


def test_a_bad_value_stands_in_the_corrupt_column() -> None:
    schema = pa.schema([("offset", pa.int64()), ("value", pa.string()), ("corruptValue", pa.binary())])
    batch = pa.record_batch({"offset": [5, 6], "value": pa.array([b"a", b"\xfe"])})
    rows = decode_batch(ValueSettings(schema, "string"), batch, None)
    assert rows is not None
    assert rows.schema == schema
    assert rows.to_pylist() == [
        {"offset": 5, "value": "a", "corruptValue": None},
        {"offset": 6, "value": None, "corruptValue": b"\xfe"},
    ]


def test_with_dropmalformed_a_bad_value_has_no_row() -> None:
    schema = pa.schema([("offset", pa.int64()), ("value", pa.string()), ("corruptValue", pa.binary())])
    batch = pa.record_batch({"offset": [5, 6], "value": pa.array([b"\xfe", b"a"])})
    settings = ValueSettings(schema, "string", mode="DROPMALFORMED")
    rows = decode_batch(settings, batch, None)
    assert rows is not None
    assert rows.to_pylist() == [{"offset": 6, "value": "a", "corruptValue": None}]
    assert decode_batch(settings, batch[:1], None) is None


def test_with_failfast_a_bad_value_names_its_record() -> None:
    settings = ValueSettings(pa.schema([("value", pa.string())]), "string", mode="FAILFAST")
    batch = pa.record_batch({"offset": [5, 6], "value": pa.array([b"a", b"\xfe"])})
    with pytest.raises(MalformedRecord, match=r"offset 6: .*UTF"):
        decode_batch(settings, batch, None)
    rows = decode_batch(settings, batch[:1], None)
    assert rows is not None
    assert rows.to_pylist() == [{"value": "a"}]


def test_maps_and_bytes_are_not_decoded_to() -> None:
    assert unsupported(KIND) is None
    assert unsupported(pa.struct([("m", pa.list_(pa.map_(pa.string(), pa.int64())))])) is not None
    assert unsupported(pa.struct([("b", pa.binary())])) == pa.binary()
