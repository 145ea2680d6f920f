"""The records of `__transaction_state`: what is written is read again, and is what Apache Kafka 4.3.1 writes."""

from __future__ import annotations

import pytest

from moldau.base.ids import TopicPartition
from moldau.coordinator.transaction.records import (
    TransactionForgotten,
    TransactionRecorded,
    decode,
    encode,
)
from moldau.coordinator.transaction.transaction import State, Transaction

PARTITIONS = (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))
ONGOING = Transaction(7, 3, 60_000, State.ONGOING, PARTITIONS, 1000, 2000, 2, previous_producer_id=7)


@pytest.mark.parametrize(
    "transaction",
    [
        Transaction(7, 0, 60_000, updated_ms=5),
        ONGOING,
        ONGOING._replace(state=State.PREPARE_COMMIT, next_producer_id=9),
        ONGOING._replace(state=State.COMPLETE_ABORT, partitions=(), version=0),
    ],
)
def test_a_record_is_read_as_it_was_written(transaction: Transaction) -> None:
    record = TransactionRecorded("my id", transaction)
    assert decode(*encode(record)) == record


def test_a_tombstone_forgets_the_id() -> None:
    key, value = encode(TransactionForgotten("my id"))
    assert value is None
    assert decode(key, None) == TransactionForgotten("my id")


def test_version_0_of_the_value_is_read() -> None:
    key, _ = encode(TransactionForgotten("t"))
    value = bytes.fromhex(
        "0000" "0000000000000007" "0003" "0000ea60" "01"
        "00000001" "0001" "61" "00000001" "00000002"
        "00000000000007d0" "00000000000003e8"
    )  # fmt: skip
    read = decode(key, value)
    assert read == TransactionRecorded(
        "t", Transaction(7, 3, 60_000, State.ONGOING, (TopicPartition("a", 2),), 1000, 2000)
    )


@pytest.mark.parametrize("value", [b"", b"\0\1", b"\0\2" + bytes(60), b"\0\1" + b"\xff" * 60])
def test_what_is_no_record_is_left_alone(value: bytes) -> None:
    key, _ = encode(TransactionForgotten("t"))
    assert decode(key, value) is None
    assert decode(b"\0\5" + key[2:], value) is None
