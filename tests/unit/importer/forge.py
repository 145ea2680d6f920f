"""Changes to the metadata log of a stopped Kafka node, as Kafka would have written them."""

from __future__ import annotations

from pathlib import Path
from struct import pack
from uuid import UUID

from moldau.cli.log_disk import ReadOnlyDisk
from moldau.log.index import read_waiting
from moldau.log.scan import checked_batches
from moldau.records.record import Record, build_batch
from moldau.wire.primitives import pack_uvarint

NOW_MS = 1_790_000_000_000


def add_records(metadata: Path, *values: bytes, key: bytes | None = None) -> None:
    """Append records to the log; with a key they are control records."""
    path = max(metadata.glob("*.log"))
    next_offset = 0
    for batch, _ in checked_batches(ReadOnlyDisk().open(str(path)), 0, path.stat().st_size, read_waiting):
        next_offset = batch.header.next_offset
    records = [Record(next_offset + i, NOW_MS, key, value) for i, value in enumerate(values)]
    with path.open("ab") as file:
        file.write(build_batch(records, leader_epoch=1, control=key is not None))


def text(content: str) -> bytes:
    return pack_uvarint(len(content) + 1) + content.encode()


def feature_level(name: str, level: int) -> bytes:
    return bytes((1, 12, 0)) + text(name) + pack(">hx", level)


def register_broker(broker_id: int) -> bytes:
    return bytes((1, 0, 0)) + pack(">i24x", broker_id) + b"\x01\x01\x00\x01\x00"


def config(resource_type: int, resource_name: str, name: str, value: str) -> bytes:
    return bytes((1, 4, 0, resource_type)) + text(resource_name) + text(name) + text(value) + b"\x00"


def new_replicas(topic_id: UUID, partition: int, *replicas: int) -> bytes:
    array = pack_uvarint(len(replicas) + 1) + b"".join(pack(">i", replica) for replica in replicas)
    tagged = b"\x01\x02" + pack_uvarint(len(array)) + array
    return bytes((1, 5, 2)) + pack(">i", partition) + topic_id.bytes + tagged


def topic(name: str, topic_id: UUID) -> bytes:
    return bytes((1, 2, 0)) + text(name) + topic_id.bytes + b"\x00"


def partition(topic_id: UUID, number: int, node_id: int, directory: UUID) -> bytes:
    one, none = pack(">Bi", 2, node_id), b"\x01"
    fields = pack(">i", number) + topic_id.bytes + one + one + none + none + pack(">iii", node_id, 0, 0)
    return bytes((1, 3, 1)) + fields + b"\x02" + directory.bytes + b"\x00"


def voters(metadata: Path, count: int) -> None:
    """A leader is elected among so many controllers."""
    change = pack(">hi", 0, 1) + pack_uvarint(count + 1) + bytes(5 * count) + b"\x01\x00"
    add_records(metadata, change, key=pack(">hh", 0, 2))
