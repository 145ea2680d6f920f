"""Small files and names, byte for byte as Apache Kafka 4.3.1 writes them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.ids import TopicPartition
from moldau.log import names
from moldau.log.checkpoints import (
    BadCheckpoint,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
    write_epochs,
    write_offsets,
    write_partition_metadata,
    write_properties,
)
from moldau.log.producers import BatchSeen, ProducerEntry
from moldau.log.snapshots import BadSnapshot, read_snapshot, write_snapshot

# A snapshot that Apache Kafka 4.3.1 wrote: producer 100 in epoch 1, producer 200 whose sequence wrapped.
KAFKAS_SNAPSHOT = bytes.fromhex(
    "0001fe7d5af900000004"
    "0000000000000064000100000001000000000000000f00000001000001a1e1a7a0d7ffffffffffffffffffffffff"
    "00000000000000c800000000000300000000000000170000"
    "0001000001a1e1a7a0d7ffffffffffffffffffffffff"
    "00000000000000c900000000000000000000000000190000"
    "0000000001a1e1a7a0d6ffffffffffffffffffffffff"
    "000000000000012c00000000000a000000000000001f0000"
    "0001000001a1e1a7a0d7ffffffffffffffffffffffff"
)


def test_offsets_are_written_as_kafka_writes_them() -> None:
    offsets = {TopicPartition("a-b", 3): 17, TopicPartition("t", 0): 0}
    assert write_offsets(offsets) == b"0\n2\na-b 3 17\nt 0 0\n"
    assert read_offsets(write_offsets(offsets)) == offsets
    assert read_offsets(b"") == {}


def test_epochs_are_written_as_kafka_writes_them() -> None:
    assert write_epochs([(0, 0), (3, 25)]) == b"0\n2\n0 0\n3 25\n"
    assert read_epochs(b"0\n2\n0 0\n3 25\n") == [(0, 0), (3, 25)]


@pytest.mark.parametrize(
    "damage", [b"1\n0\n", b"0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0 x\n", b"0\n1\nt 0\n", b"\xff\xfe"]
)
def test_a_damaged_checkpoint_is_recognised(damage: bytes) -> None:
    with pytest.raises(BadCheckpoint):
        read_offsets(damage)
    with pytest.raises(BadCheckpoint):
        read_epochs(damage)


def test_partition_metadata_holds_the_topic_id() -> None:
    topic_id = uuid.UUID(int=1)
    assert write_partition_metadata(topic_id) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    assert read_partition_metadata(write_partition_metadata(topic_id)) == topic_id
    for damage in (
        b"",
        b"version: 0",
        b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ",
        b"version: 0\ntopic_id: x",
    ):
        with pytest.raises(BadCheckpoint):
            read_partition_metadata(damage)


def test_kafkas_own_meta_properties_are_read() -> None:
    written = b"#\n#Sun Nov 15 23:51:40 UTC 2026\nnode.id=1\nversion=1\ncluster.id=lct3XXq8TeKWl89EtVkkMA\n"
    assert read_properties(written) == {
        "node.id": "1",
        "version": "1",
        "cluster.id": "lct3XXq8TeKWl89EtVkkMA",
    }
    assert read_properties(write_properties({"a": "b=c"})) == {"a": "b=c"}


def test_kafkas_own_snapshot_is_read_and_written_the_same() -> None:
    entries = read_snapshot(KAFKAS_SNAPSHOT)
    assert [(e.producer_id, e.epoch, e.last_sequence, e.last_offset) for e in entries] == [
        (100, 1, 1, 15),
        (200, 0, 3, 23),
        (201, 0, 0, 25),
        (300, 0, 10, 31),
    ]
    assert entries[0].batches == [BatchSeen(0, 1, 14, 15, 1794787221719)]
    assert write_snapshot(entries) == KAFKAS_SNAPSHOT


@given(st.integers(0, len(KAFKAS_SNAPSHOT) - 1), st.integers(1, 255))
def test_a_snapshot_with_a_changed_byte_is_refused(position: int, flip: int) -> None:
    damaged = bytearray(KAFKAS_SNAPSHOT)
    damaged[position] ^= flip
    with pytest.raises(BadSnapshot):
        read_snapshot(bytes(damaged))


@given(st.integers(0, len(KAFKAS_SNAPSHOT) - 1))
def test_a_snapshot_that_is_cut_off_is_refused(length: int) -> None:
    with pytest.raises(BadSnapshot):
        read_snapshot(KAFKAS_SNAPSHOT[:length])


def test_a_producer_without_batches_is_kept_in_snapshots() -> None:
    entry = ProducerEntry(5, 3)
    entry.coordinator_epoch, entry.current_txn_first_offset, entry.last_timestamp = 2, 40, 9
    (again,) = read_snapshot(write_snapshot([entry]))
    assert (again.epoch, again.coordinator_epoch, again.current_txn_first_offset) == (3, 2, 40)
    assert again.batches == []


def test_names_are_kafkas() -> None:
    assert names.file_name(15, names.LOG) == "00000000000000000015.log"
    assert names.offset_of("00000000000000000015.log", names.LOG) == 15
    assert names.offset_of("00000000000000000015.log.deleted", names.LOG) is None
    assert names.partition_of("a-topic-3") == TopicPartition("a-topic", 3)
    assert names.partition_of("a-topic") is None
    deleted = names.deleted_folder(TopicPartition("t", 0), uuid.UUID(int=255))
    assert deleted == "t-0.000000000000000000000000000000ff-delete"
    assert names.partition_of(deleted) is None


def test_the_folder_of_a_deleted_topic_with_a_long_name_is_still_a_file_name() -> None:
    assert len(names.deleted_folder(TopicPartition("t" * 249, 100), uuid.UUID(int=1))) == 255


@given(st.uuids())
def test_ids_round_trip_as_text(value: uuid.UUID) -> None:
    assert names.id_of(names.id_text(value)) == value
    assert len(names.id_text(value)) == 22
