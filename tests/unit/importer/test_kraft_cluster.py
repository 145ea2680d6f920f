"""The cluster that a metadata log describes, by way of a snapshot or from the beginning; and damage to either."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from golden.kraft import LOG
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.importer.kraft_cluster import KafkaCluster, KafkaPartition
from moldau.importer.kraft_log import BadMetadata, WrittenByNewer, newest_snapshot, read_metadata
from moldau.importer.kraft_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from moldau.records.record import Record, build_batch

TOPIC = UUID(int=1)


def read(folder: Path) -> KafkaCluster:
    return KafkaCluster.of(read_metadata(ReadOnlyDisk(), str(folder)))


def facts(cluster: KafkaCluster) -> dict[str, Any]:
    return vars(cluster) | {
        "_topics": {topic.name: (topic.topic_id, topic.partitions) for topic in cluster.topics}
    }


def test_a_snapshot_and_the_rest_of_the_log_are_the_whole_log(metadata: Path) -> None:
    found = newest_snapshot(ReadOnlyDisk(), str(metadata))
    assert found is not None
    assert 0 < found[0] < json.loads(LOG.read_text().splitlines()[-1])["offset"]
    with_snapshot = facts(read(metadata))
    for snapshot in metadata.glob("*.checkpoint"):
        snapshot.unlink()
    assert facts(read(metadata)) == with_snapshot


def test_the_cluster_is_what_was_made_of_it(metadata: Path) -> None:
    cluster = read(metadata)
    shapes = {topic.name: len(topic.partitions) for topic in cluster.topics}
    assert shapes == {
        "__consumer_offsets": 1,
        "__transaction_state": 1,
        "grown": 3,
        "orders": 2,
        "payments": 1,
        "reborn": 1,
    }
    assert cluster.topic_configs("orders") == {"retention.ms": "-1", "min.insync.replicas": "1"}
    assert cluster.topic_configs("reborn") == {"retention.ms": "3600000"}
    assert cluster.topic_configs("grown") == {"retention.bytes": "1000000"}
    assert cluster.configs[4, "7"] == {"log.cleaner.threads": "2"}
    assert cluster.configs[32, "g1"] == {"consumer.session.timeout.ms": "50000"}
    assert cluster.configs[16, "m1"] == {"interval.ms": "1000"}
    assert cluster.brokers == {7}
    assert cluster.voter_count == 1
    assert cluster.metadata_version == 30
    assert cluster.next_producer_id == 1000
    assert {user: sorted(own) for user, own in cluster.users.items()} == {"al": [1]}
    assert cluster.quotas == {(("client-id", "c1"),): {"producer_byte_rate": 1000.0}}
    (acl,) = cluster.acls.values()
    assert acl.principal in ("User:al", "User:bo")
    assert not any(cluster.left_out.values())


def test_a_new_leader_has_a_new_epoch() -> None:
    cluster = KafkaCluster.of(
        [
            TopicRecord("t", TOPIC),
            PartitionRecord(0, TOPIC, (1,), 1, 4, 6, ()),
            PartitionChangeRecord(0, TOPIC, None, None, (UUID(int=9),)),
            PartitionChangeRecord(0, TOPIC, -1, None, None),
            PartitionChangeRecord(0, TOPIC, 1, (1,), None),
        ]
    )
    assert cluster.topics[0].partitions[0] == KafkaPartition((1,), 1, 6, 9, (UUID(int=9),))


def test_records_of_a_transaction_count_when_it_ends() -> None:
    cluster = KafkaCluster()
    for record in (BeginTransactionRecord(), TopicRecord("t", TOPIC), ProducerIdsRecord(5000)):
        cluster.apply(record)
    assert (cluster.topics, cluster.next_producer_id) == ([], 0)
    cluster.apply(EndTransactionRecord())
    assert ([topic.name for topic in cluster.topics], cluster.next_producer_id) == (["t"], 5000)


def test_an_aborted_transaction_has_changed_nothing() -> None:
    records = (
        BeginTransactionRecord(),
        TopicRecord("t", TOPIC),
        AbortTransactionRecord(),
        ProducerIdsRecord(1),
    )
    cluster = KafkaCluster.of(records)
    assert (cluster.topics, cluster.next_producer_id) == ([], 1)


@pytest.mark.parametrize(
    "record",
    [
        RemoveTopicRecord(TOPIC),
        PartitionRecord(0, TOPIC, (1,), 1, 0, 0, ()),
        PartitionChangeRecord(0, TOPIC, 1, None, None),
        EndTransactionRecord(),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_about_what_is_not_there_is_damage(record: RemoveTopicRecord) -> None:
    with pytest.raises(BadMetadata):
        KafkaCluster.of([record])


# ---- damage -----------------------------------------------------------------------------------------------------


def segment(metadata: Path) -> Path:
    return metadata / f"{0:020d}.log"


def without_snapshots(metadata: Path) -> Path:
    for snapshot in metadata.glob("*.checkpoint"):
        snapshot.unlink()
    return metadata


def test_a_flipped_bit_anywhere_in_the_log_is_found(metadata: Path) -> None:
    whole = facts(read(without_snapshots(metadata)))
    good = segment(metadata).read_bytes()
    for position in range(0, len(good), 17):
        bad = bytearray(good)
        bad[position] ^= 0x10
        segment(metadata).write_bytes(bad)
        try:
            found = facts(read(metadata))
        except BadMetadata as damage:
            assert str(segment(metadata)) in str(damage)
        else:
            assert found == whole  # a leader epoch, which no checksum covers and an import does not use


def test_a_flipped_bit_in_the_snapshot_is_found(metadata: Path) -> None:
    snapshot = max(metadata.glob("*.checkpoint"))
    bad = bytearray(snapshot.read_bytes())
    bad[len(bad) // 2] ^= 1
    snapshot.write_bytes(bad)
    with pytest.raises(BadMetadata, match=r"checkpoint at \d+: the checksum does not match"):
        read(metadata)


def test_a_snapshot_without_its_end_is_not_taken_for_whole(metadata: Path) -> None:
    snapshot = max(metadata.glob("*.checkpoint"))
    footer_bytes = 75
    snapshot.write_bytes(snapshot.read_bytes()[:-footer_bytes])
    with pytest.raises(BadMetadata, match="no footer"):
        read(metadata)


def test_a_log_that_is_cut_off_within_a_batch_is_damaged(metadata: Path) -> None:
    data = segment(metadata).read_bytes()
    segment(metadata).write_bytes(data[:-10])
    with pytest.raises(BadMetadata, match="beyond the end"):
        read(metadata)


def test_a_missing_segment_is_noticed(metadata: Path) -> None:
    without_snapshots(metadata)
    segment(metadata).rename(metadata / f"{40:020d}.log")
    with pytest.raises(BadMetadata, match="begins at 40, but 0 is due"):
        read(metadata)


def test_a_gap_between_batches_is_noticed(metadata: Path) -> None:
    without_snapshots(metadata)
    data = segment(metadata).read_bytes()
    first_batch_bytes = int.from_bytes(data[8:12], "big") + 12
    segment(metadata).write_bytes(data[first_batch_bytes:])
    with pytest.raises(BadMetadata, match="where 0 is due"):
        read(metadata)


def test_a_record_of_a_newer_kafka_is_told_apart_from_damage(metadata: Path) -> None:
    without_snapshots(metadata)
    record = Record(0, 1_700_000_000_000, None, bytes((1, 77, 0)))
    segment(metadata).write_bytes(build_batch([record]))
    with pytest.raises(WrittenByNewer, match="record type 77 version 0 is not known"):
        read(metadata)
