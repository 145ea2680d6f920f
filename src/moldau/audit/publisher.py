"""Counts what producers have had acknowledged, and publishes the totals to the audit topic from a thread of its own.

Every `interval_s` the totals that have changed are sent, and a sign of life. What was acknowledged since then is lost
to the audit when the process is killed: at most an interval's records, in windows that the comparison then knows to
be unsure, by the missing sign of life. `close` publishes the rest and says so; it runs at the interpreter's exit, too.

Nothing here fails the producer: what cannot be sent is tried again with the next totals, and a warning is logged.
"""

from __future__ import annotations

import atexit
import functools
import logging
import socket
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.audit.counter import Counter
from moldau.audit.messages import TOPIC, TOPIC_CONFIG, Counts, Life, Origin
from moldau.audit.tally import Tally

log = logging.getLogger(__name__)

WINDOW_S: Final = 60.0
INTERVAL_S: Final = 10.0
CLOSE_TIMEOUT_S: Final = 10.0
CONNECTION = (
    "bootstrap.",
    "broker.",
    "client.",
    "enable.sasl",
    "enable.ssl",
    "log_level",
    "logger",
    "metadata.broker.list",
    "oauth",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)
"""How the settings begin that say how the cluster is reached; the audit's own clients take them from the producer's."""


class AuditPublisher:
    """For one producer, or several that are called the same.

    `config` is confluent-kafka's, `name` what the producer is called in reports (the host's name is added by itself).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        name: str = "",
        *,
        topic: str = TOPIC,
        window_s: float = WINDOW_S,
        interval_s: float = INTERVAL_S,
    ) -> None:
        if window_s <= 0 or interval_s <= 0:
            raise ValueError("the window and the interval of an audit are longer than nothing")
        self._config = {key: value for key, value in config.items() if key.startswith(CONNECTION)}
        self._topic = topic
        self._interval_s = interval_s
        origin = Origin(uuid.uuid4().hex, name or str(config.get("client.id", "")), socket.gethostname())
        self._counter = Counter(origin, int(window_s * 1000))
        self._counting = threading.Lock()
        self._publishing = threading.Lock()
        self._producer = Producer({**self._config, "acks": "all", "linger.ms": 5})
        self._is_topic_there = False
        self._lives = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-audit", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def instance(self) -> str:
        return self._counter.origin.instance

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """A delivery callback of confluent-kafka's producers."""
        if error is None:
            self.count(message.topic() or "", timestamp_of(message), message.key(), message.value())

    def count(self, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None) -> None:
        """One record that the brokers have acknowledged, with the timestamp that it has in the topic."""
        with self._counting:
            given_up = self._counter.count(topic, timestamp_ms, key, value, now_ms())
        if given_up is not None:
            self._send(given_up)

    def count_tally(self, topic: str, window_ms: int, tally: Tally) -> None:
        """Records of one window that became visible together: a transaction's."""
        with self._counting:
            given_up = self._counter.merge(topic, window_ms, tally, now_ms())
        if given_up is not None:
            self._send(given_up)

    @property
    def window_length_ms(self) -> int:
        return self._counter.window_length_ms

    def publish(self, timeout_s: float = CLOSE_TIMEOUT_S, *, closed: bool = False) -> bool:
        """Send the totals that have changed, and wait for the answers; whether the brokers have them all.

        Then only comes the sign of life: it says that everything acknowledged before it is published.
        """
        with self._publishing:
            self._make_topic(timeout_s)
            begin_ms = now_ms()
            with self._counting:
                self._counter.forget(begin_ms)
                changed = self._counter.unpublished()
            for counts in changed:
                self._send(counts)
            self._producer.flush(timeout_s)
            with self._counting:
                if not all(map(self._counter.is_there, changed)):
                    return False
            self._lives += 1
            self._send(
                Life(self._counter.origin, self._lives, begin_ms, int(self._interval_s * 1000), closed)
            )
            return bool(self._producer.flush(timeout_s) == 0)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Publish the rest, and that this is the end; whether all of it is there. A second call does nothing."""
        if self._closing.is_set():
            return True
        self._closing.set()
        atexit.unregister(self.close)
        self._thread.join(timeout_s)
        is_published = self.publish(timeout_s, closed=True)
        if not is_published:
            log.warning("The last counts of %s were not published within %g s.", self.instance, timeout_s)
        return is_published

    def _run(self) -> None:
        while True:
            self.publish(self._interval_s)
            if self._closing.wait(self._interval_s):
                return

    def _send(self, message: Counts | Life) -> None:
        answered = functools.partial(self._answered, message)
        try:
            self._producer.produce(self._topic, message.value(), message.key, on_delivery=answered)
        except (BufferError, KafkaException) as error:
            log.warning("Counts were not published to %s: %s", self._topic, error)

    def _answered(self, message: Counts | Life, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            log.warning("Counts were not published to %s: %s", self._topic, error)
        elif isinstance(message, Counts):
            with self._counting:
                self._counter.published(message)

    def _make_topic(self, timeout_s: float) -> None:
        """Compacted; where it may not be made here, whoever runs the brokers makes it."""
        if self._is_topic_there:
            return
        wanted = NewTopic(self._topic, num_partitions=1, replication_factor=-1, config=TOPIC_CONFIG)
        try:
            admin = AdminClient(self._config)  # its futures die with it
            admin.create_topics([wanted], request_timeout=timeout_s)[self._topic].result()
            self._is_topic_there = True
        except KafkaException as error:
            self._is_topic_there = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
            if not self._is_topic_there:
                log.warning("The topic %s was not made: %s", self._topic, error)


def timestamp_of(message: Message) -> int:
    """Of a delivered message: the producer's, or the broker's for topics with LogAppendTime."""
    _, timestamp_ms = message.timestamp()
    return int(timestamp_ms)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
