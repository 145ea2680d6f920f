"""Moldau with confluent-kafka: a topic of one partition, acks=all."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.librdkafka import consumer, paced, produce_all, producer, synchronous_times
from bench.measure import WorkNotDone
from bench.peers.port import TIMEOUT_S, Peer
from bench.server import MoldauServer, Server


class MoldauClient:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._at_once: Producer = producer(server, linger_ms=0)

    def make(self, log: str) -> None:
        admin = AdminClient({"bootstrap.servers": self._server.bootstrap_servers})
        admin.create_topics([NewTopic(log, 1, 1)])[log].result(TIMEOUT_S)

    def write_one_by_one(self, log: str, count: int, value: bytes) -> list[float]:
        return synchronous_times(self._at_once, log, count, value)

    def write_all(self, log: str, count: int, value: bytes) -> None:
        produce_all(producer(self._server), log, 1, count, value)

    def write_paced(self, log: str, rate: int, count: int, value: Callable[[], bytes]) -> None:
        for _ in paced(rate, count):
            self._at_once.produce(log, value(), partition=0)
            self._at_once.poll(0)
        if self._at_once.flush(TIMEOUT_S):
            raise WorkNotDone("messages were not acknowledged")

    def read(self, log: str, count: int, take: Callable[[bytes], object]) -> None:
        reader: Consumer = consumer(self._server)
        reader.assign([TopicPartition(log, 0, 0)])
        deadline = time.monotonic() + TIMEOUT_S
        while count and time.monotonic() < deadline:
            # `consume` waits until it has as many as it was asked for: one by one where they come slowly.
            first = reader.poll(1)
            for message in () if first is None else (first, *reader.consume(count - 1, timeout=0)):
                if message.error() is None:
                    take(message.value())
                    count -= 1
        reader.close()
        if count:
            raise WorkNotDone(f"{count} messages did not come")

    def close(self) -> None:
        self._at_once.flush(TIMEOUT_S)


def _server(folder: Path) -> Server:
    return MoldauServer(folder)


MOLDAU = Peer("Moldau", "confluent-kafka", _server, MoldauClient, lambda: version("moldau"))
