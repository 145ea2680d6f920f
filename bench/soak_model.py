"""What a long run writes, and what must be there of it at the end.

Every message says who wrote it and which of its writer's messages to that partition it is, so a `Ledger` keeps numbers
and offsets only. Kept topics hold every acknowledged message that retention has not taken, once and in order; compacted
ones the last message of each key.
"""

from __future__ import annotations

import itertools
import threading
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.records.record import Record

KEYS_PER_WRITER = 50
TOMBSTONE_EVERY = 11
PADDING_BYTES_MAX = 300
COMPACTION_SHOWS_FROM = 5_000
"""Messages in a partition from which on half of them must be gone: there are far fewer keys."""
TIME_SLACK_MS = 2_000
"""The clock of a message is read before it is sent."""


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    partitions: int
    configs: dict[str, str]

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "delete")

    @property
    def retention_ms(self) -> int | None:
        return self._limit("retention.ms")

    @property
    def retention_bytes(self) -> int | None:
        return self._limit("retention.bytes")

    @property
    def segment_bytes(self) -> int:
        return int(self.configs["internal.segment.bytes"])

    def _limit(self, key: str) -> int | None:
        value = int(self.configs.get(key, "-1"))
        return value if value >= 0 else None


SMALL = {"file.delete.delay.ms": "1000", "index.interval.bytes": "1000", "segment.ms": "3000"}
TOPICS = (
    Topic(
        "soak-by-size",
        3,
        {
            **SMALL,
            "internal.segment.bytes": "150000",
            "retention.bytes": "1000000",
            "retention.ms": "-1",
        },
    ),
    Topic(
        "soak-by-time",
        2,
        {**SMALL, "internal.segment.bytes": "100000", "retention.ms": "20000"},
    ),
    Topic(
        "soak-compacted",
        2,
        {
            **SMALL,
            "internal.segment.bytes": "100000",
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.1",
            "delete.retention.ms": "5000",
        },
    ),
)


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None


class Origin(NamedTuple):
    writer: str
    number: int


def message_of(topic: Topic, writer: str, number: int) -> Message:
    """The message that a writer sends as its n-th one to a partition."""
    head = f"{writer}:{number:09d}:".encode()
    value = head + bytes([97 + number % 26]) * (number * 7 % PADDING_BYTES_MAX)
    if not topic.is_compacted:
        return Message(None, value)
    key = f"{writer}:{number * 7919 % KEYS_PER_WRITER}".encode()
    # A tombstone has no room for its number: the key is followed by nothing, and the ledger knows the offset.
    return Message(key, None if number % TOMBSTONE_EVERY == 0 else value)


def origin_of(value: bytes | None) -> Origin | None:
    """Who wrote it; None for a tombstone."""
    if value is None:
        return None
    writer, number, _ = value.split(b":", 2)
    return Origin(writer.decode(), int(number))


@dataclass(slots=True)
class Line:
    """What one writer has had acknowledged in one partition, in the order of the acknowledgements."""

    is_idempotent: bool
    numbers: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    """-1 where the broker knew a retry for a duplicate without its place."""
    times_ms: array[int] = field(default_factory=lambda: array("q"))


class Ledger:
    """Of all writers, and what went wrong. Written to by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[tuple[str, int, str], Line] = {}
        self.problems: list[str] = []

    def acknowledge(
        self,
        topic: str,
        partition: int,
        writer: str,
        number: int,
        offset: int,
        time_ms: int,
        *,
        is_idempotent: bool,
    ) -> None:
        with self._lock:
            line = self._lines.setdefault((topic, partition, writer), Line(is_idempotent))
            line.numbers.append(number)
            line.offsets.append(offset)
            line.times_ms.append(time_ms)

    def fail(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def lines(self, topic: str, partition: int) -> list[tuple[str, Line]]:
        with self._lock:
            return [
                (writer, line)
                for (name, index, writer), line in self._lines.items()
                if (name, index) == (topic, partition)
            ]

    @property
    def count(self) -> int:
        with self._lock:
            return sum(len(line.numbers) for line in self._lines.values())


class Stored(NamedTuple):
    """A partition as it is at the end."""

    log_start_offset: int
    next_offset: int
    size_bytes: int
    records: list[Record]


def check_partition(
    topic: Topic, stored: Stored, lines: Iterable[tuple[str, Line]], now_ms: int
) -> list[str]:
    """Everything that is not as it must be."""
    problems = []
    offsets = [record.offset for record in stored.records]
    if any(later <= earlier for earlier, later in itertools.pairwise(offsets)):
        problems.append("offsets do not ascend")
    if not topic.is_compacted and offsets != list(range(stored.log_start_offset, stored.next_offset)):
        problems.append(
            f"offsets have gaps: {len(offsets)} records from {stored.log_start_offset} to {stored.next_offset}"
        )
    check = _check_compacted if topic.is_compacted else _check_kept
    for writer, line in lines:
        problems += [f"{writer}: {problem}" for problem in check(topic, stored, writer, line, now_ms)]
    problems += _check_compaction(stored) if topic.is_compacted else _check_size(topic, stored)
    return problems


def _check_kept(topic: Topic, stored: Stored, writer: str, line: Line, now_ms: int) -> list[str]:
    problems = []
    by_offset = {record.offset: record for record in stored.records}
    for number, offset, time_ms in zip(line.numbers, line.offsets, line.times_ms, strict=True):
        if offset < 0:
            continue
        if offset >= stored.log_start_offset:
            found = by_offset.get(offset)
            if found is None or found.value != message_of(topic, writer, number).value:
                problems.append(f"message {number} was acknowledged at {offset}, and is not there")
        elif topic.retention_ms is not None and now_ms - time_ms < topic.retention_ms - TIME_SLACK_MS:
            problems.append(
                f"message {number} at {offset} is gone {topic.retention_ms - now_ms + time_ms} ms too early"
            )
    numbers = [o.number for r in stored.records if (o := origin_of(r.value)) and o.writer == writer]
    problems += check_order(numbers, is_idempotent=line.is_idempotent)
    return problems[:5]


def check_order(numbers: Sequence[int], *, is_idempotent: bool) -> list[str]:
    """Ascending: in order, and none twice. Idempotent messages are retried until they are stored: no gap."""
    for earlier, later in itertools.pairwise(numbers):
        if later <= earlier:
            return [f"message {later} comes after {earlier}"]
        if is_idempotent and later != earlier + 1:
            return [f"message {later} comes right after {earlier}"]
    return []


def _check_compacted(topic: Topic, stored: Stored, writer: str, line: Line, now_ms: int) -> list[str]:
    """The last message of each key, or a later one that was never acknowledged."""
    acknowledged: dict[bytes | None, int] = {}
    for number in line.numbers:
        key = message_of(topic, writer, number).key
        acknowledged[key] = max(number, acknowledged.get(key, -1))
    prefix = f"{writer}:".encode()
    last = {r.key: r.value for r in stored.records if (r.key or b"").startswith(prefix)}
    problems = []
    for key, number in acknowledged.items():
        wanted, found = message_of(topic, writer, number).value, last.get(key)
        if found == wanted:  # also a tombstone that is there, or was taken away in time
            continue
        origin = origin_of(found)
        is_later = not line.is_idempotent and (origin is None or origin.number > number)
        if not is_later:
            problems.append(f"key {key!r} has {found and found[:24]!r}, its last message was {number}")
    return problems[:5]


def _check_size(topic: Topic, stored: Stored) -> list[str]:
    """Retention by size takes whole segments, as long as enough is left, and no fewer."""
    limit = topic.retention_bytes
    if limit is None:
        return []
    if stored.log_start_offset > 0 and stored.size_bytes < limit:
        return [f"only {stored.size_bytes} bytes are left, {limit} are to be kept"]
    if stored.size_bytes > limit + 2 * topic.segment_bytes:
        return [f"{stored.size_bytes} bytes are there, {limit} are to be kept"]
    return []


def _check_compaction(stored: Stored) -> list[str]:
    if stored.next_offset >= COMPACTION_SHOWS_FROM and len(stored.records) > stored.next_offset // 2:
        return [f"{len(stored.records)} of {stored.next_offset} records are left: it was not compacted"]
    return []
