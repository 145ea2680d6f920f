"""Offsets of partitions: where they begin and end, and where a `--from` or `--to` of the user lies in them.

A position is written as `beginning`, `end`, an offset (`1500`), a number of messages before the end (`-10`), a time
(`2026-07-31T10:00`, `@1785492000000` in milliseconds) or a time ago (`-90s`, `-1h30m`, `-7d`). Messages are what a
reader is shown: not markers of transactions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from moldau.cli.errors import usage
from moldau.cli.message_read import last_offsets

if TYPE_CHECKING:
    from moldau.cli.client import Connection

UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
AGO = re.compile(r"-((?:\d+(?:ms|s|m|h|d|w))+)")
AGO_PART = re.compile(r"(\d+)(ms|s|m|h|d|w)")


class Kind(Enum):
    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "messages before the end"
    TIME = "time in milliseconds"


@dataclass(frozen=True)
class Position:
    kind: Kind
    value: int = 0


class Bounds(NamedTuple):
    """A partition's first offset and the offset that its next message will get."""

    first: int
    next: int


def parse_position(text: str, now_ms: int | None = None) -> Position:
    word = text.strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Position(Kind.BEGINNING)
    if word in ("end", "latest"):
        return Position(Kind.END)
    if re.fullmatch(r"\d+", word):
        return Position(Kind.OFFSET, int(word))
    if re.fullmatch(r"-\d+", word):
        return Position(Kind.BEFORE_END, -int(word))
    if re.fullmatch(r"@\d+", word):
        return Position(Kind.TIME, int(word[1:]))
    if AGO.fullmatch(word):
        ago_ms = sum(int(number) * UNIT_MS[unit] for number, unit in AGO_PART.findall(word))
        return Position(Kind.TIME, (int(time.time() * 1000) if now_ms is None else now_ms) - ago_ms)
    try:
        return Position(Kind.TIME, round(datetime.fromisoformat(text.strip()).timestamp() * 1000))
    except ValueError:
        raise usage(
            f"'{text}' is no position.",
            "Write beginning, end, an offset (1500), messages before the end (-10), "
            "a time (2026-07-31T10:00 or @MILLISECONDS) or a time ago (-1h30m).",
        ) from None


def partition_offsets(connection: Connection, topic: str, partitions: Iterable[int]) -> dict[int, Bounds]:
    """Where each partition begins and ends; a partition that cannot say is left out."""
    from confluent_kafka.admin import OffsetSpec

    wanted = list(partitions)
    firsts = list_offsets(connection, topic, wanted, OffsetSpec.earliest())
    nexts = list_offsets(connection, topic, wanted, OffsetSpec.latest())
    return {p: Bounds(firsts[p], nexts[p]) for p in wanted if p in firsts and p in nexts}


def resolve(
    connection: Connection, topic: str, bounds: dict[int, Bounds], position: Position
) -> dict[int, int]:
    """The offset that a position means in each partition, kept within what is there."""
    if position.kind is Kind.TIME:
        from confluent_kafka.admin import OffsetSpec

        found = list_offsets(connection, topic, list(bounds), OffsetSpec.for_timestamp(position.value))
        # -1: no message is that young, so reading starts with the next one.
        return {p: found[p] if found.get(p, -1) >= 0 else bounds[p].next for p in bounds}
    if position.kind is Kind.BEFORE_END:
        return last_offsets(connection, topic, bounds, position.value)
    return {partition: place(position, bound) for partition, bound in bounds.items()}


def place(position: Position, bound: Bounds) -> int:
    if position.kind is Kind.BEGINNING:
        return bound.first
    if position.kind is Kind.END:
        return bound.next
    return min(max(position.value, bound.first), bound.next)


def list_offsets(
    connection: Connection, topic: str, partitions: Sequence[int], spec: object
) -> dict[int, int]:
    from confluent_kafka import KafkaException, TopicPartition

    if not partitions:
        return {}
    futures = connection.admin.list_offsets(
        {TopicPartition(topic, partition): spec for partition in partitions},
        request_timeout=connection.target.timeout_s,
    )
    offsets = {}
    for topic_partition, future in futures.items():
        try:
            offsets[topic_partition.partition] = future.result(timeout=connection.target.timeout_s + 5).offset
        except KafkaException as error:
            if error.args[0].code() not in leaderless():
                raise connection.explain(error.args[0], subject=topic) from error
    return offsets


def leaderless() -> tuple[int, ...]:
    """Error codes of a partition that nobody leads just now: it is shown as such, not as a failure."""
    from confluent_kafka import KafkaError

    return (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT)
