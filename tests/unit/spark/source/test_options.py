"""Options: the defaults of Spark's connector, and its words of refusal."""

from __future__ import annotations

import pytest

from moldau.spark.source.errors import OptionError
from moldau.spark.source.limits import (
    Earliest,
    Group,
    Latest,
    NoMatch,
    SpecificOffsets,
    SpecificTimestamps,
    Timestamp,
)
from moldau.spark.source.offsets import TopicPartition
from moldau.spark.source.options import Assign, SourceOptions, Subscribe, parse_options

BOOTSTRAP = {"kafka.bootstrap.servers": "localhost:9092"}


def stream(**options: str) -> SourceOptions:
    return parse_options(BOOTSTRAP | {"subscribe": "t"} | options, is_stream=True)


def batch(**options: str) -> SourceOptions:
    return parse_options(BOOTSTRAP | {"subscribe": "t"} | options, is_stream=False)


def test_the_defaults_are_those_of_sparks_connector() -> None:
    options = stream()
    assert (options.starting, options.ending, options.fail_on_data_loss) == (None, None, True)
    assert (options.min_partitions, options.max_offsets_per_trigger) == (None, None)
    assert (options.max_trigger_delay_ms, options.offset_attempts, options.offset_retry_ms) == (
        900_000,
        3,
        1000,
    )
    assert (options.include_headers, options.read_committed, options.progress_group) == (False, False, None)
    assert options.group_id.startswith("spark-kafka-source-")
    assert batch(groupIdPrefix="mine").group_id.startswith("mine-")


def test_names_come_in_any_case() -> None:
    assert stream(MAXOFFSETSPERTRIGGER="7").max_offsets_per_trigger == 7
    assert parse_options(
        {"KAFKA.bootstrap.SERVERS": "b", "Assign": '{"t":[1]}'}, is_stream=True
    ).choice == Assign(frozenset({TopicPartition("t", 1)}))


def test_a_timestamp_goes_before_timestamps_go_before_offsets() -> None:
    given = {
        "startingOffsets": "earliest",
        "startingOffsetsByTimestamp": '{"t":{"0":5}}',
        "startingTimestamp": "7",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert stream(**given).starting == Timestamp(7, NoMatch.LATEST)
    del given["startingTimestamp"]
    assert stream(**given).starting == SpecificTimestamps({TopicPartition("t", 0): 5}, NoMatch.LATEST)
    del given["startingOffsetsByTimestamp"]
    assert stream(**given).starting == Earliest()
    assert stream(startingOffsets=" LATEST ").starting == Latest()
    assert stream(startingOffsets='{"t":{"0":-2}}').starting == SpecificOffsets({TopicPartition("t", 0): -2})


def test_topics_are_trimmed() -> None:
    assert stream(subscribe=" a , ,b").choice == Subscribe(("a", "b"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {},
            "One of the following options must be specified for Kafka source: subscribe, subscribepattern, assign",
        ),
        (
            {"subscribe": "a", "assign": "{}"},
            "Only one of the following options can be specified for Kafka source",
        ),
        ({"subscribe": " ,"}, "No topics to subscribe to as specified value for option 'subscribe' is ' ,'"),
        ({"assign": "a"}, "No topicpartitions to assign as specified value for option 'assign' is 'a'"),
        (
            {"subscribePattern": ""},
            "Pattern to subscribe is empty as specified value for option 'subscribePattern'",
        ),
        ({"subscribePattern": "("}, "no regular expression"),
    ],
)
def test_a_choice_of_topics_that_is_none_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        parse_options(BOOTSTRAP | options, is_stream=True)
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "strict"}, "Option 'mode' is 'strict': it is one of PERMISSIVE, FAILFAST, DROPMALFORMED"),
        (
            {"mode": "failfast", "deadLetterTopic": "d"},
            "'mode=FAILFAST' and 'deadLetterTopic' exclude each other",
        ),
        ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported."),
        (
            {"kafka.key.deserializer": "x"},
            "Kafka option 'key.deserializer' is not supported as keys are deserialized",
        ),
        (
            {"kafka.value.deserializer": "x"},
            "Kafka option 'value.deserializer' is not supported as values are",
        ),
        ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
        ({"kafka.isolation.level": "read"}, "Option 'kafka.isolation.level' is 'read'"),
        ({"kafka.no.such": "1"}, 'No such configuration property: "no.such"'),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxrecordsperpartition must be positive"),
        ({"maxOffsetsPerTrigger": "many"}, 'For input string: "many"'),
        ({"failOnDataLoss": "perhaps"}, 'For input string: "perhaps"'),
        ({"startingTimestamp": "now"}, "Expected a single long value, got now"),
        ({"startingOffsets": "soon"}, "Expected e.g. "),
        ({"maxTriggerDelay": "soon"}, "Option 'maxtriggerdelay' is a time"),
        (
            {"partition.metadata.cache.ttl.ms": "0"},
            "must be a positive number of milliseconds, or -1 to disable",
        ),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "The value of minOffsetPerTrigger(9) is higher than the maxOffsetsPerTrigger(5).",
        ),
        ({"startingOffsets": "group"}, "startingOffsets=group needs the option 'progressGroup'"),
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": "{}"}, "ending timestamp not valid in streaming queries"),
        ({"endingTimestamp": "5"}, "ending timestamp not valid in streaming queries"),
    ],
)
def test_an_option_that_is_wrong_is_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        stream(**options)
    assert words in str(refusal.value)


def test_the_brokers_must_be_named() -> None:
    with pytest.raises(OptionError, match=r"Option 'kafka.bootstrap.servers' must be specified"):
        parse_options({"subscribe": "t"}, is_stream=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"t":{"0":-1}}'},
            "startingOffsets for t-0 can't be latest for batch queries on Kafka",
        ),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"endingOffsets": '{"t":{"0":-2}}'},
            "ending offset for t-0 can't be earliest for batch queries on Kafka",
        ),
        (
            {"startingOffsets": '{"t":{"0":7}}', "endingOffsets": '{"t":{"0":5}}'},
            "The specified start offset 7 is greater than the end offset 5 for topic t partition 0.",
        ),
        (
            {"startingOffsets": '{"t":{"0":7}}', "endingOffsets": '{"t":{"1":5}}'},
            "The specified start offset and end offset should have the same topic-partitions. Topic-partitions for "
            "start offset: t-0, topic-partitions for end offset: t-1.",
        ),
        (
            {"startingOffsetsByTimestamp": '{"t":{"0":7}}', "endingOffsetsByTimestamp": '{"t":{"0":5}}'},
            "The specified start timestamp 7 is greater than the end timestamp 5 for topic t partition 0.",
        ),
    ],
)
def test_ends_that_a_batch_cannot_have_are_refused(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as refusal:
        batch(**options)
    assert words in str(refusal.value)


def test_progress_goes_to_the_group_that_is_named() -> None:
    assert stream(progressGroup="q").progress_group == "q"
    assert stream(**{"kafka.group.id": "g"}).progress_group == "g"
    assert stream(**{"kafka.group.id": "g", "progressGroup": ""}).progress_group is None
    assert stream(progressGroup="q", startingOffsets="group").starting == Group()


def test_a_delay_is_written_as_spark_writes_times() -> None:
    delays = {"15m": 900_000, "10s": 10_000, "250ms": 250, "1h": 3_600_000, "2min": 120_000, "70": 70}
    assert {text: stream(maxTriggerDelay=text).max_trigger_delay_ms for text in delays} == delays
