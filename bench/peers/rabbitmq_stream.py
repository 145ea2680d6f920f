"""RabbitMQ with pika: a queue of the type `stream`, which is its log, with publisher confirms.

As a program from Debian's package, not as its service: with a node, ports, files and an `epmd` (the name server of
Erlang's nodes) of its own, all of which end with it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.channel import Channel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from bench.librdkafka import paced
from bench.measure import WorkNotDone
from bench.peers.debian import program, version_of
from bench.peers.port import TIMEOUT_S, Peer
from bench.server import HOST, Server
from moldau.runtime.real.free_ports import free_port

IN_FLIGHT = 1000
UNACKNOWLEDGED = 2000
POLL_S = 0.1
AS_STREAM = {"x-queue-type": "stream"}


class RabbitServer(Server):
    name = "RabbitMQ"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names_port = free_port()
        self._distribution_port = free_port()
        self._names: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        return [program("/usr/lib/rabbitmq/bin/rabbitmq-server")]

    def environment(self) -> Mapping[str, str]:
        home = self.folder
        config, plugins = home / "rabbitmq.conf", home / "enabled_plugins"
        config.write_text(f"listeners.tcp.1 = {HOST}:{self.port}\nlog.console = true\n")
        plugins.write_text("[].\n")
        return {
            **os.environ,
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_ZFLAGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_LOG_BASE": str(home / "logs"),
            "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
        }

    def launch(self) -> None:
        words = [program("epmd"), "-address", HOST, "-port", str(self._names_port)]
        self._names = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        super().launch()

    def is_ready(self) -> bool:
        with contextlib.suppress(AMQPError, OSError), contextlib.closing(_connect(self)):
            return True
        return False

    def stop(self, timeout_s: float = 60) -> bool:
        self._signal(signal.SIGTERM)
        clean = super().stop(timeout_s)
        self._end_names()
        return clean

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        super().kill()
        self._end_names()

    def _signal(self, number: int) -> None:
        """The script, and Erlang that it starts."""
        if not self.ended():
            os.killpg(self.pid, number)

    def _end_names(self) -> None:
        if self._names is not None:
            self._names.kill()
            self._names.wait()
            self._names = None


def _connect(server: Server) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters(HOST, server.port, heartbeat=0))


class RabbitClient:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = _connect(server)
        self._channel: BlockingChannel = self._connection.channel()
        self._channel.confirm_delivery()

    def make(self, log: str) -> None:
        self._channel.queue_declare(log, durable=True, arguments=AS_STREAM)

    def write_one_by_one(self, log: str, count: int, value: bytes) -> list[float]:
        latencies = []
        for _ in range(count):
            started = time.perf_counter()
            self._channel.basic_publish("", log, value)
            latencies.append(time.perf_counter() - started)
        return latencies

    def write_all(self, log: str, count: int, value: bytes) -> None:
        burst = _Burst(self._server, log, count, value)
        burst.run()
        if burst.left:
            raise WorkNotDone(f"{burst.left} messages were not confirmed")

    def write_paced(self, log: str, rate: int, count: int, value: Callable[[], bytes]) -> None:
        for _ in paced(rate, count):
            self._channel.basic_publish("", log, value())

    def read(self, log: str, count: int, take: Callable[[bytes], object]) -> None:
        self._wait_until_led(log)
        channel = self._connection.channel()
        channel.basic_qos(prefetch_count=UNACKNOWLEDGED)
        messages = channel.consume(log, arguments={"x-stream-offset": "first"}, inactivity_timeout=TIMEOUT_S)
        for number, (method, _, body) in enumerate(messages, 1):
            if method is None:
                raise WorkNotDone(f"{count - number + 1} messages did not come")
            take(body)
            if not number % (UNACKNOWLEDGED // 4):
                channel.basic_ack(method.delivery_tag, multiple=True)
            if number == count:
                break
        channel.close()

    def _wait_until_led(self, log: str) -> None:
        """A server that was killed takes clients before its streams have a leader again."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                self._connection.channel().queue_declare(log, passive=True)
                return
            except ChannelClosedByBroker as refusal:
                if time.monotonic() > deadline:
                    raise WorkNotDone(f"{log} cannot be read: {refusal}") from refusal
                time.sleep(POLL_S)

    def close(self) -> None:
        self._connection.close()


class _Burst:
    """Messages with some of them on their way, by the client's callbacks: its blocking calls wait for each."""

    def __init__(self, server: Server, log: str, count: int, value: bytes) -> None:
        self._log, self._value = log, value
        self._unsent = count
        self._unconfirmed: dict[int, None] = {}
        self._channel: Channel | None = None
        self._connection = pika.SelectConnection(
            pika.ConnectionParameters(HOST, server.port, heartbeat=0),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._begin),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    @property
    def left(self) -> int:
        return self._unsent + len(self._unconfirmed)

    def run(self) -> None:
        self._connection.ioloop.call_later(TIMEOUT_S, self._connection.close)
        self._connection.ioloop.start()

    def _begin(self, channel: Channel) -> None:
        self._channel = channel
        self._tags = itertools.count(1)
        channel.confirm_delivery(self._on_confirmed, callback=lambda _: self._send())

    def _send(self) -> None:
        assert self._channel is not None
        while self._unsent and len(self._unconfirmed) < IN_FLIGHT:
            self._channel.basic_publish("", self._log, self._value)
            self._unconfirmed[next(self._tags)] = None
            self._unsent -= 1

    def _on_confirmed(self, frame: Any) -> None:
        if not isinstance(frame.method, pika.spec.Basic.Ack):  # refused: `left` will say so
            self._connection.close()
            return
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            for earlier in list(itertools.takewhile(lambda each: each <= tag, self._unconfirmed)):
                del self._unconfirmed[earlier]
        else:
            self._unconfirmed.pop(tag, None)
        if self.left:
            self._send()
        else:
            self._connection.close()


RABBITMQ = Peer("RabbitMQ stream", "pika", RabbitServer, RabbitClient, lambda: version_of("rabbitmq-server"))
