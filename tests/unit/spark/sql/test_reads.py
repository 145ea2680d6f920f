"""How a statement reads a topic: the source's options and the columns."""

from __future__ import annotations

from moldau.spark.sql.inference import Format, Shape
from moldau.spark.sql.reads import TASK_RECORDS, Read, Table, declared_shape, read_of

KAFKA = {"bootstrap.servers": "b:9092"}
ORDERS = Table("orders", "orders", Shape(Format.JSON, (("id", "BIGINT"), ("item", "STRING"))))


def reading(table: Table, *mentioned: str, needed: set[str] | None = None, is_stream: bool = False) -> Read:
    return read_of(table, KAFKA, is_stream, "latest", set(mentioned), needed)


def test_a_batch_is_read_in_pieces_by_all_fields() -> None:
    read = reading(ORDERS)
    assert dict(read.options) == {
        "kafka.bootstrap.servers": "b:9092",
        "subscribe": "orders",
        "maxRecordsPerPartition": str(TASK_RECORDS),
        "valueSchema": "`id` BIGINT, `item` STRING",
        "columns": "value",
    }
    assert read.selections == (("value.`id` AS `id`", "value.`item` AS `item`"),)


def test_metadata_that_a_statement_names_are_columns() -> None:
    read = reading(ORDERS, "_key", "_offset")
    assert read.selections[0][2:] == ("CAST(key AS STRING) AS _key", "offset AS _offset")
    assert read.options["columns"] == "value,key,offset"


def test_only_what_is_needed_is_read() -> None:
    some = reading(ORDERS, "item", needed={"item"})
    assert some.options["valueSchema"] == "`item` STRING"
    none = reading(ORDERS, needed={"count"})
    assert none.options["columns"] == "offset"
    assert "valueSchema" not in none.options


def test_a_stream_begins_where_it_is_told_unless_its_options_say_so() -> None:
    assert reading(ORDERS, is_stream=True).options["startingOffsets"] == "latest"
    declared = Table("orders", "o", ORDERS.shape, {"startingoffsets": "earliest"}, True)
    options = reading(declared, is_stream=True).options
    assert options["startingoffsets"] == "earliest"
    assert "startingOffsets" not in options


def test_text_has_one_column_and_bytes_are_left_as_they_are() -> None:
    text = reading(Table("log", "log", Shape(Format.STRING), text_column="line"))
    assert text.selections == (("value AS `line`",),)
    assert text.options["valueFormat"] == "string"
    assert "valueFormat" not in reading(Table("raw", "raw", Shape(Format.BINARY))).options


def test_keys_that_are_no_text_stay_bytes() -> None:
    table = Table("orders", "orders", Shape(Format.STRING, text_keys=False))
    assert reading(table, "_key").selections[0][1] == "key AS _key"
    assert ("_key", "BINARY") in table.metadata()


def test_a_field_hides_the_metadata_of_its_name() -> None:
    table = Table("t", "t", Shape(Format.JSON, (("_offset", "STRING"),)))
    assert "_offset" not in dict(table.metadata())
    assert reading(table, "_offset").selections == (("value.`_offset` AS `_offset`",),)


def test_fields_without_one_type_are_parsed_by_spark() -> None:
    table = Table("t", "t", Shape(Format.JSON, (("x", "STRING"),), exact=False))
    read = reading(table, "_corrupt")
    assert read.options["valueFormat"] == "string"
    assert "from_json" in read.selections[0][0]
    assert read.selections[1][-1].startswith("coalesce(value._moldau_corrupt")


def test_types_that_arrow_does_not_parse_are_left_to_spark() -> None:
    assert not declared_shape([("m", "MAP<STRING, INT>")], Format.JSON).exact
    assert declared_shape([("map_id", "DECIMAL(10,2)")], Format.JSON).exact
