"""confluent-kafka clients that work all the time and write down whatever their application is told to have gone wrong.

Each has a thread of its own and ends when it is told to. What a client tells its `error_cb` of connections that it
makes again by itself is kept apart: any broker that is restarted closes its connections.
"""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

PAUSE_S = 0.02
CALL_S = 60.0
END_S = 90.0
Place = tuple[int, int]


class Steady(ABC):
    """A client at work."""

    def __init__(self, name: str, bootstrap: str, topic: str) -> None:
        self.name = name
        self.errors: list[str] = []
        """What its application has seen."""
        self.remarks: Counter[str] = Counter()
        """The names of what the client has dealt with itself."""
        self._topic = topic
        self._settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "log_level": 0,
            "error_cb": self._on_remark,
        }
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._end.set()
        self._thread.join(END_S)
        assert not self._thread.is_alive(), f"{self.name} did not end within {END_S:g} s"

    @abstractmethod
    def _work(self) -> None: ...

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.errors.append(repr(error))

    def _on_remark(self, error: KafkaError) -> None:
        self.remarks[error.name()] += 1
        if error.fatal():
            self.errors.append(str(error))


class SteadyProducer(Steady):
    """Idempotent, a message every now and then to each partition in turn; `acknowledged` has where they are."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, bootstrap, topic)
        self.acknowledged: dict[Place, bytes] = {}
        self.sent = 0
        self._settings |= {"enable.idempotence": True, "linger.ms": 1}
        self._partitions = partitions

    def _work(self) -> None:
        producer = Producer(self._settings)
        for partition in itertools.cycle(range(self._partitions)):
            if self._end.is_set():
                break
            self._send(producer, partition)
            producer.poll(PAUSE_S)
        left = producer.flush(CALL_S)
        if left:
            self.errors.append(f"{left} messages were never acknowledged")

    def _send(self, producer: Producer, partition: int) -> None:
        value = f"{self.name}:{self.sent}".encode()
        producer.produce(self._topic, value, partition=partition, on_delivery=self._on_delivery)
        self.sent += 1

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(str(error))
            return
        self.acknowledged[message.partition() or 0, message.offset() or 0] = message.value() or b""


class TransactionalProducer(SteadyProducer):
    """A transaction over all partitions at a time, each of which is to be committed at the first attempt."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name, bootstrap, topic, partitions)
        self._settings |= {"transactional.id": name}

    def _work(self) -> None:
        producer = Producer(self._settings)
        producer.init_transactions(CALL_S)
        while not self._end.is_set():
            producer.begin_transaction()
            for partition in range(self._partitions):
                self._send(producer, partition)
            producer.commit_transaction(CALL_S)
            self._end.wait(PAUSE_S)


class SteadyReader(Steady):
    """The only member of a group: it commits what it has read, after every few messages."""

    def __init__(self, name: str, bootstrap: str, topic: str, protocol: str) -> None:
        super().__init__(name, bootstrap, topic)
        self.read: dict[Place, bytes] = {}
        self.twice = 0
        self.revoked = 0
        self._settings |= {
            "group.id": name,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }

    def _work(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([self._topic], on_revoke=self._on_revoke, on_lost=self._on_revoke)
        try:
            while not self._end.is_set():
                messages = consumer.consume(50, 0.2)
                for message in messages:
                    self._take(message)
                if messages:
                    self._commit(consumer)
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self.errors.append(str(error))
            return
        place = message.partition() or 0, message.offset() or 0
        self.twice += place in self.read
        self.read[place] = message.value() or b""

    def _commit(self, consumer: Consumer) -> None:
        try:
            for place in consumer.commit(asynchronous=False) or []:
                if place.error is not None:
                    self.errors.append(f"commit: {place.error}")
        except KafkaException as error:
            self.errors.append(f"commit: {error}")

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self.revoked += not self._end.is_set()
