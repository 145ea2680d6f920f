"""What a compaction costs the clients of a broker: the latency of produce and fetch, without one and beside one.

A compacted topic is filled and held back by its `min.cleanable.dirty.ratio`. One message after another is then
produced to another topic and fetched at once, at an even pace: first with the broker idle, then while it compacts,
which files and child processes show. A run whose compaction does not come to its end, or is over before enough was
measured, counts as not done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from bench.measure import Reading, WorkNotDone, latency_readings
from bench.raw import RawConnection, fetch_request, produce_request
from bench.server import Server
from bench.topics import READY_TIMEOUT_S, fresh_topic
from moldau.base.ids import TopicPartition
from moldau.log.checkpoints import BadCheckpoint, read_offsets
from moldau.records.record import Record, build_batch

MESSAGES_PER_BATCH = 16
MESSAGE_BYTES = 1000
HOT_KEYS = 1000
"""Half of each batch is written under these, again and again: half of each segment goes, and all are written anew."""
PACE_S = 0.004
SAMPLES_MIN = 100
COMPACTION_TIMEOUT_S = 300
NEVER, AT_ONCE = "1.0", "0.0"
NODE_ID = "1"

Latencies = tuple[list[float], list[float]]
"""Of produces and of fetches, in seconds."""


def latency_beside_compaction(server: Server, fill_bytes: int, idle_s: float) -> Iterator[Reading]:
    held_back = fresh_topic(
        server, cleanup_policy="compact", min_cleanable_dirty_ratio=NEVER, segment_bytes=str(16 << 20)
    )
    with held_back as compacted, fresh_topic(server) as used:
        fill(server, compacted, fill_bytes)
        probe = Probe(server, used)
        idle_until = time.monotonic() + idle_s
        without = probe.measure(lambda: time.monotonic() < idle_until, lambda: True)
        log = Watched(server, compacted)
        set_config(server, ResourceType.BROKER, NODE_ID, "log.cleaner.backoff.ms", "200")
        set_config(server, ResourceType.TOPIC, compacted, "min.cleanable.dirty.ratio", AT_ONCE)
        beside = probe.measure(log.is_dirty, log.is_being_compacted)
        set_config(server, ResourceType.BROKER, NODE_ID, "log.cleaner.backoff.ms", None)
        probe.close()
    if len(beside[0]) < SAMPLES_MIN:
        raise WorkNotDone(f"the compaction was over after {len(beside[0])} messages")
    for what, index in (("produce", 0), ("fetch", 1)):
        yield from latency_readings(f"{what} without a compaction", without[index])
        yield from latency_readings(f"{what} beside a compaction", beside[index])


def fill(server: Server, topic: str, total_bytes: int) -> None:
    now_ms = int(time.time() * 1000)
    value = bytes(MESSAGE_BYTES)
    with RawConnection(server.bootstrap_servers) as connection:
        for first in range(0, total_bytes // MESSAGE_BYTES, MESSAGES_PER_BATCH):
            numbers = range(first, first + MESSAGES_PER_BATCH)
            keys = [b"%012d" % (number % HOT_KEYS if number % 2 else HOT_KEYS + number) for number in numbers]
            records = [Record(i, now_ms, key, value) for i, key in enumerate(keys)]
            connection.ask(produce_request(topic, 0, build_batch(records)))


class Probe:
    """Produces and fetches one message after another, each on a connection of its own."""

    def __init__(self, server: Server, topic: str) -> None:
        self._topic = topic
        self._producer = RawConnection(server.bootstrap_servers)
        self._consumer = RawConnection(server.bootstrap_servers)
        self._offsets = count()
        self._batch = build_batch([Record(0, int(time.time() * 1000), b"key", bytes(MESSAGE_BYTES))])

    def measure(self, goes_on: Callable[[], bool], counts: Callable[[], bool]) -> Latencies:
        """While something goes on; what is measured while it does not count is left out."""
        produced, fetched = [], []
        deadline = time.monotonic() + COMPACTION_TIMEOUT_S
        while goes_on():
            if time.monotonic() > deadline:
                raise WorkNotDone(f"no end after {COMPACTION_TIMEOUT_S} s")
            began = time.perf_counter()
            self._producer.ask(produce_request(self._topic, 0, self._batch))
            between = time.perf_counter()
            answer = self._consumer.ask(fetch_request(self._topic, 0, next(self._offsets)))
            ended = time.perf_counter()
            if not answer.responses[0].partitions[0].records:
                raise WorkNotDone("a message that was acknowledged was not there")
            if counts():
                produced.append(between - began)
                fetched.append(ended - between)
            time.sleep(max(0.0, PACE_S - (time.perf_counter() - began)))
        return produced, fetched

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()


class Watched:
    """How far a broker has come with a log, from its files and processes: asked at every message, so cheaply."""

    def __init__(self, server: Server, topic: str) -> None:
        self._partition = TopicPartition(topic, 0)
        self._folder = next(path for path in server.data.rglob(f"{topic}-0") if path.is_dir())
        self._checkpoint = self._folder.parent / "cleaner-offset-checkpoint"
        self._end_offset = max(int(path.stem) for path in self._folder.glob("*.log"))
        self._tasks = Path(f"/proc/{server.pid}/task")
        self._changed: int | None = None
        self._cleaned_to = 0

    def is_dirty(self) -> bool:
        try:
            changed = self._checkpoint.stat().st_mtime_ns
            if changed != self._changed:
                self._cleaned_to = read_offsets(self._checkpoint.read_bytes()).get(self._partition, 0)
                self._changed = changed
        except (FileNotFoundError, BadCheckpoint):
            pass
        return self._cleaned_to < self._end_offset

    def is_being_compacted(self) -> bool:
        return any(path.name.endswith(".cleaned") for path in self._folder.iterdir()) or any(
            children.read_text().strip() for children in self._tasks.glob("*/children")
        )


def set_config(server: Server, kind: ResourceType, name: str, key: str, value: str | None) -> None:
    """None takes the setting back."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    resource = ConfigResource(kind, name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    admin.incremental_alter_configs([resource])[resource].result(READY_TIMEOUT_S)
