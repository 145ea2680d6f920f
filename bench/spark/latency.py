"""Records that carry the time at which they were sent, and how old they are when the query's result of them is read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.measure import WorkNotDone

RESULT_TIMEOUT_S: Final = 120.0
PROBE_S: Final = 0.5
_NUMBER_AND_TIME: Final = Struct(">qq")


class Probe:
    """Writes to one topic and reads the other, from its end on."""

    def __init__(self, bootstrap: str, sent_to: str, read_from: str) -> None:
        self._topic = sent_to
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"probe-{read_from}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        _, after = self._consumer.get_watermark_offsets(TopicPartition(read_from, 0), RESULT_TIMEOUT_S)
        self._consumer.assign([TopicPartition(read_from, 0, after)])
        self._sent = 0

    def send(self) -> int:
        """One record; its number."""
        number, self._sent = self._sent, self._sent + 1
        self._producer.produce(self._topic, _NUMBER_AND_TIME.pack(number, time.monotonic_ns()))
        self._producer.poll(0)
        return number

    def results(self, timeout_s: float) -> Iterator[tuple[int, float]]:
        """What has come, by number, and its age in seconds; at least one is waited for."""
        message = self._consumer.poll(timeout_s)
        while message is not None:
            if message.error() is None:
                number, sent_ns = _NUMBER_AND_TIME.unpack(message.value())
                yield number, (time.monotonic_ns() - sent_ns) / 1e9
            message = self._consumer.poll(0)

    def one(self) -> float:
        """Send a record and wait for its result: its age."""
        number, deadline_s = self.send(), time.monotonic() + RESULT_TIMEOUT_S
        while time.monotonic() < deadline_s:
            for found, age_s in self.results(1.0):
                if found == number:
                    return age_s
        raise WorkNotDone(f"no result of record {number} after {RESULT_TIMEOUT_S:g} s")

    def wait_until_it_runs(self) -> None:
        """A new query starts where the topic ends, whenever that is: records are sent until one comes."""
        deadline_s = time.monotonic() + RESULT_TIMEOUT_S
        while time.monotonic() < deadline_s:
            self.send()
            if list(self.results(PROBE_S)):
                self.one()  # all from before have come, too
                return
        raise WorkNotDone(f"the query shows no result after {RESULT_TIMEOUT_S:g} s")

    def paced(self, rate: int, duration_s: float) -> list[float]:
        """The ages of the results of an even load; every record must have come."""
        count = int(rate * duration_s)
        first = self._sent
        sender = threading.Thread(target=self._send_paced, args=(rate, count), daemon=True)
        sender.start()
        ages: dict[int, float] = {}
        deadline_s = time.monotonic() + duration_s + RESULT_TIMEOUT_S
        while len(ages) < count and time.monotonic() < deadline_s:
            for number, age_s in self.results(0.05):
                if number >= first:
                    ages.setdefault(number, age_s)
        sender.join()
        if len(ages) < count:
            raise WorkNotDone(f"{len(ages)} results of {count}")
        return list(ages.values())

    def _send_paced(self, rate: int, count: int) -> None:
        began_s = time.monotonic()
        for index in range(count):
            pause_s = began_s + index / rate - time.monotonic()
            if pause_s > 0:
                time.sleep(pause_s)
            self.send()
        self._producer.flush(RESULT_TIMEOUT_S)

    def close(self) -> None:
        self._producer.flush(RESULT_TIMEOUT_S)
        self._consumer.close()


@contextmanager
def probing(bootstrap: str, sent_to: str, read_from: str) -> Iterator[Probe]:
    probe = Probe(bootstrap, sent_to, read_from)
    try:
        yield probe
    finally:
        probe.close()


def stop(query: Any) -> None:
    """Its last batch is interrupted: what it would have said of it does not matter."""
    query.stop()
    query.awaitTermination(RESULT_TIMEOUT_S)
