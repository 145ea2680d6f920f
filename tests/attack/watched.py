"""A broker in this process whose loop is watched: how often long work was cut, and how long one stretch of it was.

Stretches are measured in CPU time of the loop's thread, collections of garbage left out (in this process there is much
that a broker does not have): a busy machine makes none of them longer. The plain event loop is used, whose callbacks
can be measured one by one. It also notes what the broker logs as an error, which no request of a client may cause.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from moldau.broker.intake import Intake
from moldau.broker.node import Broker
from moldau.runtime.real.process import tune_gc
from moldau.testing import Cluster

from .client import Client
from .requests import Names
from .target import TOPIC, begin_transaction, commit_offsets, find_coordinator, small_batch
from .target import produce as produce_one

GROUP = "attack-group"
TRANSACTIONAL_ID = "attack-transaction"
SETTLE_S = 20.0


class Stretches:
    """What the loop's thread did between two looks at its sockets and timers, callback by callback."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.total_s = 0.0
        self.where = ""
        self._run = asyncio.events.Handle._run
        self._collecting_s = 0.0
        self._began_s = 0.0

    def reset(self) -> None:
        self.longest_s = self.total_s = 0.0
        self.where = ""

    def run(self, handle: Any) -> None:
        if not threading.current_thread().name.startswith("moldau-broker"):
            self._run(handle)
            return
        self._collecting_s = 0.0
        start_s = time.thread_time()
        try:
            self._run(handle)
        finally:
            taken_s = time.thread_time() - start_s - self._collecting_s
            self.total_s += taken_s
            if taken_s > self.longest_s:
                self.longest_s, self.where = taken_s, repr(handle)[:200]

    def on_collection(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self._collecting_s += time.thread_time() - self._began_s


class _Errors(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage() + ("" if not record.exc_info else f": {record.exc_info[1]!r}"))


class Watched:
    def __init__(self, cluster: Cluster, stretches: Stretches, errors: list[str]) -> None:
        self.address = cluster.bootstrap_servers
        self.stretches = stretches
        self.errors = errors
        broker = cluster._members[1].broker
        assert broker is not None
        self.broker: Broker = broker
        self.names = self._honest_content()

    @property
    def intake(self) -> Intake:
        return self.broker._server.intake

    @property
    def slices(self) -> int:
        return self.broker.line.slices

    @property
    def malformed(self) -> int:
        return self.broker.metrics.malformed_requests

    def _honest_content(self) -> Names:
        with self.client() as client:
            produce_one(client, TOPIC, 0, small_batch())
            for key_type, name in ((0, GROUP), (1, TRANSACTIONAL_ID)):
                find_coordinator(client, key_type, name)
            commit_offsets(client, GROUP, TOPIC, [0])
            producer_id = begin_transaction(client, TRANSACTIONAL_ID)
            answer = client.ask("Metadata", 12, {"topics": [{"name": TOPIC}]})
        topic_id = answer.topics[0].topic_id.bytes
        return Names(TOPIC, topic_id, GROUP, TRANSACTIONAL_ID, producer_id, self.broker.config["log.dirs"][0])

    def client(self, timeout_s: float = 60) -> Client:
        return Client(self.address, timeout_s)

    def answer_to(self, data: bytes) -> bytes | None:
        """None where the broker closed the connection instead."""
        try:
            with self.client() as client:
                client.send(data)
                return client.receive()
        except TimeoutError:
            raise
        except OSError:
            return None

    def answers(self) -> bool:
        """Whether it serves somebody else."""
        with self.client() as client:
            asked = {"client_software_name": "a", "client_software_version": "1"}
            return bool(client.ask("ApiVersions", 3, asked).api_keys)

    def settle(self) -> None:
        """Nothing of a request is left: neither work in line nor room in the intake, for nobody is there any more."""
        deadline_s = time.monotonic() + SETTLE_S
        server = self.broker._server
        while server.connections or len(self.broker.line) or self.intake.bytes_held:
            left = f"{len(server.connections)} connections, {len(self.broker.line)} in line"
            assert time.monotonic() < deadline_s, f"{left}, {self.intake.bytes_held} bytes"
            time.sleep(0.002)
        assert not self.intake._since_s and not self.broker.line._under_way
        assert self.errors == []


@contextmanager
def watched(topics: dict[str, int] | None = None, **config: str) -> Iterator[Watched]:
    stretches, errors = Stretches(), _Errors()
    settings = {"auto.create.topics.enable": "false"} | {
        key.replace("_", "."): value for key, value in config.items()
    }
    with (
        mock.patch.dict("os.environ", MOLDAU_FALLBACKS="1"),
        mock.patch.object(asyncio.events.Handle, "_run", lambda handle: stretches.run(handle)),  # noqa: PLW0108
        _as_in_a_process_of_its_own(),
    ):
        gc.callbacks.append(stretches.on_collection)
        logging.getLogger("moldau").addHandler(errors)
        try:
            with Cluster(topics={TOPIC: 4, **(topics or {})}, config=settings) as cluster:
                yield Watched(cluster, stretches, errors.lines)
        finally:
            logging.getLogger("moldau").removeHandler(errors)
            gc.callbacks.remove(stretches.on_collection)


@contextmanager
def _as_in_a_process_of_its_own() -> Iterator[None]:
    """What tests have left in this process is not looked at again and again by the collector."""
    before = gc.get_threshold()
    tune_gc()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
