"""Clients of a cluster whose brokers die: they remember what they were promised, for `several_checks`.

`LeaderWriter` has one request after the other on a raw connection to whoever leads, and never sends a batch again.
`TransactionalWriter` is librdkafka's transactional producer, over several partitions; a transaction ends in one of
three ways, of which "unknown" is the broker's death between the request and its answer. `GroupReader` is a member of a
group that commits what it has read. (`writers.IdempotentWriter` takes several brokers as they are.)
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from enum import Enum

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.raw import RawConnection, metadata_request, produce_request
from cluster.several import Cluster
from cluster.writers import Acknowledged, Writer, value_of
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch

ANSWER_S = 8.0
PAUSE_S = 0.02
RETRY_S = 0.01
TRANSACTION_S = 90.0
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.interval.ms": 5000,
    "socket.timeout.ms": 10_000,
    "log_level": 0,
}


class LeaderWriter(Writer):
    """Batches of a few messages to one partition, each sent once; `acks` as given."""

    is_idempotent = False

    def __init__(
        self,
        name: str,
        cluster: Cluster,
        topic: str,
        partition: int,
        seed: int,
        acks: int = -1,
        codec: Codec = Codec.NONE,
        pause_s: float = PAUSE_S,
    ) -> None:
        super().__init__(name, cluster.bootstrap, topic, [partition], seed)
        self._acks = acks
        self._codec = codec
        self._pause_s = pause_s
        self.errors: dict[int, int] = {}
        """How often each error was answered."""
        self.last_s = time.monotonic()
        """When the last batch was acknowledged."""
        self.longest_s = 0.0
        """Between two acknowledgements."""

    def _write(self) -> None:
        while not self._end.is_set():
            try:
                leader = self._find_leader()
                if leader is None:
                    self._end.wait(RETRY_S)
                    continue
                with RawConnection(leader, timeout_s=ANSWER_S) as connection:
                    while not self._end.is_set() and self._write_batch(connection):
                        self._end.wait(self._pause_s)
            except OSError:
                self._end.wait(RETRY_S)

    def _find_leader(self) -> str | None:
        for address in self._bootstrap.split(","):
            try:
                with RawConnection(address, timeout_s=2) as connection:
                    answer = connection.ask(metadata_request())
            except OSError:
                continue
            brokers = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
            for topic in answer.topics:
                if topic.name == self._topic:
                    for partition in topic.partitions:
                        if partition.partition_index == self._partitions[0]:
                            return brokers.get(partition.leader_id)
        return None

    def _write_batch(self, connection: RawConnection) -> bool:
        """Whether this is the leader still."""
        partition, values = self._next_values(self._random.randint(1, 5))
        now_ms = int(time.time() * 1000)
        records = [Record(i, now_ms, None, value) for i, value in enumerate(values)]
        batch = build_batch(records, codec=self._codec)
        answer = connection.ask(produce_request(self._topic, partition, batch, acks=self._acks))
        (outcome,) = answer.responses[0].partition_responses
        if outcome.error_code:
            self.errors[outcome.error_code] = self.errors.get(outcome.error_code, 0) + 1
            return False
        now_s = time.monotonic()
        with self._lock:
            self.longest_s = max(self.longest_s, now_s - self.last_s)
            self.last_s = now_s
            self._acknowledged += [
                Acknowledged(partition, value, outcome.base_offset + i) for i, value in enumerate(values)
            ]
        return True


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class TransactionalWriter(Writer):
    """Transactions with a message or more to each of some partitions, now and then aborted on purpose."""

    is_idempotent = False  # what was aborted leaves gaps

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: list[int],
        seed: int,
        codec: Codec = Codec.NONE,
    ) -> None:
        super().__init__(name, bootstrap, topic, partitions, seed)
        self._codec = codec
        self.outcomes: dict[int, tuple[Outcome, list[tuple[int, bytes]]]] = {}
        """By the transaction's number: how it has ended, and what was in it, with its partition."""
        self.surprises: list[str] = []
        """Errors after which the producer was given up, though it was not fenced."""

    def _write(self) -> None:
        number = 0
        producer = self._new_producer()
        while not self._end.is_set():
            messages = self._messages(number)
            self.outcomes[number] = Outcome.UNKNOWN, messages
            try:
                outcome = self._transaction(producer, messages)
            except KafkaException as error:
                if not error.args[0].fatal():
                    self.surprises.append(f"{number}: {error}")
                outcome = Outcome.UNKNOWN
                producer = self._new_producer()
            self.outcomes[number] = outcome, messages
            number += 1
            self._end.wait(PAUSE_S)

    def _new_producer(self) -> Producer:
        """With the same transactional id: what its predecessor left open is ended by this."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "compression.type": self._codec.name.lower(),
                "transaction.timeout.ms": 60_000,
                "linger.ms": 1,
                **QUICK,
            }
        )
        retried(lambda: producer.init_transactions(10), "init_transactions")
        return producer

    def _messages(self, number: int) -> list[tuple[int, bytes]]:
        some = self._random.sample(self._partitions, self._random.randint(1, len(self._partitions)))
        return [
            (partition, value_of(f"{self.name}-{number}", partition, place))
            for partition in some
            for place in range(self._random.randint(1, 4))
        ]

    def _transaction(self, producer: Producer, messages: list[tuple[int, bytes]]) -> Outcome:
        producer.begin_transaction()
        for partition, value in messages:
            producer.produce(self._topic, value, partition=partition)
        try:
            if self._random.random() < 0.2:
                producer.flush(TRANSACTION_S)
                retried(lambda: producer.abort_transaction(10), "abort_transaction")
                return Outcome.ABORTED
            retried(lambda: producer.commit_transaction(10), "commit_transaction")
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            retried(lambda: producer.abort_transaction(10), "abort_transaction")
            return Outcome.ABORTED
        return Outcome.COMMITTED


def retried(call: Callable[[], object], what: str) -> None:
    """librdkafka gives up a call after its time, and goes on with it when it is called again."""
    deadline_s = time.monotonic() + TRANSACTION_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            assert time.monotonic() < deadline_s, f"{what} did not end within {TRANSACTION_S:g} s: {error}"


class GroupReader:
    """A member of a group, in a thread of its own."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        group: str,
        topics: list[str],
        seed: int,
        **settings: object,
    ) -> None:
        """`settings`: of librdkafka, with underscores; None takes one away."""
        self.name = name
        self.problem: BaseException | None = None
        self.values: set[bytes] = set()
        self.committed: dict[tuple[str, int], int] = {}
        """The largest offset whose commit was answered, by partition."""
        self._random = random.Random(seed)
        self._topics = topics
        self._end = threading.Event()
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            **QUICK,
        }
        for key, value in settings.items():
            self._settings[key.replace("_", ".")] = value
            if value is None:
                del self._settings[key.replace("_", ".")]
        self._thread = threading.Thread()

    def start(self) -> None:
        """Once, and again after each end: as another process of the same member."""
        self._end.clear()
        self._thread = threading.Thread(target=self._guarded, name=self.name, daemon=True)
        self._thread.start()

    def end(self, timeout_s: float) -> None:
        self._end.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), f"{self.name} did not end within {timeout_s:g} s"
        if self.problem is not None:
            raise self.problem

    def _guarded(self) -> None:
        consumer = Consumer(self._settings)
        try:
            consumer.subscribe(self._topics)
            while not self._end.is_set():
                self._read(consumer)
        except BaseException as problem:
            self.problem = problem
        finally:
            consumer.close()

    def _read(self, consumer: Consumer) -> None:
        messages = [m for m in consumer.consume(self._random.randint(1, 200), 0.2) if m.error() is None]
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            self.values.add(message.value())
            ends[message.topic(), message.partition()] = message.offset() + 1
        if not ends:
            return
        places = [TopicPartition(*place, offset) for place, offset in ends.items()]
        try:
            answers = consumer.commit(offsets=places, asynchronous=False) or []
        except KafkaException:
            return  # the group has another generation, or its coordinator has died: another commit follows
        for answer in answers:
            if answer.error is None:
                place = answer.topic, answer.partition
                self.committed[place] = max(self.committed.get(place, 0), answer.offset)
