"""Reading ranges of partitions: for `message consume`, and to count messages.

Offsets are not messages: transactions leave markers in the log, aborted ones messages that no reader of committed
messages is shown, and compaction leaves gaps. How many messages there are is known to whoever has read them.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

    from moldau.cli.client import Connection

BATCH_MAX = 2000
WAIT_S = 0.25  # also the longest time until Ctrl-C is noticed
STEP_LEAST = 100
COUNTED_OFFSETS_MAX = 10_000
COUNTED_BYTES_MAX = 4 << 20
"""So much is read to count the messages of a topic."""


Place = tuple[str, int]


@dataclass(frozen=True)
class Range:
    """What is to be read of one partition; without `stop` there is no end."""

    start: int
    stop: int | None


def read(
    consumer: Consumer, connection: Connection, ranges: Mapping[Place, Range], count: int | None
) -> Iterable[list[Message]]:
    """Lists of messages, until every range is read or `count` is reached."""
    from confluent_kafka import KafkaError, TopicPartition

    consumer.assign([TopicPartition(*place, range_.start) for place, range_ in ranges.items()])
    open_ranges = dict(ranges)
    bounded = all(range_.stop is not None for range_ in ranges.values())
    remaining = count
    waiting_since = time.monotonic()
    while open_ranges and remaining != 0:
        received = receive(consumer, remaining)
        fresh = []
        for message in received:
            place = message.topic(), message.partition()
            range_ = open_ranges.get(place)
            failure = message.error()
            if failure is not None:
                if failure.code() != KafkaError._PARTITION_EOF:
                    raise connection.explain(failure, subject=place[0] or "")
                if range_ is not None and range_.stop is not None:
                    del open_ranges[place]
            elif range_ is not None:
                if range_.stop is None or message.offset() < range_.stop:
                    fresh.append(message)
                if range_.stop is not None and message.offset() + 1 >= range_.stop:
                    del open_ranges[place]
        if remaining is not None:
            del fresh[remaining:]
            remaining -= len(fresh)
        if fresh:
            yield fresh
        if received:
            waiting_since = time.monotonic()
        elif bounded and time.monotonic() - waiting_since > connection.target.timeout_s:
            raise connection.silent()


def receive(consumer: Consumer, limit: int | None) -> list[Message]:
    """What is there, or else the next message within WAIT_S: a batch call would wait until it is full."""
    size = BATCH_MAX if limit is None else max(1, min(BATCH_MAX, limit))
    messages: list[Message] = consumer.consume(size, 0)
    return messages or consumer.consume(1, WAIT_S)


def last_offsets(
    connection: Connection, topic: str, bounds: Mapping[int, tuple[int, int]], count: int
) -> dict[int, int]:
    """Where the last so many messages of each partition begin; where there are fewer, its first offset.

    `bounds` are each partition's first and next offset. It reads backwards, in steps that grow.
    """
    starts = {partition: max(first, next_ - count) for partition, (first, next_) in bounds.items()}
    if not count:
        return starts
    missing = dict.fromkeys(bounds, count)
    step = max(count, STEP_LEAST)
    ranges = {p: (starts[p], next_) for p, (_, next_) in bounds.items()}
    while ranges := {p: (start, stop) for p, (start, stop) in ranges.items() if start < stop}:
        for partition, offsets in offsets_shown(connection, topic, ranges).items():
            if len(offsets) >= missing[partition]:
                starts[partition] = offsets[-missing[partition]]
                del ranges[partition]
                continue
            missing[partition] -= len(offsets)
            stop = ranges[partition][0]
            starts[partition] = max(bounds[partition][0], stop - step)
            ranges[partition] = starts[partition], stop
        step *= 2
    return starts


def offsets_shown(
    connection: Connection, topic: str, ranges: Mapping[int, tuple[int, int]]
) -> dict[int, array[int]]:
    """The offsets of the messages in these ranges, in order."""
    found = {partition: array("q") for partition in ranges}
    consumer = connection.consumer()
    wanted = {(topic, partition): Range(*range_) for partition, range_ in ranges.items()}
    try:
        for messages in read(consumer, connection, wanted, None):
            for message in messages:
                found[message.partition()].append(message.offset())
    finally:
        consumer.close()
    return found


def count_messages(
    connection: Connection, topic: str, bounds: Mapping[int, tuple[int, int]]
) -> dict[int, int]:
    """How many messages each partition has, where there are so few that reading them takes no time; else only those
    that have no offsets are known."""
    counts = {partition: 0 for partition, (first, next_) in bounds.items() if first == next_}
    ranges = {(topic, p): Range(first, next_) for p, (first, next_) in bounds.items() if first < next_}
    if not ranges or sum(next_ - first for first, next_ in bounds.values()) > COUNTED_OFFSETS_MAX:
        return counts
    found = {partition: 0 for _, partition in ranges}
    left_bytes = COUNTED_BYTES_MAX
    consumer = connection.consumer()
    try:
        for messages in read(consumer, connection, ranges, None):
            for message in messages:
                found[message.partition()] += 1
                left_bytes -= len(message)
            if left_bytes < 0:
                return counts
    except CliError:  # a broker that does not answer now: what is known without it is shown all the same
        return counts
    finally:
        consumer.close()
    return counts | found
