"""The examples as a reader runs them: from a folder with `examples/` in it, against a broker of their own."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from bench.server import Server
from cluster.support import create_topic, wait_until

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 60
PARTITIONS = 3
ITEMS = ("apples", "pears", "plums")
Place = tuple[int, int]
"""Partition and offset."""


class Running:
    """An example as a process; what it prints is read in a thread."""

    def __init__(self, command: str, folder: Path, environment: Mapping[str, str]) -> None:
        words = shlex.split(command)
        assert words[0] == "python"
        self.command = command
        self.lines: list[str] = []
        self._errors = (folder / f"stderr-{len(list(folder.glob('stderr-*')))}.txt").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, *words[1:]],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def orders(self) -> list[int]:
        """The numbers of the orders that it has handled."""
        return [int(found[1]) for line in list(self.lines) if (found := re.search(r"order (\d+):", line))]

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Until then; a process that ends before is a failure, and shows what it said."""

        def is_met() -> bool:
            met = condition()
            assert met or not self.has_ended, f"{self.command} ended too early: {self.errors()}"
            return met

        wait_until(is_met, TIMEOUT_S, f"{self.command}: {what}")

    def wait_orders(self, count: int) -> None:
        self.wait_until(lambda: len(self.orders) >= count, f"{count} orders")

    def kill(self) -> None:
        """kill -9; afterwards `lines` is all that it printed."""
        self.process.kill()
        self._reap()

    def interrupt(self) -> None:
        """Ctrl-C: it ends cleanly. Who has printed nothing may not be ready for it."""
        self.wait_until(lambda: bool(self.lines), "a sign of life")
        self.process.send_signal(signal.SIGINT)
        self._reap()
        code = self.process.returncode
        assert code == 0, f"{self.command} ended with {code}: {self.lines[-3:]} {self.errors()}"
        assert "Traceback" not in self.errors()

    def wait(self) -> int:
        """The exit code, when it ends by itself."""
        self._reap()
        return self.process.returncode

    def _reap(self) -> None:
        self.process.wait(TIMEOUT_S)
        self._thread.join(TIMEOUT_S)

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode()

    def end(self) -> None:
        if not self.has_ended:
            self.process.kill()
        self._reap()
        self._errors.close()


class Stage:
    """A broker with the topic `orders`, and the examples that run on it."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.bootstrap = server.bootstrap_servers
        self._environment = {**os.environ, "MOLDAU_BOOTSTRAP": self.bootstrap}
        self._made: list[Running] = []
        self.orders: set[int] = set()
        (folder / "examples").symlink_to(EXAMPLES)
        create_topic(self.bootstrap, "orders", PARTITIONS)

    def start(self, command: str) -> Running:
        running = Running(command, self.folder, self._environment)
        self._made.append(running)
        return running

    def run(self, command: str) -> Running:
        """To its own end."""
        running = self.start(command)
        assert running.wait() == 0, running.errors()
        return running

    def add_orders(self, count: int) -> None:
        """New orders, with the numbers that follow; of ten customers, as the example makes them."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0})
        for number in range(len(self.orders) + 1, len(self.orders) + count + 1):
            self.orders.add(number)
            order = f"order {number}: {1 + number % 7} {ITEMS[number % len(ITEMS)]}"
            producer.produce("orders", order, key=f"customer-{number % 10}")
        assert producer.flush(TIMEOUT_S) == 0

    def end(self) -> None:
        for running in self._made:
            running.end()

    def read(self, topic: str) -> dict[Place, str]:
        """All committed messages of a topic by their places, each partition in order."""
        found: dict[Place, str] = {}
        with closing(self._consumer("reader")) as consumer:
            for partition in consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions:
                consumer.assign([TopicPartition(topic, partition, 0)])
                while True:
                    message = consumer.poll(TIMEOUT_S)
                    assert message is not None, "the end of the partition does not come"
                    if message.error() is not None:
                        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                        break
                    found[partition, message.offset()] = message.value().decode()
        return found

    def committed(self, group: str) -> dict[int, int]:
        """What a group has committed of `orders`: next offsets by partition."""
        with closing(self._consumer(group)) as consumer:
            return next_offsets(consumer)

    def wait_all_committed(self, group: str, worker: Running) -> None:
        """Until a worker has come to the end of `orders`."""
        with closing(self._consumer(group)) as consumer:
            places = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
            ends = {place.partition: consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places}
            worker.wait_until(lambda: next_offsets(consumer) == ends, f"{group} at {ends}")

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )


def next_offsets(consumer: Consumer) -> dict[int, int]:
    places = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
    return {place.partition: max(place.offset, 0) for place in consumer.committed(places, TIMEOUT_S)}


def number_of(text: str) -> int:
    found = re.search(r"order (\d+):", text)
    assert found is not None, text
    return int(found[1])
