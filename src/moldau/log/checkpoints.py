"""The small text files of a data folder and of a log: offsets per partition, leader epochs, ids.

Readers raise `BadCheckpoint` for a file that is damaged; what it held is then rebuilt by whoever asked.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from moldau.base.ids import TopicPartition
from moldau.log.names import id_of, id_text

VERSION = "0"


class BadCheckpoint(ValueError):
    pass


def write_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [VERSION, str(len(offsets))]
    lines += (f"{partition.topic} {partition.partition} {offset}" for partition, offset in offsets.items())
    return ("\n".join(lines) + "\n").encode()


def read_offsets(data: bytes) -> dict[TopicPartition, int]:
    """An empty file, as a fresh data folder of Kafka has it, holds no offsets."""
    offsets = {}
    for line in _lines(data):
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise BadCheckpoint(f"not a line of an offset checkpoint: {line!r}") from None
    return offsets


def write_epochs(epochs: list[tuple[int, int]]) -> bytes:
    lines = [VERSION, str(len(epochs))]
    lines += (f"{epoch} {start_offset}" for epoch, start_offset in epochs)
    return ("\n".join(lines) + "\n").encode()


def read_epochs(data: bytes) -> list[tuple[int, int]]:
    epochs = []
    for line in _lines(data):
        try:
            epoch, start_offset = line.split(" ")
            entry = (int(epoch), int(start_offset))
        except ValueError:
            raise BadCheckpoint(f"not a line of a leader epoch checkpoint: {line!r}") from None
        if min(entry) < 0:
            raise BadCheckpoint(f"epochs and offsets are not negative: {line!r}")
        epochs.append(entry)
    return epochs


def _lines(data: bytes) -> list[str]:
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise BadCheckpoint("it is no text") from None
    if not lines:
        return []
    if lines[0] != VERSION:
        raise BadCheckpoint(f"unknown version {lines[0][:20]!r}")
    if len(lines) == 1 or not lines[1].isdecimal():
        raise BadCheckpoint("it does not say how many entries it has")
    if int(lines[1]) != len(lines) - 2:
        raise BadCheckpoint(f"{lines[1]} entries expected, {len(lines) - 2} found")
    return lines[2:]


def write_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: {VERSION}\ntopic_id: {id_text(topic_id)}".encode()


def read_partition_metadata(data: bytes) -> uuid.UUID:
    try:
        parts = (line.partition(": ") for line in data.decode().splitlines())
        fields = {key: value for key, _, value in parts}
        if fields["version"] != VERSION:
            raise BadCheckpoint(f"unknown version {fields['version']!r}")
        return id_of(fields["topic_id"])
    except KeyError as missing:
        raise BadCheckpoint(f"partition.metadata is damaged: it has no {missing.args[0]}") from None
    except ValueError:
        raise BadCheckpoint("partition.metadata is damaged: it has no valid topic_id") from None


def write_properties(properties: Mapping[str, str]) -> bytes:
    return ("#\n" + "".join(f"{key}={value}\n" for key, value in properties.items())).encode()


def read_properties(data: bytes) -> dict[str, str]:
    """`key=value` lines; enough of Java's format for what Kafka itself writes into meta.properties."""
    lines = (line.strip() for line in data.decode("latin-1").splitlines())
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "!")))
    return {key.strip(): value.strip() for key, _, value in pairs}
