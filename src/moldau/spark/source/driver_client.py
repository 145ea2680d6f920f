"""The driver's consumer: it waits for records to come, and commits the query's progress to a group. It never joins
the group.

Waiting is a long poll at the ends of the partitions: the broker answers when there is something, so an idle query
costs two requests a second and no time when data comes. What it has received is thrown away; the tasks read it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from moldau.spark.source.offsets import Offsets, TopicPartition
from moldau.spark.source.options import SourceOptions

log = logging.getLogger(__name__)

RECOMMIT_S: Final = 3600.0
"""Brokers forget the offsets of a group without members after `offsets.retention.minutes`, on idle topics too."""
FLUSH_TIMEOUT_S: Final = 10.0
SAMPLE_S: Final = 30.0
"""For how long a look at a partition's records says how large they are."""
SAMPLE_TIMEOUT_S: Final = 2.0
SAMPLE_RECORDS: Final = 500
LONG_POLL: Final = {
    "enable.auto.commit": "false",
    "auto.offset.reset": "error",
    "fetch.min.bytes": "1",
    "fetch.wait.max.ms": "500",
    "fetch.message.max.bytes": "1",  # whole batches come all the same; one of them is enough
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1",
}


class DriverClient:
    def __init__(self, options: SourceOptions) -> None:
        self._group = options.progress_group
        config = options.client_config("consumer") | LONG_POLL
        config["group.id"] = self._group or options.group_id
        self._consumer = Consumer({**config, "on_commit": self._on_commit})
        self._watched: Offsets | None = None
        self._committed: Offsets | None = None
        self._committed_at = 0.0
        self._under_way = 0
        self._sizes: dict[TopicPartition, tuple[float, float]] = {}

    def wait_for_records(self, offsets: Offsets, timeout_s: float) -> bool:
        """True as soon as there is a record at one of the offsets or after it."""
        if self._watched != offsets:
            self._consumer.assign(
                [ClientPartition(*each, offset) for each, offset in sorted(offsets.items())]
            )
            self._watched = dict(offsets)
        message = self._consumer.poll(timeout_s)
        if message is None or message.error():
            return False
        self._consumer.unassign()
        self._watched = None
        return True

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Begin to commit them, where they are news. What becomes of it stands in the log: it is for lag tools only."""
        now = time.monotonic()
        if self._group is None or not offsets:
            return
        if offsets == self._committed and now < self._committed_at + RECOMMIT_S:
            return
        try:
            self._consumer.commit(
                offsets=[ClientPartition(*each, offset) for each, offset in sorted(offsets.items())]
            )
        except KafkaException as error:
            log.warning("The progress was not committed to the group %s: %s", self._group, error)
            return
        self._committed, self._committed_at = dict(offsets), now
        self._under_way += 1
        if self._watched is None:
            self._consumer.poll(
                0
            )  # earlier answers are taken: a query that is never idle waits for nothing else

    def bytes_per_offset(self, offsets: Offsets) -> dict[TopicPartition, float]:
        """About how many bytes of keys, values and headers there are to an offset, by a look at the records there.

        What was seen is good for a while; a partition that shows nothing in time is left out.
        """
        now = time.monotonic()
        wanted = {
            each: at
            for each, at in offsets.items()
            if each not in self._sizes or self._sizes[each][1] < now - SAMPLE_S
        }
        if wanted:
            for each, size in self._sample(wanted).items():
                self._sizes[each] = size, now
        return {each: self._sizes[each][0] for each in offsets if each in self._sizes}

    def _sample(self, offsets: Offsets) -> dict[TopicPartition, float]:
        self._consumer.assign([ClientPartition(*each, at) for each, at in sorted(offsets.items())])
        self._watched = None
        total: dict[TopicPartition, int] = dict.fromkeys(offsets, 0)
        seen: dict[TopicPartition, int] = {}
        deadline = time.monotonic() + SAMPLE_TIMEOUT_S
        while len(seen) < len(offsets) and time.monotonic() < deadline:
            for message in self._consumer.consume(SAMPLE_RECORDS, 0.1):
                each = TopicPartition(message.topic() or "", message.partition() or 0)
                if message.error() is None and each in offsets:
                    total[each] += _size(message)
                    seen[each] = message.offset()
        self._consumer.unassign()
        return {each: total[each] / (last - offsets[each] + 1) for each, last in seen.items()}

    def flush(self) -> None:
        """Wait until the commits are answered."""
        deadline = time.monotonic() + FLUSH_TIMEOUT_S
        while self._under_way and time.monotonic() < deadline:
            self._consumer.poll(0.05)

    def close(self) -> None:
        self._consumer.close()

    def _on_commit(self, error: Any, partitions: list[ClientPartition]) -> None:
        self._under_way -= 1
        failed = error or next((each.error for each in partitions if each.error), None)
        if failed:
            self._committed = None
            log.warning("The progress was not committed to the group %s: %s", self._group, failed)


def _size(message: Any) -> int:
    headers = sum(len(name) + len(value or b"") for name, value in message.headers() or ())
    return len(message.key() or b"") + len(message.value() or b"") + headers
