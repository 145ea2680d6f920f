"""The broker that is attacked: a fresh process with a little honest content, replaced when an attack has spoilt it.

More content is made at the first attack that asks for it (`Content`): 10,000 partitions, a group with a heavy member,
a partition with many producers. `serves` tells whether an honest client can still produce and fetch.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Self
from uuid import UUID

from bench.apache_kafka import KafkaServer
from bench.server import HOST, MoldauServer, Server
from moldau.records.record import Record, build_batch
from moldau.runtime.real.free_ports import free_port

from .client import Client, first_error
from .pinger import memory_of_all
from .requests import Names

TOPIC = "attack-topic"
SHORT_TOPIC = "tt"
WIDE_TOPIC = "attack-wide"
WIDE_PARTITIONS = 10_000
MANY_TOPIC = "attack-64"
COMPACTED_TOPIC = "attack-compacted"
MANY_PARTITIONS = 64
PRODUCERS_TOPIC = "attack-producers"
PRODUCERS = 2_000
TRANSACTIONS = 500
LONG_TOPICS = ["".join(random.Random(seed).choices(ascii_lowercase, k=240)) for seed in range(20)]
GROUP = "attack-group"
HEAVY_GROUP = "attack-heavy"
HEAVY_BYTES = 900_000
WIDE_GROUP = "attack-wide-group"
TRANSACTIONAL_ID = "attack-transaction"
START_TIMEOUT_S = 120
MEMORY_DISK = "/dev/shm"
MEMORY_DISK_BYTES_MIN = 4_000_000_000
SERVES_TIMEOUT_S = 5


class MoldauHere(MoldauServer):
    """`moldau up` of the source tree that this interpreter imports."""

    def command(self) -> Sequence[str]:
        _, *words = super().command()
        return [sys.executable, "-c", "from moldau.cli import main; main()", *words]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "PYTHONPATH": ":".join(filter(None, sys.path))}


def data_room() -> str | None:
    """Where the broker's data go: $TMPDIR if it is set, else memory where there is room for them.

    A broker is replaced often, and to remove 10,000 partitions from a disk takes longer than most attacks.
    """
    if "TMPDIR" in os.environ or not os.path.isdir(MEMORY_DISK):
        return None
    return MEMORY_DISK if shutil.disk_usage(MEMORY_DISK).free > MEMORY_DISK_BYTES_MIN else None


class ContentFailed(Exception):
    """The honest content could not be made."""


class Target:
    """A running broker."""

    def __init__(
        self,
        *,
        on_kafka: bool = False,
        settings: Mapping[str, object] | None = None,
        open_files_max: int | None = None,
    ) -> None:
        self.is_kafka = on_kafka
        self.http_address: str | None = None
        self._folder = tempfile.TemporaryDirectory(
            prefix="moldau-attack-", dir=data_room(), ignore_cleanup_errors=True
        )
        self.server: Server = (KafkaServer if on_kafka else MoldauHere)(Path(self._folder.name))
        self.server.open_files_max = open_files_max
        if not on_kafka:
            self.http_address = f"{HOST}:{free_port()}"
            self.server.settings |= {"moldau.http.port": self.http_address.rpartition(":")[2]}
        self.server.settings |= {"auto.create.topics.enable": "false", **(settings or {})}
        self._made: set[Callable[..., None]] = set()
        self.idle_bytes = 0
        self.producer_id = -1

    def start(self) -> Self:
        try:
            self.server.start(START_TIMEOUT_S)
            self.ensure(honest_content)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """What it holds is thrown away: there is nothing to wait for."""
        self.server.kill()
        self._folder.cleanup()

    @property
    def address(self) -> str:
        return self.server.bootstrap_servers

    @property
    def pid(self) -> int:
        return self.server.pid

    def ensure(self, content: Callable[[Target], None]) -> None:
        """Make this content if it is not there yet. What it costs in memory is part of being idle."""
        if content not in self._made:
            content(self)
            self._made.add(content)
            time.sleep(0.3)
            self.idle_bytes = memory_of_all(self.pid)

    def client(self, timeout_s: float = 60) -> Client:
        return Client(self.address, timeout_s)

    @cached_property
    def names(self) -> Names:
        return Names(
            topic=TOPIC,
            topic_id=self.topic_id(TOPIC),
            group=GROUP,
            transactional_id=TRANSACTIONAL_ID,
            producer_id=self.producer_id,
            log_dir=str(self.server.data),
        )

    def topic_id(self, topic: str) -> bytes:
        with self.client() as client:
            answer = client.ask("Metadata", 12, {"topics": [{"name": topic}]})
        found: UUID = answer.topics[0].topic_id
        return found.bytes

    def is_alive(self) -> bool:
        return not self.server.ended()

    def serves(self) -> str:
        """'yes', or what an honest client met."""
        if not self.is_alive():
            return "it has ended"
        try:
            with self.client(SERVES_TIMEOUT_S) as client:
                offset = produce(client, TOPIC, 0, small_batch())
                wanted = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]
                answer = client.ask("Fetch", 12, {"topics": [{"topic": TOPIC, "partitions": wanted}]})
        except (OSError, ContentFailed) as problem:
            return f"no: {problem}"
        return "yes" if answer.responses[0].partitions[0].records else "no: what was produced is not there"


def small_batch(value: bytes = b"value", **options: Any) -> bytes:
    return build_batch([Record(0, int(time.time() * 1000), b"key", value)], **options)


def produce(client: Client, topic: str, partition: int, batch: bytes, version: int = 9) -> int:
    """Returns the offset."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
    values = {"acks": -1, "timeout": 5000, "topic_data": data}
    answer = _checked(client.ask("Produce", version, values), "Produce")
    offset: int = answer.responses[0].partition_responses[0].base_offset
    return offset


def _checked(answer: Any, what: str) -> Any:
    error = first_error(answer)
    if error:
        raise ContentFailed(f"{what}: {error}")
    return answer


def _until_ready(ask: Callable[[], Any], what: str, timeout_s: float = 60) -> Any:
    """A coordinator that comes up just now, or a topic that has no leader yet, is asked again."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(ContentFailed):
            return _checked(ask(), what)
        if time.monotonic() > deadline:
            return _checked(ask(), what)
        time.sleep(0.1)


# Content


def create_topic(client: Client, name: str, partitions: int, **configs: str) -> None:
    pairs = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": pairs}
    _checked(client.ask("CreateTopics", 7, {"topics": [topic], "timeout": 60_000}), f"topic {name}")
    wanted = [{"partition_index": number, "timestamp": -1} for number in range(partitions)]
    values = {"replica_id": -1, "topics": [{"name": name, "partitions": wanted}]}
    _until_ready(lambda: client.ask("ListOffsets", 7, values), f"topic {name}", timeout_s=300)


def honest_content(target: Target) -> None:
    """A few topics with records, groups with offsets, a transaction."""
    with target.client() as client:
        create_topic(client, TOPIC, 1)
        create_topic(client, SHORT_TOPIC, 1)
        create_topic(client, MANY_TOPIC, MANY_PARTITIONS)
        create_topic(client, COMPACTED_TOPIC, MANY_PARTITIONS, cleanup_policy="compact")
        for _ in range(5):
            produce(client, TOPIC, 0, small_batch())
        for key_type, name in ((0, GROUP), (1, TRANSACTIONAL_ID)):
            find_coordinator(client, key_type, name)
        for number in range(5):
            commit_offsets(client, GROUP if not number else f"{GROUP}-{number}", TOPIC, [0])
        target.producer_id = begin_transaction(client, TRANSACTIONAL_ID)


def find_coordinator(client: Client, key_type: int, name: str) -> None:
    wanted = {"key_type": key_type, "coordinator_keys": [name]}
    _until_ready(partial(client.ask, "FindCoordinator", 4, wanted), "coordinator")


def commit_offsets(client: Client, group: str, topic: str, partitions: Sequence[int]) -> None:
    wanted = [{"partition_index": number, "committed_offset": 1} for number in partitions]
    values = {"group_id": group, "topics": [{"name": topic, "partitions": wanted}]}
    _until_ready(lambda: client.ask("OffsetCommit", 8, values), f"offsets of {group}")


def begin_transaction(client: Client, transactional_id: str) -> int:
    """Returns the producer's id; its epoch is 0."""
    values = {"transactional_id": transactional_id, "transaction_timeout": 600_000}
    producer = _until_ready(lambda: client.ask("InitProducerId", 4, values), "producer id")
    values = {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer.producer_id,
        "v3_and_below_producer_epoch": producer.producer_epoch,
        "v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}],
    }
    _until_ready(lambda: client.ask("AddPartitionsToTxn", 3, values), "transaction")
    producer_id: int = producer.producer_id
    return producer_id


def wide_topic(target: Target) -> None:
    with target.client(300) as client:
        create_topic(client, WIDE_TOPIC, WIDE_PARTITIONS)


def wide_group(target: Target) -> None:
    """A group with an offset for each of 10,000 partitions."""
    target.ensure(wide_topic)
    with target.client() as client:
        for first in range(0, WIDE_PARTITIONS, 1000):
            commit_offsets(client, WIDE_GROUP, WIDE_TOPIC, range(first, first + 1000))


def heavy_group(target: Target) -> None:
    """A group of one member with much metadata, which stays for half an hour without a word."""
    values: dict[str, Any] = {
        "group_id": HEAVY_GROUP,
        "session_timeout": 1_800_000,
        "rebalance_timeout": 1_800_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(HEAVY_BYTES)}],
    }
    with target.client() as client:
        first = client.ask("JoinGroup", 5, values)
        joined = _checked(client.ask("JoinGroup", 5, values | {"member_id": first.member_id}), "JoinGroup")
        member = {"member_id": joined.member_id, "assignment": bytes(1000)}
        values = {
            "group_id": HEAVY_GROUP,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "assignments": [member],
        }
        _checked(client.ask("SyncGroup", 3, values), "SyncGroup")


def many_producers(target: Target) -> None:
    """A partition that remembers many idempotent producers."""
    with target.client() as client:
        create_topic(client, PRODUCERS_TOPIC, 1)
        for number in range(PRODUCERS):
            batch = small_batch(producer_id=1_000_000 + number, producer_epoch=0, base_sequence=0)
            produce(client, PRODUCERS_TOPIC, 0, batch)


def many_transactions(target: Target) -> None:
    """500 transactional ids, none of them with a transaction."""
    with target.client() as client:
        for number in range(TRANSACTIONS):
            values = {"transactional_id": f"attack-{number}", "transaction_timeout": 60_000}
            _until_ready(partial(client.ask, "InitProducerId", 4, values), "producer id")


def long_topics(target: Target) -> None:
    """Twenty topics with long names, for expressions to be tried on."""
    with target.client() as client:
        for name in LONG_TOPICS:
            create_topic(client, name, 1)
