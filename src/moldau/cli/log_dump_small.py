"""The small files of logs and data folders, for `moldau log dump`."""

from __future__ import annotations

from moldau.cli.log_dump_print import Printer
from moldau.log import names
from moldau.log.checkpoints import (
    BadCheckpoint,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    read_properties,
)
from moldau.log.inspect.files import OFFSET_CHECKPOINTS
from moldau.log.snapshots import BadSnapshot, read_snapshot

SMALL_FILES = frozenset(
    {
        names.META_PROPERTIES,
        names.CLEAN_SHUTDOWN,
        names.LEADER_EPOCHS,
        names.PARTITION_METADATA,
        *OFFSET_CHECKPOINTS,
    }
)


def dump_small(data: bytes, path: str, name: str, printer: Printer) -> None:
    """What a small file holds; where it is damaged, why it cannot be read."""
    try:
        if not data and name in OFFSET_CHECKPOINTS:
            printer.nothing()  # as a fresh folder of Kafka has it
        elif name == names.META_PROPERTIES:
            printer.fields("properties", path, read_properties(data))
        elif name == names.CLEAN_SHUTDOWN:
            printer.fields("clean-shutdown", path, {"content": data.decode("utf-8", "replace").strip()})
        elif name == names.PARTITION_METADATA:
            printer.fields("metadata", path, {"topic_id": names.id_text(read_partition_metadata(data))})
        elif name == names.LEADER_EPOCHS:
            for epoch, start_offset in read_epochs(data):
                printer.fields("epoch", path, {"epoch": epoch, "start_offset": start_offset})
        elif name in OFFSET_CHECKPOINTS:
            for (topic, partition), offset in sorted(read_offsets(data).items()):
                printer.fields("offset", path, {"topic": topic, "partition": partition, "offset": offset})
        else:
            dump_snapshot(data, path, printer)
    except (BadCheckpoint, BadSnapshot) as damage:
        printer.remark(path, None, str(damage))


def dump_snapshot(data: bytes, path: str, printer: Printer) -> None:
    entries = read_snapshot(data)
    if not entries:
        printer.nothing()
    for entry in entries:
        fields = {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.epoch,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "timestamp": entry.last_timestamp,
            "coordinator_epoch": entry.coordinator_epoch,
            "transaction_first_offset": entry.current_txn_first_offset,
        }
        printer.fields("producer", path, fields)
