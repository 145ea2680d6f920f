"""The records of consumer groups are Kafka's, byte for byte: these were written by Apache Kafka 4.3.1."""

from __future__ import annotations

from uuid import UUID

import pytest

from moldau.coordinator.group import records
from moldau.coordinator.group.consumer.records import (
    ClassicMetadata,
    ConsumerRecord,
    CurrentForgotten,
    CurrentRecorded,
    EpochForgotten,
    EpochRecorded,
    MemberForgotten,
    MemberRecorded,
    PartitionMetadataForgotten,
    PartitionMetadataRecorded,
    RegexForgotten,
    RegexRecorded,
    TargetEpochForgotten,
    TargetEpochRecorded,
    TargetForgotten,
    TargetRecorded,
)

GROUP = "k848-5ac9-describe-offsets-1-g"
TOPIC_ID = UUID("7353e3c3-2b13-491e-aa26-6279553d1e82")
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"

WRITTEN_BY_KAFKA: list[tuple[ConsumerRecord, str, str | None]] = [
    (
        EpochRecorded(GROUP, 2, 0x5885014CFC78AECE),
        "0003001e6b3834382d356163392d64657363726962652d6f6666736574732d312d67",
        "0000000000020100085885014cfc78aece",
    ),
    (
        TargetEpochRecorded(GROUP, 2, 0x1A1E29CC191),
        "0006001e6b3834382d356163392d64657363726962652d6f6666736574732d312d67",
        "000000000002010008000001a1e29cc191",
    ),
    (
        TargetRecorded(GROUP, "one", {TOPIC_ID: (0, 1)}),
        "0007001e6b3834382d356163392d64657363726962652d6f6666736574732d312d6700036f6e65",
        "0000027353e3c32b13491eaa266279553d1e820300000000000000010000",
    ),
    (
        CurrentRecorded(GROUP, "one", 2, 0, 0, {TOPIC_ID: {0: 2, 1: 2}}, {}),
        "0008001e6b3834382d356163392d64657363726962652d6f6666736574732d312d6700036f6e65",
        "0000000000020000000000027353e3c32b13491eaa266279553d1e820300000000000000010100090300000002000000020100",
    ),
    (
        MemberRecorded(GROUP, "one", None, None, "same-answers", "/127.0.0.1", ("t",), "", 30_000, None),
        "0005001e6b3834382d356163392d64657363726962652d6f6666736574732d312d6700036f6e65",
        "000000000d73616d652d616e73776572730b2f3132372e302e302e310202740100007530000100" + "0100",
    ),
    (
        PartitionMetadataForgotten(GROUP),
        "0004001e6b3834382d356163392d64657363726962652d6f6666736574732d312d67",
        None,
    ),
]


@pytest.mark.parametrize(
    ("record", "key", "value"), WRITTEN_BY_KAFKA, ids=[type(row[0]).__name__ for row in WRITTEN_BY_KAFKA]
)
def test_a_record_is_read_and_written_as_kafka_does(
    record: ConsumerRecord, key: str, value: str | None
) -> None:
    stored = bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    assert records.decode(*stored) == record
    assert records.encode(record) == stored


@pytest.mark.parametrize(
    "record",
    [
        EpochRecorded("g", 1),
        EpochForgotten("g"),
        PartitionMetadataRecorded("g"),
        MemberRecorded(
            "g",
            "m",
            "instance",
            "rack",
            "client",
            "/host",
            ("a", "b"),
            "x.*",
            -1,
            "range",
            ClassicMetadata(45_000, (("range", SUBSCRIPTION), ("roundrobin", b""))),
        ),
        MemberForgotten("g", "m"),
        TargetEpochRecorded("g", 7),
        TargetEpochForgotten("g"),
        TargetRecorded("g", "m", {}),
        TargetForgotten("g", "m"),
        CurrentRecorded("g", "m", 5, 4, 1, {TOPIC_ID: {3: 5}}, {TOPIC_ID: {1: 2, 2: 4}}),
        CurrentForgotten("g", "m"),
        RegexRecorded("g", "x.*", ("xa", "xb"), 12, 1_700_000_000_000),
        RegexForgotten("g", "x.*"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_every_record_comes_back_as_it_was(record: ConsumerRecord) -> None:
    assert records.decode(*records.encode(record)) == record


def test_what_was_assigned_before_partitions_had_epochs_counts_as_assigned_in_the_first() -> None:
    key, value = records.encode(CurrentRecorded("g", "m", 5, 4, 0, {TOPIC_ID: {3: 5}}, {}))
    assert value is not None
    tags = b"\x01\x00\x05\x02\x00\x00\x00\x05"
    assert tags in value
    assert records.decode(key, value.replace(tags, b"\x00")) == CurrentRecorded(
        "g", "m", 5, 4, 0, {TOPIC_ID: {3: 0}}, {}
    )


@pytest.mark.parametrize("damage", [b"", b"\x00", b"\x00\x01\x00\x00\x00\x00", b"\x00\x00\xff"])
def test_bytes_that_are_no_value_are_no_record(damage: bytes) -> None:
    for kind in (3, 5, 6, 7, 8, 16):
        key = kind.to_bytes(2, "big") + b"\x00\x01g" + b"\x00\x01m" * (kind in (5, 7, 8, 16))
        assert records.decode(key, damage) is None
