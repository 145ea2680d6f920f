"""Every kind of client at work on one cluster, for the scenarios, and what each was promised.

Producers with acks=all, idempotent and transactional, each without compression and with zstd; groups of both protocols
with and without static members; workers that copy a topic in transactions, as a group; a producer of keys to a topic
that is compacted meanwhile.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from cluster.several import PATIENCE_S, Cluster
from cluster.several_checks import (
    Stored,
    check_order,
    check_replicas,
    check_transactions,
    read_committed,
)
from cluster.several_clients import QUICK, GroupReader, LeaderWriter, TransactionalWriter
from cluster.support import wait_until
from cluster.writers import Acknowledged, IdempotentWriter, Writer
from moldau.records.compression import Codec
from moldau.records.record import Record, read_records
from stored import split_batches

TOPIC, SOURCE, TARGET, KEYED = "survivors", "source", "target", "keyed"
PARTITIONS = 3
CODECS = (Codec.NONE, Codec.ZSTD)
GROUP_COPIER = Path(__file__).parent / "group_copier.py"
PROTOCOLS: dict[str, dict[str, object]] = {
    "classic": {"heartbeat_interval_ms": 500},
    "consumer": {"group_protocol": "consumer", "session_timeout_ms": None},
}
COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0.01,
    "internal_segment_bytes": 50_000,
}
KEYS = 50
PAUSE_S = 0.05
"""Of an idempotent producer: what it writes is read again, with Python's speed."""
COPIED_PAUSE_S = 0.2
"""Of who writes what is copied: copiers that are killed must keep up on a busy machine."""


class KeyedWriter:
    """Writes to few keys, over and over, by an idempotent producer."""

    def __init__(self, bootstrap: str) -> None:
        self.problem: BaseException | None = None
        self.written = 0
        self._bootstrap = bootstrap
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._write, name="keys", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the writer of keys did not end"
        if self.problem is not None:
            raise self.problem

    @property
    def last(self) -> dict[bytes, bytes]:
        """What each key has in the end."""
        first = max(0, self.written - KEYS)
        return {b"%d" % (n % KEYS): self._value(n) for n in range(first, self.written)}

    def _value(self, number: int) -> bytes:
        return b"%08d" % number * 25

    def _write(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.num.messages": KEYS,  # a batch fits into a segment
                **QUICK,
            }
        )
        for number in itertools.count():
            if self._end.wait(0.002):
                break
            key, value = b"%d" % (number % KEYS), self._value(number)
            producer.produce(KEYED, value, key, partition=0, on_delivery=self._on_delivery)
            self.written = number + 1
            producer.poll(0)
        if left := producer.flush(PATIENCE_S):
            self.problem = AssertionError(f"{left} keys were never acknowledged")

    def _on_delivery(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self.problem = AssertionError(f"a key was given up: {error}")


class Copiers:
    """Processes that copy as a group; one that ends by itself is begun anew by `ensure`."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self._bootstrap = cluster.bootstrap
        self._said = cluster.folder / "copiers.txt"
        self._chance = chance
        self._processes: dict[str, subprocess.Popen[bytes] | None] = {"copier-a": None, "copier-b": None}

    def ensure(self) -> None:
        for name, process in self._processes.items():
            if process is None or process.poll() is not None:
                words = [self._bootstrap, SOURCE, TARGET, "copiers", name, str(self._chance.getrandbits(32))]
                command = [sys.executable, str(GROUP_COPIER), *words]
                with self._said.open("ab") as said:
                    self._processes[name] = subprocess.Popen(command, stderr=said)

    def said(self) -> str:
        """Why they have ended by themselves, last."""
        return self._said.read_text(errors="replace")[-2000:]

    def stop(self, name: str) -> None:
        if (process := self._processes[name]) is not None:
            process.terminate()
            process.wait(PATIENCE_S)

    def kill(self, name: str) -> None:
        if (process := self._processes[name]) is not None:
            process.kill()
            process.wait(PATIENCE_S)

    def end(self) -> None:
        for name in self._processes:
            self.kill(name)


class Load:
    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        """Makes the topics; nothing is at work yet."""
        self.cluster = cluster
        bootstrap, everywhere = cluster.bootstrap, list(range(PARTITIONS))
        for topic in (TOPIC, SOURCE, TARGET):
            cluster.create(topic, PARTITIONS, 3, min_insync_replicas=2)
        cluster.create(KEYED, 1, 3, min_insync_replicas=2, **COMPACTED)

        def seed() -> int:
            return chance.getrandbits(32)

        self.plain: list[Writer] = [
            *(LeaderWriter(f"raw-{c.name}", cluster, TOPIC, c % 2, seed(), codec=c) for c in CODECS),
            *(
                IdempotentWriter(f"idempotent-{c.name}", bootstrap, TOPIC, everywhere, seed(), c, PAUSE_S)
                for c in CODECS
            ),
        ]
        self.transactional = [
            TransactionalWriter(f"transactions-{c.name}", bootstrap, TOPIC, everywhere, seed(), c)
            for c in CODECS
        ]
        self.to_copy = [
            LeaderWriter(f"copied-{i}", cluster, SOURCE, i, seed(), pause_s=COPIED_PAUSE_S)
            for i in everywhere
        ]
        self.groups = {
            protocol: [
                GroupReader(f"{protocol}-dynamic", bootstrap, protocol, [SOURCE], seed(), **settings),
                GroupReader(
                    f"{protocol}-static",
                    bootstrap,
                    protocol,
                    [SOURCE],
                    seed(),
                    group_instance_id=f"{protocol}-static",
                    **settings,
                ),
            ]
            for protocol, settings in PROTOCOLS.items()
        }
        self.copiers = Copiers(cluster, chance)
        self.keys = KeyedWriter(bootstrap)
        self._stored = Stored(cluster, TOPIC, PARTITIONS)
        self._source = Stored(cluster, SOURCE, PARTITIONS)

    @property
    def readers(self) -> list[GroupReader]:
        return [reader for members in self.groups.values() for reader in members]

    def start(self) -> None:
        self.copiers.ensure()
        for client in (*self.plain, *self.transactional, *self.to_copy, *self.readers, self.keys):
            client.start()

    def wait_for_more(self) -> None:
        """Until each writer has had something acknowledged that it had not before, and each group has read on."""
        self.copiers.ensure()
        before = self._progress()

        def stuck() -> list[str]:
            return [name for name, count in self._progress().items() if count <= before[name]]

        try:
            wait_until(lambda: not stuck(), PATIENCE_S, "all clients to go on")
        except AssertionError as error:
            raise AssertionError(f"{error}: {stuck()}\n{self.cluster.words()}") from None

    def _progress(self) -> dict[str, int]:
        for client in (*self.plain, *self.transactional, *self.to_copy, *self.readers, self.keys):
            if client.problem is not None:
                raise client.problem
        return {
            **{writer.name: len(writer.acknowledged()) for writer in (*self.plain, *self.to_copy)},
            **{writer.name: len(writer.outcomes) for writer in self.transactional},
            **{
                f"group {name}": sum(len(reader.values) for reader in members)
                for name, members in self.groups.items()
            },
        }

    def acknowledged(self, writers: list[Writer]) -> list[Acknowledged]:
        return [ack for writer in writers for ack in writer.acknowledged()]

    def check(self) -> None:
        """What was acknowledged so far is there."""
        self._stored.read(self.acknowledged(self.plain))

    # The end

    def end_and_check(self) -> str:
        """Everything that must hold, with all brokers stopped in the end; what was compared."""
        for writer in (*self.plain, *self.transactional, *self.to_copy):
            writer.end(PATIENCE_S)
        self.keys.end()
        self.cluster.wait_in_sync()
        self.check()
        self._stored.read_all_again()
        for writer in self.plain:
            check_order(writer, self._stored)
        self._check_transactions()
        self._check_groups()
        copied = self._check_copies()
        self.cluster.wait_in_sync()
        self.cluster.stop()
        compared = check_replicas(self.cluster, [TOPIC, SOURCE, TARGET])
        kept = check_keys(self.cluster, self.keys)
        counts = {writer.name: len(writer.acknowledged()) for writer in self.plain}
        return f"{counts}, {copied} copied, {kept} of {self.keys.written} kept, {compared} bytes equal"

    def _check_transactions(self) -> None:
        bootstrap = self.cluster.bootstrap
        committed = [read_committed(bootstrap, TOPIC, index) for index in range(PARTITIONS)]
        for writer in self.transactional:
            check_transactions(writer, committed)

    def _check_groups(self) -> None:
        """Every group has read everything, and no commit is lost."""
        written = {ack.value for writer in self.to_copy for ack in writer.acknowledged()}
        for name, members in self.groups.items():
            wait_until(
                lambda members=members: written <= set().union(*(m.values for m in members)),  # type: ignore[misc]
                PATIENCE_S,
                f"the group {name} to have read all that was acknowledged",
            )
            for member in members:
                member.end(PATIENCE_S)
            offsets = committed_offsets(self.cluster.bootstrap, name)
            for member in members:
                for (_, partition), offset in member.committed.items():
                    assert offsets[partition] >= offset, f"{member.name}: its commit of {offset} is lost"

    def _check_copies(self) -> int:
        """What is in the source is in the target: once, and in order."""
        self._source.read(self.acknowledged([*self.to_copy]))
        sources = [self._source.values(index) for index in range(PARTITIONS)]
        wanted = {index: len(values) for index, values in enumerate(sources)}
        ends: dict[int, int] = {}

        def is_done() -> bool:
            self.copiers.ensure()
            ends.update(committed_offsets(self.cluster.bootstrap, "copiers"))
            return ends == wanted

        try:
            wait_until(is_done, PATIENCE_S, "everything to be copied")
        except AssertionError as error:
            raise AssertionError(f"{error}: {ends} of {wanted}\n{self.copiers.said()}") from None
        self.copiers.end()
        for index, values in enumerate(sources):
            copies = self._copies(index, len(values))
            assert copies == values, f"partition {index}: {len(copies)} copies of {len(values)}"
        return sum(map(len, sources))

    def _copies(self, index: int, count: int) -> list[bytes]:
        """As soon as so many are there: a transaction that a killed copier has left open hides what follows it until
        its time is up."""
        begun_s = time.monotonic()
        copies = read_committed(self.cluster.bootstrap, TARGET, index)
        while len(copies) < count and time.monotonic() - begun_s < PATIENCE_S:
            copies = read_committed(self.cluster.bootstrap, TARGET, index)
            print(f"{TARGET}-{index}: {len(copies)} of {count} after {time.monotonic() - begun_s:.1f} s")
        return copies


def committed_offsets(bootstrap: str, group: str) -> dict[int, int]:
    """Of the source's partitions."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        places = consumer.committed([TopicPartition(SOURCE, index) for index in range(PARTITIONS)], 30)
        return {place.partition: place.offset for place in places}
    finally:
        consumer.close()


def check_keys(cluster: Cluster, writer: KeyedWriter) -> int:
    """Each replica has compacted its log by itself, and has the last value of each key at the same offset. How many
    records the shortest has kept."""
    found = {
        broker_id: records_of(broker.data / f"{KEYED}-0") for broker_id, broker in cluster.brokers.items()
    }
    lasts = {broker_id: last_of(records) for broker_id, records in found.items()}
    for broker_id, last in lasts.items():
        values = {key: value for key, (_, value) in last.items()}
        assert values == writer.last, f"broker {broker_id} has other values of its keys"
        assert last == lasts[1], f"brokers {broker_id} and 1 have the keys at other offsets"
        count = len(found[broker_id])
        assert count < writer.written, f"broker {broker_id} has compacted nothing of {count} records"
    return min(map(len, found.values()))


def records_of(folder: Path) -> list[Record]:
    segments = sorted(folder.glob("*.log"))
    batches = (batch for segment in segments for batch in split_batches(segment.read_bytes()))
    return [record for batch in batches for record in read_records(batch)]


def last_of(records: list[Record]) -> dict[bytes, tuple[int, bytes]]:
    return {record.key or b"": (record.offset, record.value or b"") for record in records}
