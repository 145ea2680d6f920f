"""Every record of a real metadata log is read as Kafka's own DumpLogSegments reads it."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from golden.kraft import LOG, SNAPSHOT
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.importer import kraft_records as kraft
from moldau.log.index import read_waiting
from moldau.log.names import id_of
from moldau.log.scan import checked_batches
from moldau.records.record import read_records
from moldau.wire.primitives import pack_uvarint

PASSED_OVER = {
    "BROKER_REGISTRATION_CHANGE_RECORD",
    "CLEAR_ELR_RECORD",
    "NO_OP_RECORD",
    "REGISTER_CONTROLLER_RECORD",
}


def expected(type_: str, data: dict[str, Any]) -> kraft.MetadataRecord | None:
    """Our record for what Kafka's tool printed."""

    def uuid(name: str = "topicId") -> UUID:
        return id_of(data[name])

    def numbers(name: str) -> tuple[int, ...] | None:
        return tuple(data[name]) if data.get(name) is not None else None

    def directories() -> tuple[UUID, ...] | None:
        return tuple(map(id_of, data["directories"])) if data.get("directories") is not None else None

    match type_:
        case "TOPIC_RECORD":
            return kraft.TopicRecord(data["name"], uuid())
        case "REMOVE_TOPIC_RECORD":
            return kraft.RemoveTopicRecord(uuid())
        case "PARTITION_RECORD":
            return kraft.PartitionRecord(
                data["partitionId"],
                uuid(),
                numbers("replicas") or (),
                data["leader"],
                data["leaderEpoch"],
                data["partitionEpoch"],
                directories() or (),
            )
        case "PARTITION_CHANGE_RECORD":
            return kraft.PartitionChangeRecord(
                data["partitionId"], uuid(), data.get("leader"), numbers("replicas"), directories()
            )
        case "CONFIG_RECORD":
            return kraft.ConfigRecord(data["resourceType"], data["resourceName"], data["name"], data["value"])
        case "PRODUCER_IDS_RECORD":
            return kraft.ProducerIdsRecord(data["nextProducerId"])
        case "FEATURE_LEVEL_RECORD":
            return kraft.FeatureLevelRecord(data["name"], data["featureLevel"])
        case "REGISTER_BROKER_RECORD":
            return kraft.RegisterBrokerRecord(data["brokerId"])
        case "BEGIN_TRANSACTION_RECORD":
            return kraft.BeginTransactionRecord()
        case "END_TRANSACTION_RECORD":
            return kraft.EndTransactionRecord()
        case "ACCESS_CONTROL_ENTRY_RECORD":
            kind, pattern = data["resourceType"], data["patternType"]
            rule = data["principal"], data["host"], data["operation"], data["permissionType"]
            return kraft.AclRecord(uuid("id"), kind, data["resourceName"], pattern, *rule)
        case "REMOVE_ACCESS_CONTROL_ENTRY_RECORD":
            return kraft.RemoveAclRecord(uuid("id"))
        case "USER_SCRAM_CREDENTIAL_RECORD":
            keys = (b64decode(data[name]) for name in ("salt", "storedKey", "serverKey"))
            return kraft.ScramRecord(data["name"], data["mechanism"], *keys, data["iterations"])
        case "REMOVE_USER_SCRAM_CREDENTIAL_RECORD":
            return kraft.RemoveScramRecord(data["name"], data["mechanism"])
        case "CLIENT_QUOTA_RECORD":
            entity = tuple((part["entityType"], part["entityName"]) for part in data["entity"])
            return kraft.QuotaRecord(entity, data["key"], data["value"], data["remove"])
    assert type_ in PASSED_OVER, type_
    return None


def values(path: Path) -> Iterator[tuple[int, bytes]]:
    disk = ReadOnlyDisk()
    for batch, data in checked_batches(disk.open(str(path)), 0, path.stat().st_size, read_waiting):
        if not batch.header.is_control:
            for record in read_records(data):
                yield record.offset, record.value or b""


@pytest.mark.parametrize(("name", "dump"), [("*.log", LOG), ("*.checkpoint", SNAPSHOT)])
def test_records_are_what_kafkas_own_tool_says(metadata: Path, name: str, dump: Path) -> None:
    printed = [json.loads(line) for line in dump.read_text().splitlines()]
    found = list(values(max(metadata.glob(name))))
    assert [offset for offset, _ in found] == [record["offset"] for record in printed]
    assert len({record["type"] for record in printed}) > 6
    for (_, value), record in zip(found, printed, strict=True):
        assert kraft.decode(value) == expected(record["type"], record["data"])


def test_a_record_that_is_cut_off_anywhere_is_refused(metadata: Path) -> None:
    for _, value in values(max(metadata.glob("*.log"))):
        if kraft.decode(value) is not None:
            for length in range(len(value)):
                with pytest.raises(kraft.BadRecord):
                    kraft.decode(value[:length])


def test_bytes_after_a_record_are_refused(metadata: Path) -> None:
    for _, value in values(max(metadata.glob("*.log"))):
        if kraft.decode(value) is not None:
            with pytest.raises(kraft.BadRecord):
                kraft.decode(value + b"\x00")


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ((1, 2, 1), "record type 2 version 1"),
        ((1, 99, 0), "record type 99 version 0"),
        ((2, 2, 0), "frame version 2"),
    ],
)
def test_what_a_newer_kafka_writes_is_not_guessed(head: tuple[int, ...], what: str) -> None:
    with pytest.raises(kraft.UnknownRecord, match=what):
        kraft.decode(b"".join(map(pack_uvarint, head)) + b"\x02t" + bytes(17))


def test_delegation_tokens_are_told_apart_by_their_id() -> None:
    def text(content: str) -> bytes:
        return pack_uvarint(len(content) + 1) + content.encode()

    made = (
        bytes((1, 10, 0))
        + text("User:al")
        + text("User:al")
        + b"\x02"
        + text("User:bo")
        + bytes(24)
        + text("id")
    )
    assert kraft.decode(made + b"\x00") == kraft.LeftOut("delegation token", "id", removed=False)
    gone = bytes((1, 26, 0)) + text("id") + b"\x00"
    assert kraft.decode(gone) == kraft.LeftOut("delegation token", "id", removed=True)


def test_an_array_that_lies_about_its_length_is_refused() -> None:
    head = bytes((1, 3, 2)) + bytes(4 + 16)
    with pytest.raises(kraft.BadRecord):
        kraft.decode(head + b"\xff\xff\xff\xff\x0f")


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_changed_bytes_are_a_record_or_refused(metadata: Path, data: st.DataObject) -> None:
    """Whatever is in the bytes: no other exception, and nothing that takes more room than they do."""
    known = [value for _, value in values(max(metadata.glob("*.log")))]
    record = bytearray(data.draw(st.sampled_from(known)))
    for _ in range(data.draw(st.integers(1, 4))):
        record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
    try:
        kraft.decode(bytes(record))
    except (kraft.BadRecord, kraft.UnknownRecord):
        pass
