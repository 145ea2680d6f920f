"""The same rows by Spark's connector, `format("kafka")`, and by `format("moldau")`: the same records, or refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Message

from spark.sink_readers import committed_messages
from spark.source_topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, THEIRS = "moldau", "kafka"
HEADERS = (
    "array(named_struct('key', 'h', 'value', binary('1')), named_struct('key', 'n', 'value', binary(null)))"
)


def save(frame: DataFrame, form: str, servers: str, options: dict[str, str]) -> None:
    writer = frame.write.format(form).option("kafka.bootstrap.servers", servers)
    writer.options(**options).mode("append").save()


def shape_of(message: Message) -> tuple[object, ...]:
    return message.partition(), message.key(), message.value(), message.headers()


@pytest.mark.parametrize(
    "columns",
    [
        "string(id) as key, string(id) as value",
        "binary(string(id)) as key, binary(null) as value",
        f"'' as key, '' as value, {HEADERS} as headers",
        f"string(id) as key, 'v' as value, if(id % 2 = 0, {HEADERS}, null) as headers, 7 as other",
        "string(null) as key, 'v' as value, int(id % 3) as partition",
        "string(id) as key, 'v' as value, if(id % 2 = 0, 1, null) as partition",
    ],
)
def test_the_same_rows_become_the_same_records(
    spark_with_connector: SparkSession, target: str, topic_names: Callable[[str], str], columns: str
) -> None:
    topics, found = Topics(target), []
    frame = spark_with_connector.sql(f"select {columns} from range(20)")
    for form in (OURS, THEIRS):
        topic = topics.create(topic_names(f"{form}-{abs(hash(columns))}"), 3)
        save(frame, form, target, {"topic": topic})
        found.append(sorted((shape_of(message) for message in committed_messages(target, topic)), key=repr))
    assert len(found[0]) == 20
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (
            "'v' as value",
            {},
            "topic option required when no 'topic' attribute is present. Use the topic option",
        ),
        ("'t' as topic, 'v' as key", {}, "Required attribute 'value' not found"),
        ("'v' as VALUE", {"topic": "t"}, "Required attribute 'value' not found"),
        ("1 as topic, 'v' as value", {}, "topic attribute unsupported type int. topic must be a(n) string"),
        (
            "'t' as topic, 1 as value",
            {},
            "value attribute unsupported type int. value must be a(n) string or binary",
        ),
        ("'t' as topic, 'v' as value, 1L as key", {}, "key must be a(n) string or binary"),
        ("'t' as topic, 'v' as value, '1' as partition", {}, "partition must be a(n) int"),
        (
            "'t' as topic, 'v' as value, array('h') as headers",
            {},
            "type array<string>. headers must be a(n) array<struct<key:string,value:binary>>",
        ),
        (
            "'v' as value",
            {"topic": "t", "kafka.key.serializer": "x"},
            "'key.serializer' is not supported as keys are",
        ),
        (
            "'v' as value",
            {"topic": "t", "kafka.value.serializer": "x"},
            "'value.serializer' is not supported as value",
        ),
        (
            "string(null) as topic, 'v' as value",
            {},
            "contains a null topic. Use the `topic` option for setting",
        ),
        (
            "'t' as topic, 'v' as value, -1 as partition",
            {},
            "Invalid partition: -1. Partition number should always be",
        ),
    ],
)
def test_both_refuse_the_same_in_the_same_words(
    spark_with_connector: SparkSession, target: str, columns: str, options: dict[str, str], sentence: str
) -> None:
    frame = spark_with_connector.sql(f"select {columns}")
    for form in (OURS, THEIRS):
        with pytest.raises(Exception) as refusal:
            save(frame, form, target, options)
        assert sentence in str(refusal.value), form
