"""Values are read as Apache Kafka reads them; the texts were taken from its answers."""

from __future__ import annotations

import pytest

from moldau.config.key import ConfigError, Type, format_double, format_value
from moldau.config.table import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("flush.ms", "٣", 3),
        ("retention.bytes", "-9223372036854775808", -(1 << 63)),
        ("preallocate", "TRUE", True),
        ("preallocate", " False ", False),
        ("cleanup.policy", "", []),
        ("cleanup.policy", " compact , delete ", ["compact", "delete"]),
        ("cleanup.policy", "compact,delete,compact", ["compact", "delete"]),
        ("min.cleanable.dirty.ratio", "5e-1", 0.5),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ["*"]),
        ("leader.replication.throttled.replicas", "0:1,1:2", ["0:1", "1:2"]),
    ],
)
def test_a_value_is_parsed_as_kafka_does(key: str, text: str, value: object) -> None:
    assert TOPIC_KEYS[key].parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        (
            "retention.ms",
            "abc",
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
        (
            "retention.ms",
            "1.5",
            "Invalid value 1.5 for configuration retention.ms: Not a number of type LONG",
        ),
        ("retention.ms", "-2", "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
        ("flush.ms", "0x10", "Invalid value 0x10 for configuration flush.ms: Not a number of type LONG"),
        ("flush.ms", "1_000", "Invalid value 1_000 for configuration flush.ms: Not a number of type LONG"),
        (
            "segment.bytes",
            "3000000000",
            "Invalid value 3000000000 for configuration segment.bytes: Not a number of type INT",
        ),
        (
            "segment.bytes",
            "100",
            "Invalid value 100 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            "compression.gzip.level",
            "0",
            "Invalid value 0 for configuration compression.gzip.level: "
            "Value must be between 1 and 9 or equal to -1",
        ),
        (
            "compression.lz4.level",
            "18",
            "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
        ),
        (
            "min.cleanable.dirty.ratio",
            "1.5",
            "Invalid value 1.5 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
        ),
        (
            "min.cleanable.dirty.ratio",
            "inf",
            "Invalid value inf for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
        ),
        (
            "preallocate",
            "yes",
            "Invalid value yes for configuration preallocate: Expected value to be either true or false",
        ),
        (
            "cleanup.policy",
            "delete,foo",
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        ("cleanup.policy", "compact,,delete", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "compression.type",
            "GZIP",
            "Invalid value GZIP for configuration compression.type: "
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,*",
            "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the "
            "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_a_bad_value_is_refused_with_kafkas_text(key: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TOPIC_KEYS[key].parse(text)
    assert str(refused.value) == reason


@pytest.mark.parametrize("text", ["latest", "earliest", "by_duration:PT1H", "by_duration:P1DT2H3M0.5S"])
def test_a_share_group_may_begin_at_a_duration(text: str) -> None:
    assert GROUP_KEYS["share.auto.offset.reset"].parse(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "foo", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:1H", "by_duration:PT1D"],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        GROUP_KEYS["share.auto.offset.reset"].parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (123.0, "123.0"),
        (0.001, "0.001"),
        (0.00012, "1.2E-4"),
        (1e-5, "1.0E-5"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2e-9, "-2.0E-9"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
    ],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert format_double(value) == text


def test_a_parsed_value_is_shown_in_kafkas_spelling() -> None:
    assert format_value(Type.BOOLEAN, True) == "true"
    assert format_value(Type.LIST, ["a", "b"]) == "a,b"
    assert format_value(Type.LONG, None) is None


def test_every_default_passes_its_own_check() -> None:
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        if key.default is not None:
            key.parse(key.default)


def test_every_synonym_is_a_broker_key() -> None:
    for key in (*TOPIC_KEYS.values(), *GROUP_KEYS.values()):
        assert all(name in BROKER_KEYS for name in key.synonyms), key.name


@pytest.mark.parametrize("text", ["*", "", "0:1", "0:1,12:3", "0:1,", " 0:1 , 1:1 ", "999:999", ",,"])
def test_throttled_replicas_are_partitions_and_brokers(text: str) -> None:
    TOPIC_KEYS["leader.replication.throttled.replicas"].parse(text)


@pytest.mark.parametrize(
    "text", ["a", "0:", ":1", "-1:1", "0:1:2", "none", "*,0:1", "0:1,*", "0:*", "\u0660:1"]
)
def test_what_names_no_throttled_replicas_is_refused_with_kafkas_words(text: str) -> None:
    name = "follower.replication.throttled.replicas"
    with pytest.raises(ConfigError, match=r"^Invalid value \[.*\] for configuration " + name) as refused:
        TOPIC_KEYS[name].parse(text)
    assert str(refused.value).endswith(
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def test_a_value_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(ConfigError, match="has 262145 characters, and may have 262144 at most"):
        TOPIC_KEYS["cleanup.policy"].parse("," * 262_145)
