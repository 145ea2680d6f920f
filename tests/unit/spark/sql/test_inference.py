"""The shape of a topic's records, from some of them."""

from __future__ import annotations

import json
from typing import Any

from moldau.spark.sql.inference import DEPTH_MAX, Format, Shape, infer


def of(*documents: Any) -> Shape:
    return infer([json.dumps(document).encode() for document in documents])


def test_fields_of_all_records_are_columns_in_the_order_in_which_they_are_seen() -> None:
    shape = of({"id": 1, "item": "tea"}, {"id": 2, "price": 3.5, "sold": True})
    assert shape.fields == (("id", "BIGINT"), ("item", "STRING"), ("price", "DOUBLE"), ("sold", "BOOLEAN"))
    assert (shape.format, shape.exact, shape.sampled, shape.corrupt) == (Format.JSON, True, 2, 0)


def test_numbers_widen_and_times_become_text_where_one_is_none() -> None:
    shape = of({"n": 1, "t": "2026-11-18T10:00:00Z", "u": "2026-11-18 10:00"}, {"n": 2.5, "t": "noon"})
    assert shape.fields == (("n", "DOUBLE"), ("t", "STRING"), ("u", "TIMESTAMP"))
    assert of({"n": 2**63}).fields == (("n", "DOUBLE"),)


def test_objects_and_arrays_are_structs_and_arrays() -> None:
    shape = of({"at": {"lat": 1.5}, "tags": ["a"]}, {"at": {"lon": 2, "x-y": "z"}, "tags": []})
    assert shape.exact
    assert shape.fields == (
        ("at", "STRUCT<`lat`: DOUBLE, `lon`: BIGINT, `x-y`: STRING>"),
        ("tags", "ARRAY<STRING>"),
    )


def test_a_field_without_one_type_is_text_and_the_shape_not_exact() -> None:
    assert of({"x": 1}, {"x": "a"}).fields == of({"x": None}).fields == (("x", "STRING"),)
    assert not of({"x": 1}, {"x": "a"}).exact
    assert not of({"x": None}).exact
    assert not of({"x": {}}).exact
    assert not of({"x": {"y": [1, "a"]}}).exact


def test_of_names_that_differ_by_case_the_first_is_a_column() -> None:
    assert of({"id": 1, "ID": "a"}).fields == (("id", "BIGINT"),)


def test_records_that_are_no_json_are_counted_where_most_are() -> None:
    shape = infer([b'{"id": 1}', b"oops", b'{"id": 2}', None])
    assert (shape.format, shape.sampled, shape.corrupt) == (Format.JSON, 3, 1)


def test_text_and_bytes_are_told_apart() -> None:
    assert infer([b"one", b"[1]", b'"x"', b'{"a": 1}']).format is Format.STRING
    assert infer([b"one", b"\xff\xfe"]).format is Format.BINARY
    assert infer([]).format is Format.STRING
    assert infer([None]).sampled == 0


def test_keys_that_are_no_text_are_seen() -> None:
    assert infer([b"a"], [b"k", None]).text_keys
    assert not infer([b"a"], [b"\xff"]).text_keys


def test_what_is_nested_too_deep_is_text() -> None:
    document: Any = 1
    for _ in range(DEPTH_MAX + 5):
        document = {"a": document}
    assert not of(document).exact
    assert infer([b'{"a":' * 100_000]).format is Format.STRING
