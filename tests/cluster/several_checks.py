"""What must hold after brokers have died: nothing acknowledged is lost or changed, nothing is there twice, the order is
kept, transactions are whole or not there, and the replicas are the same, byte for byte.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, TopicPartition

from bench.raw import RawConnection
from cluster.several import PATIENCE_S, Cluster
from cluster.several_clients import Outcome, TransactionalWriter
from cluster.support import wait_until
from cluster.writers import Acknowledged, Writer
from moldau.records.batch import read_header
from moldau.records.record import Record
from stored import read_partition, split_batches


class Stored:
    """A topic's records as its leaders have them, read on from where the last reading ended: a log that has lost
    what was read before has other records, or none, at that offset."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self.records: list[dict[int, Record]] = [{} for _ in range(partitions)]
        """By partition, by offset. Markers have offsets too: what clients wrote is not dense where there are any."""

    def read(self, promised: Iterable[Acknowledged]) -> None:
        """Read on, until at least what was acknowledged is there, and check that it is."""
        by_partition: dict[int, list[Acknowledged]] = defaultdict(list)
        for ack in promised:
            by_partition[ack.partition].append(ack)
        for partition, records in enumerate(self.records):
            acks = by_partition[partition]
            end = max((ack.offset for ack in acks), default=-1) + 1
            self._read_on(partition, records, end)
            check_acknowledged(f"{self._topic}-{partition}", records, acks)

    def _read_on(self, partition: int, records: dict[int, Record], end: int) -> None:
        def is_there() -> bool:
            begin = max(records, default=-1) + 1
            try:
                leader = self._cluster.leader(self._topic, partition)
                address = self._cluster.brokers[leader].bootstrap_servers
                with RawConnection(address, timeout_s=10) as connection:
                    fresh = read_partition(connection, self._topic, partition, begin)
            except (OSError, AssertionError):  # it does not lead any more, or not yet
                return False
            records.update({record.offset: record for record in fresh})
            return max(records, default=-1) + 1 >= end

        wait_until(is_there, PATIENCE_S, f"{self._topic}-{partition} to be readable up to {end}")

    def values(self, partition: int) -> list[bytes]:
        records = self.records[partition]
        return [records[offset].value or b"" for offset in sorted(records)]

    def read_all_again(self) -> None:
        """From the beginning: the same records stand at the same offsets."""
        before = self.records
        self.records = [{} for _ in before]
        self.read([])
        for partition, (old, new) in enumerate(zip(before, self.records, strict=True)):
            for offset, record in old.items():
                assert offset in new, f"{self._topic}-{partition} has lost offset {offset}"
                assert new[offset] == record, f"{self._topic}-{partition} has changed at {offset}"


def check_acknowledged(name: str, stored: dict[int, Record], promised: Sequence[Acknowledged]) -> None:
    values = {record.value for record in stored.values()}
    for ack in promised:
        if ack.offset >= 0:
            found = stored.get(ack.offset)
            assert found is not None, (
                f"{name}: {ack.value[:30]!r} was acknowledged at {ack.offset} and is gone"
            )
            assert found.value == ack.value, f"{name}: at {ack.offset} is {found.value!r}, not {ack.value!r}"
        else:
            assert ack.value in values, f"{name}: {ack.value[:30]!r} was acknowledged and is gone"


def check_order(writer: Writer, stored: Stored) -> None:
    """Ascending numbers: in order, and none twice. What an idempotent producer retries until it is there has no gap."""
    prefix = f"{writer.name}:".encode()
    for partition in range(len(stored.records)):
        numbers = [int(v.split(b":")[2]) for v in stored.values(partition) if v.startswith(prefix)]
        for before, after in itertools.pairwise(numbers):
            assert before < after, f"{writer.name}, partition {partition}: {after} follows {before}"
        if writer.is_idempotent:
            assert numbers == list(range(len(numbers))), f"{writer.name}, partition {partition}: gaps"


def read_committed(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """What a reader of committed messages sees, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, f"the end of {topic}-{partition} does not come: an open transaction?"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, f"{topic}-{partition}: {error}"
                return values
            values.append(message.value() or b"")
    finally:
        consumer.close()


def check_transactions(writer: TransactionalWriter, committed: Sequence[Sequence[bytes]]) -> None:
    """All of a committed transaction once, nothing of an aborted one, of the others all or nothing; in order.

    `committed`: by partition, what a reader of committed messages sees."""
    prefix = f"{writer.name}-".encode()
    by_partition = [[value for value in values if value.startswith(prefix)] for values in committed]
    for partition, values in enumerate(by_partition):
        assert len(values) == len(set(values)), f"{writer.name}, partition {partition}: some are there twice"
        numbers = [transaction_of(value) for value in values]
        assert numbers == sorted(numbers), f"{writer.name}, partition {partition}: out of order"
    there = {(partition, value) for partition, values in enumerate(by_partition) for value in values}
    for number, (outcome, messages) in writer.outcomes.items():
        found = sum(message in there for message in messages)
        what = f"{writer.name}, transaction {number} ({outcome.value}): {found} of {len(messages)} are there"
        match outcome:
            case Outcome.COMMITTED:
                assert found == len(messages), what
            case Outcome.ABORTED:
                assert found == 0, what
            case Outcome.UNKNOWN:
                assert found in (0, len(messages)), what


def transaction_of(value: bytes) -> int:
    return int(value.split(b":")[0].rpartition(b"-")[2])


def check_replicas(cluster: Cluster, topics: Sequence[str] = ()) -> int:
    """All brokers have ended, with every replica in sync and every write committed: they have the same bytes. How
    many bytes were compared."""
    compared = 0
    logs: dict[str, dict[int, bytes]] = defaultdict(dict)
    for broker_id, broker in cluster.brokers.items():
        for folder in sorted(broker.data.iterdir()):
            name = folder.name.rpartition("-")[0]
            if folder.is_dir() and name and "." not in folder.name and (not topics or name in topics):
                logs[folder.name][broker_id] = bytes_of(folder)
    for name, replicas in logs.items():
        (first, whole), *others = replicas.items()
        for other, theirs in others:
            if whole != theirs:
                raise AssertionError(difference(name, first, whole, other, theirs))
        compared += sum(map(len, replicas.values()))
    return compared


def bytes_of(folder: Path) -> bytes:
    """The whole batches of a log: followers may roll their segments elsewhere."""
    segments = sorted(folder.glob("*.log"))
    return b"".join(batch for segment in segments for batch in split_batches(segment.read_bytes()))


def difference(name: str, first: int, ours: bytes, other: int, theirs: bytes) -> str:
    for mine, its in itertools.zip_longest(split_batches(ours), split_batches(theirs)):
        if mine != its:
            return (
                f"{name}: brokers {first} and {other} differ: "
                f"{read_header(mine) if mine else 'nothing'} and {read_header(its) if its else 'nothing'}"
            )
    return f"{name}: brokers {first} and {other} differ"
