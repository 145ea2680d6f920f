"""Offsets of partitions as Spark's checkpoint keeps them: the JSON of Spark's own Kafka connector,
`{"topic":{"0":23}}`.

An offset is the next one to read. Three more things stand in the same JSON, as keys with nothing in them: no topic
can have such a name, and Spark's own connector reads a key without partitions as nothing at all, so a checkpoint
written here goes on there, and the other way round.

    "orders/id/4pXmAuZzSpuK4lHqzr1o2A": {}    the topic's id: one that was deleted and created anew is another topic
    "orders/first/3/0": {}                    where this batch begins in a partition that the batch before did not have
    "/together/4000": {}                      partitions of this batch share a task up to so many offsets

With the latter two a batch that runs again reads the same ranges in the same tasks, whatever retention, `latest` or the
options would say by then, and whoever has planned it.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

EARLIEST = -2
LATEST = -1
EXAMPLE = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
EXAMPLE_OF_TIMES = """{"topicA": {"0": 123456789, "1": 123456789},
"topicB": {"0": 123456789, "1": 123456789}}"""
EXAMPLE_OF_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets = dict[TopicPartition, int]


def listed(partitions: Iterable[TopicPartition]) -> str:
    """As Spark's messages write a set of partitions."""
    return f"Set({', '.join(str(partition) for partition in sorted(partitions))})"


@dataclass(slots=True)
class Position:
    """Where a query stands between two batches."""

    offsets: Offsets = field(default_factory=dict)
    topic_ids: dict[str, UUID] = field(default_factory=dict)
    first_offsets: Offsets = field(default_factory=dict)
    together: int = 1


def read_position(stored: Mapping[str, Mapping[str, int]]) -> Position:
    position = Position()
    for name, partitions in stored.items():
        match name.split("/"):
            case [topic]:
                for partition, offset in partitions.items():
                    position.offsets[TopicPartition(topic, int(partition))] = offset
            case [topic, "id", topic_id]:
                position.topic_ids[topic] = read_id(topic_id)
            case [topic, "first", partition, offset]:
                position.first_offsets[TopicPartition(topic, int(partition))] = int(offset)
            case ["", "together", offsets]:
                position.together = int(offsets)
            case _:
                raise ValueError(f"the checkpoint has an offset that this version does not know: {name!r}")
    return position


def write_position(position: Position) -> dict[str, dict[str, int]]:
    """Always in the same order: Spark compares the text."""
    written: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(position.offsets.items()):
        written.setdefault(topic, {})[str(partition)] = offset
    for topic, topic_id in sorted(position.topic_ids.items()):
        written[f"{topic}/id/{write_id(topic_id)}"] = {}
    for (topic, partition), offset in sorted(position.first_offsets.items()):
        written[f"{topic}/first/{partition}/{offset}"] = {}
    if position.together != 1:
        written[f"/together/{position.together}"] = {}
    return written


def write_id(topic_id: UUID) -> str:
    """As Kafka's tools print it."""
    return urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def read_id(text: str) -> UUID:
    return UUID(bytes=urlsafe_b64decode(text + "=="))


def parse_offsets(text: str) -> Offsets:
    """The option's JSON. ValueError with the words of Spark's connector."""
    return _parse(text, EXAMPLE)


def parse_timestamps(text: str) -> Offsets:
    return _parse(text, EXAMPLE_OF_TIMES)


def _parse(text: str, example: str) -> Offsets:
    try:
        read = json.loads(text)
        return {
            TopicPartition(topic, int(partition)): _whole(number)
            for topic, partitions in read.items()
            for partition, number in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"Expected e.g. {example}, got {text}") from None


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    try:
        read = json.loads(text)
        return frozenset(
            TopicPartition(topic, _whole(partition))
            for topic, partitions in read.items()
            for partition in partitions
        )
    except (ValueError, TypeError, AttributeError):
        raise ValueError(f"Expected e.g. {EXAMPLE_OF_PARTITIONS}, got {text}") from None


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(number)
    return number
