"""What cannot be taken over whole is refused, with a sentence that says why and one that says what to do."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from moldau.cli.log_disk import ReadOnlyDisk
from moldau.importer.plan import plan_import
from moldau.importer.refusal import ImportRefused
from moldau.importer.source import Source, survey
from moldau.log.snapshots import read_snapshot, write_snapshot
from moldau.metadata.records import ConfigChanged, ConfigResource, ResourceType
from moldau.records.record import Record, build_batch
from moldau.security.acls import entry_of, pattern_of
from moldau.security.sasl.credentials import Credential, Mechanism

from . import forge

TIERED = UUID(int=99)
DAY_MS = 86_400_000
NOW_MS = forge.NOW_MS


def look(node: Path, *names: str) -> Source:
    return survey(ReadOnlyDisk(), [str(node / name) for name in names or ("a", "b")])


def home_of(node: Path, partition: str) -> Path:
    (found,) = node.glob(f"*/{partition}")
    return found


def topic_id(node: Path, name: str) -> UUID:
    return next(topic.topic_id for topic in look(node).cluster.topics if topic.name == name)


def rewrite(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def metadata(node: Path) -> Path:
    return node / "a" / "__cluster_metadata-0"


def not_stopped_cleanly(node: Path) -> None:
    (node / "b" / ".kafka_cleanshutdown").unlink()


def not_kafkas(node: Path) -> None:
    (node / "b" / "meta.properties").unlink()


def of_zookeepers_days(node: Path) -> None:
    rewrite(node / "b" / "meta.properties", "version=1", "version=0")


def of_another_cluster(node: Path) -> None:
    rewrite(node / "b" / "meta.properties", "cluster.id=", "cluster.id=x")


def of_another_node(node: Path) -> None:
    rewrite(node / "b" / "meta.properties", "node.id=7", "node.id=8")


def without_metadata(node: Path) -> None:
    shutil.rmtree(metadata(node))


def with_damaged_metadata(node: Path) -> None:
    path = max(metadata(node).glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")


def with_a_record_of_a_newer_kafka(node: Path) -> None:
    forge.add_records(metadata(node), bytes((1, 2, 9)))


def with_a_newer_metadata_version(node: Path) -> None:
    forge.add_records(metadata(node), forge.feature_level("metadata.version", 31))


def with_an_old_metadata_version(node: Path) -> None:
    forge.add_records(metadata(node), forge.feature_level("metadata.version", 6))


def never_started(node: Path) -> None:
    for path in metadata(node).iterdir():
        path.unlink()


def with_two_brokers(node: Path) -> None:
    forge.add_records(metadata(node), forge.register_broker(8))


def with_three_controllers(node: Path) -> None:
    forge.voters(metadata(node), 3)


def with_a_replica_elsewhere(node: Path) -> None:
    forge.add_records(metadata(node), forge.new_replicas(topic_id(node, "orders"), 1, 7, 9))


def with_a_log_missing(node: Path) -> None:
    shutil.rmtree(home_of(node, "orders-0"))


def with_a_log_twice(node: Path) -> None:
    home = home_of(node, "orders-0")
    other = node / ("a" if home.parent.name == "b" else "b")
    shutil.copytree(home, other / "orders-0")


def with_a_log_of_another_topic(node: Path) -> None:
    shutil.copy(home_of(node, "payments-0") / "partition.metadata", home_of(node, "orders-0"))


def with_a_log_of_no_known_topic(node: Path) -> None:
    (home_of(node, "orders-0") / "partition.metadata").unlink()


def with_a_log_that_lost_its_end(node: Path) -> None:
    """One whole batch less: nothing in the log itself tells."""
    path = home_of(node, "orders-0") / f"{0:020d}.log"
    data = path.read_bytes()
    last = 0
    while (after := last + 12 + int.from_bytes(data[last + 8 : last + 12], "big")) < len(data):
        last = after
    path.write_bytes(data[:last])


def with_a_torn_log(node: Path) -> None:
    path = home_of(node, "orders-0") / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])


def with_an_interrupted_compaction(node: Path) -> None:
    (home_of(node, "orders-0") / f"{0:020d}.log.swap").touch()


def with_records_of_kafka_0_10(node: Path) -> None:
    path = home_of(node, "orders-0") / f"{0:020d}.log"
    batch = bytearray(build_batch([Record(0, 0, None, b"old")]))
    batch[16] = 1
    path.write_bytes(batch)


def with_tiered_storage(node: Path) -> None:
    forge.add_records(
        metadata(node),
        forge.topic("tiered", TIERED),
        forge.partition(TIERED, 0, 7, UUID(int=0)),
        forge.config(2, "tiered", "remote.storage.enable", "true"),
    )


def with_a_gap_in_the_partitions(node: Path) -> None:
    forge.add_records(
        metadata(node), forge.topic("holes", TIERED), forge.partition(TIERED, 1, 7, UUID(int=0))
    )


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        (not_stopped_cleanly, "not stopped cleanly on .*/b", "Start Kafka on it once more"),
        (not_kafkas, "/b is not a data folder of Apache Kafka", "log.dirs"),
        (of_zookeepers_days, "version 0", "ZooKeeper"),
        (of_another_cluster, "not of one node: their cluster.id", "one Kafka node"),
        (of_another_node, "not of one node: their node.id is 7 and 8", "one Kafka node"),
        (without_metadata, "it is in none of the folders", "metadata.log.dir"),
        (with_damaged_metadata, r"metadata log is damaged: .*\.log at \d+: the checksum", "from a copy"),
        (with_a_record_of_a_newer_kafka, "newer version than 4.3: .*record type 2 version 9", "newer Moldau"),
        (with_a_newer_metadata_version, "metadata.version is 31, and 7 to 30", "newer Moldau"),
        (with_an_old_metadata_version, "metadata.version is 6, and 7 to 30", "Upgrade"),
        (never_started, "never ran on it", "nothing to import"),
        (with_two_brokers, r"several nodes \(brokers 7, 8\)", "mirroring"),
        (with_three_controllers, r"several nodes \(3 controllers\)", "mirroring"),
        (with_a_replica_elsewhere, "orders-1 is on the nodes 7, 9, not on 7 alone", "single node"),
        (with_a_log_missing, "orders-0 is in none of the folders named", "every folder"),
        (with_a_log_twice, "orders-0 is in two folders", "keeps one"),
        (with_a_log_of_another_topic, "orders-0 is of another topic of this name", "puts such folders aside"),
        (with_a_log_of_no_known_topic, "does not say to which topic", "from a copy"),
        (with_a_log_that_lost_its_end, "orders-0 ends at offset 20, and .* says 25", "clean"),
        (with_a_torn_log, "orders-0.* beyond the end", "moldau log verify"),
        (with_an_interrupted_compaction, "compaction of .*orders-0 was interrupted", "once more"),
        (with_records_of_kafka_0_10, "message format v1", "new one"),
        (with_tiered_storage, "tiered has records in tiered storage", "Kafka's own tools"),
        (with_a_gap_in_the_partitions, r"holes has partitions \[1\]", "from a copy"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_folder_is_refused_that_is(
    node: Path, change: Callable[[Path], None], message: str, hint: str
) -> None:
    look(node)  # as it was, it is good
    change(node)
    with pytest.raises(ImportRefused) as refused:
        look(node)
    assert re.search(message, refused.value.message), refused.value.message
    assert hint in refused.value.hint
    for sentence in (refused.value.message, refused.value.hint):
        assert sentence.endswith(".")
        assert "\n" not in sentence


def test_a_folder_in_use_is_refused(node: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    holder = os.open(node / "b" / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(ImportRefused, match="/b is in use by a running broker"):
            look(node)
    finally:
        os.close(holder)


def test_a_folder_of_log_dirs_that_is_not_named_is_missed(node: Path) -> None:
    with pytest.raises(ImportRefused) as refused:
        look(node, "a")
    assert refused.value.hint == "Name every folder of Kafka's log.dirs."


def test_the_metadata_may_be_in_a_folder_of_its_own(node: Path) -> None:
    """Kafka's metadata.log.dir, which gets no mark of a clean stop."""
    (node / "m").mkdir()
    metadata(node).rename(node / "m" / "__cluster_metadata-0")
    shutil.copy(node / "a" / "meta.properties", node / "m")
    assert len(look(node, "a", "b", "m").logs) == 9


def test_a_topic_that_kafka_had_no_time_to_make_is_empty(node: Path) -> None:
    forge.add_records(
        metadata(node), forge.topic("young", TIERED), forge.partition(TIERED, 0, 7, UUID(int=0))
    )
    plan = plan_import(look(node), NOW_MS)
    assert "young" in [topic.name for topic in plan.topics]
    assert "young" not in [log.partition.topic for log in plan.logs]


def test_producer_ids_that_are_given_here_are_none_that_kafka_gives_later(node: Path) -> None:
    """Kafka does not hear of them, and goes on with its own where it takes the folders back."""
    source = look(node)
    plan = plan_import(source, NOW_MS)
    assert plan.next_producer_id > source.cluster.next_producer_id + 1_000_000_000
    assert plan_import(source, NOW_MS + DAY_MS).next_producer_id > plan.next_producer_id + 1_000_000


def test_settings_that_moldau_would_refuse_are_left_out_and_told(node: Path) -> None:
    forge.add_records(
        metadata(node),
        forge.config(2, "orders", "retention.ms", "soon"),
        forge.config(2, "orders", "message.downconversion.enable", "true"),
        forge.config(4, "7", "advertised.listeners", "SSL://elsewhere:1"),
        forge.config(4, "9", "log.cleaner.threads", "3"),
    )
    plan = plan_import(look(node), NOW_MS)
    (orders,) = (topic for topic in plan.topics if topic.name == "orders")
    assert orders.configs == {"min.insync.replicas": "1"}
    told = "\n".join(plan.notes)
    for name in ("retention.ms=soon", "message.downconversion.enable", "advertised.listeners of broker 7"):
        assert f"{name}" in told
    assert "9" not in {record.resource.name for record in plan.records if hasattr(record, "resource")}


def test_a_min_isr_of_the_broker_alone_is_that_of_the_cluster(node: Path) -> None:
    forge.add_records(metadata(node), forge.config(4, "7", "min.insync.replicas", "2"))
    plan = plan_import(look(node), NOW_MS)
    settings = {
        record.resource: record.configs for record in plan.records if isinstance(record, ConfigChanged)
    }
    assert settings[ConfigResource(ResourceType.BROKER, "")]["min.insync.replicas"] == "2"
    assert settings[ConfigResource(ResourceType.BROKER, "7")] == {"log.cleaner.threads": "2"}
    assert "min.insync.replicas=2 of broker 7 is that of all brokers now." in plan.notes


def test_folders_of_no_topic_are_told(node: Path) -> None:
    shutil.copytree(home_of(node, "orders-0"), node / "b" / "unknown-5")
    plan = plan_import(look(node), NOW_MS)
    assert any("unknown-5: of no topic" in note for note in plan.notes)


def test_what_moldau_has_no_place_for_is_told(node: Path) -> None:
    source = look(node)
    source.cluster.left_out["delegation token"] = {"one"}
    told = "\n".join(plan_import(source, NOW_MS).notes)
    assert "1 delegation token is not taken over" in told
    assert "transaction" not in told  # those of payments have ended


def test_acls_are_taken_over_as_far_as_moldau_has_them(node: Path) -> None:
    source = look(node)
    ((acl_id, acl),) = source.cluster.acls.items()
    source.cluster.acls = {
        acl_id: acl,
        UUID(int=1): acl._replace(id=UUID(int=1), resource_type=99),
        UUID(int=2): acl._replace(id=UUID(int=2), principal="nobody"),
    }
    plan = plan_import(source, NOW_MS)
    (record,) = (
        record
        for record in plan.records
        if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.ACLS
    )
    taken = pattern_of(record.resource.name)
    assert (taken.name, taken.resource) == (acl.resource_name, acl.resource_type)
    assert [entry_of(text).principal for text in record.configs] == [acl.principal]
    notes = [note for note in plan.notes if "ACL" in note]
    assert len(notes) == 2 and "Could not parse principal from `nobody`" in notes[1]


def test_quotas_are_taken_over_as_far_as_moldau_has_them(node: Path) -> None:
    source = look(node)
    source.cluster.quotas[("ip", "kafka.example.com"),] = {"connection_creation_rate": 5.0}
    plan = plan_import(source, NOW_MS)
    (record,) = (
        record
        for record in plan.records
        if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.CLIENT_QUOTA
    )
    assert (record.resource.name, record.configs) == (
        '{"client-id":"c1"}',
        {"producer_byte_rate": "1000.0"},
    )
    (note,) = (note for note in plan.notes if "quota" in note)
    assert note == (
        "A quota of ip kafka.example.com is not taken over: "
        "kafka.example.com is not a valid IP or resolvable host."
    )


def test_users_keep_their_passwords(node: Path) -> None:
    (record,) = (
        record
        for record in plan_import(look(node), NOW_MS).records
        if isinstance(record, ConfigChanged) and record.resource.type is ResourceType.USER
    )
    assert record.resource.name == "al"
    mechanism = Mechanism.SHA_256
    expected = Credential.of_password(mechanism, "pw", b"salt", 4096)
    assert record.configs == {"SCRAM-SHA-256": expected.text}


def test_open_transactions_are_told(node: Path) -> None:
    (path,) = home_of(node, "payments-0").glob("*.snapshot")
    (producer,) = read_snapshot(path.read_bytes())
    producer.current_txn_first_offset = 2
    path.write_bytes(write_snapshot([producer]))
    told = "\n".join(plan_import(look(node), NOW_MS).notes)
    assert "payments-0: a transaction is open" in told


def test_records_that_would_soon_be_removed_are_told(node: Path) -> None:
    source = look(node)
    written_ms = max(log.oldest_ms or 0 for log in source.logs.values())
    assert not any("retention" in note for note in plan_import(source, written_ms + 6 * DAY_MS).notes)
    (note,) = (note for note in plan_import(source, written_ms + 8 * DAY_MS).notes if "retention" in note)
    assert note.startswith(
        "payments-0: records older than the topic's retention"
    )  # orders has retention.ms=-1
