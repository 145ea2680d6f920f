"""What clients keep while the brokers of `moldau up --brokers N`, and of `moldau broker`, come and go."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from cluster.support import wait_until
from cluster.up import COMMAND, TIMEOUT_S, Up
from contract.ensembles import running_ensemble
from moldau.runtime.real.free_ports import free_port

MESSAGES = 3000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def run(*arguments: str) -> Up:
        started.append(Up(tmp_path, *arguments))
        return started[-1]

    yield run
    for up in started:
        up.kill()


class Writer:
    """Writes numbers in order, and keeps those that were acknowledged with acks=all."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[int] = []
        self.failures: list[str] = []
        self._next = 0
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "delivery.timeout.ms": 60_000}
        )

    def write(self, number: int) -> None:
        for _ in range(number):
            value, self._next = self._next, self._next + 1
            self._producer.produce("orders", str(value), on_delivery=self._delivered(value))
            self._producer.poll(0)

    def _delivered(self, value: int) -> Callable[[object, object], None]:
        def delivered(error: object, _message: object) -> None:
            self.failures.append(str(error)) if error else self.acknowledged.append(value)

        return delivered

    def finish(self) -> None:
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self.failures and self.acknowledged == list(range(self._next))


def create(bootstrap: str, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 1, replicas)])["orders"].result(TIMEOUT_S)


def read(bootstrap: str, number: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition("orders", 0, 0)])
    found: list[int] = []
    try:
        while len(found) < number:
            messages = consumer.consume(number - len(found), TIMEOUT_S)
            assert messages, f"{len(found)} of {number}"
            found += [int(message.value() or b"") for message in messages]
    finally:
        consumer.close()
    return found


def is_well(bootstrap: str) -> bool:
    done = subprocess.run(
        [*COMMAND, "cluster", "health", "--wait", "30", "--bootstrap", bootstrap],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_lost_or_doubled_while_each_broker_ends_once(
    start: Callable[..., Up], number: int
) -> None:
    up = start("--brokers", "3")
    bootstrap = ",".join(up.addresses)
    create(bootstrap)
    writer = Writer(bootstrap)
    for broker in (1, 2, 3):
        writer.write(MESSAGES // 3)
        pid = up.pid(broker)
        os.kill(pid, number)
        writer.write(100)
        up.wait_for_another(broker, pid)
        assert is_well(bootstrap)
    writer.finish()
    assert read(bootstrap, MESSAGES + 300) == list(range(MESSAGES + 300))


def test_all_that_was_acknowledged_is_there_after_a_stop_and_after_all_were_killed(
    start: Callable[..., Up],
) -> None:
    up = start("--brokers", "3")
    bootstrap = ",".join(up.addresses)
    create(bootstrap)
    writer = Writer(bootstrap)
    writer.write(1000)
    writer.finish()
    assert up.end(signal.SIGINT) == 0
    again = start("--brokers", "3")
    assert not again.said("was not closed cleanly"), "the stop left nothing to recover"
    assert read(",".join(again.addresses), 1000) == list(range(1000))
    again.end(signal.SIGKILL)
    wait_until(
        lambda: all(again.pid(broker) == 0 or not alive(again.pid(broker)) for broker in (1, 2, 3)), 30
    )
    third = start("--brokers", "3")
    assert third.said("was not closed cleanly")
    assert read(",".join(third.addresses), 1000) == list(range(1000))


def min_isr(up: Up) -> str:
    resource = ConfigResource(ResourceType.BROKER, "1")
    admin = AdminClient({"bootstrap.servers": ",".join(up.addresses)})
    return str(admin.describe_configs([resource])[resource].result(TIMEOUT_S)["min.insync.replicas"].value)


def test_min_isr_comes_with_more_brokers_and_is_what_was_asked_for_last(start: Callable[..., Up]) -> None:
    one = start()
    assert min_isr(one) == "1"
    assert one.end() == 0
    three = start("--brokers", "3")
    assert min_isr(three) == "2"
    assert three.said("min.insync.replicas is 2 now, for the whole cluster; it was 1")
    assert three.end() == 0
    asked = start("--set", "min.insync.replicas=3")
    assert min_isr(asked) == "3"
    assert asked.end() == 0
    again = start()
    assert min_isr(again) == "3", "it stays until something else is asked for"
    assert not again.said("has no effect")


def test_a_file_that_says_another_min_isr_than_the_cluster_is_told_so(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, f"sqlite:{tmp_path}/store/cluster.sqlite", number=1)
    try:
        brokers.processes[1].terminate()
        brokers.processes[1].wait(TIMEOUT_S)
        brokers.begin(1, min_isr=1)
        brokers.wait_ready(1)
        log = (tmp_path / "errors-1").read_text()
        assert (
            log.count("min.insync.replicas=1 of this broker has no effect: it is 2 in the whole cluster") == 1
        )
        assert "moldau config set broker all min.insync.replicas=1" in log
    finally:
        brokers.kill()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


class Brokers:
    """Processes of `moldau broker`, each from a file of its own, with one store."""

    def __init__(self, folder: Path, store: str, number: int = 3) -> None:
        self.folder = folder
        self.store = store
        self.ports = [free_port() for _ in range(number)]
        self.processes: dict[int, subprocess.Popen[str]] = {}
        for broker in range(1, number + 1):
            self.begin(broker)
        for broker in range(1, number + 1):
            self.wait_ready(broker)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def begin(self, broker: int, min_isr: int = 2) -> None:
        file = self.folder / f"broker-{broker}.toml"
        file.write_text(
            f'node.id = {broker}\nlisteners = "PLAINTEXT://127.0.0.1:{self.ports[broker - 1]}"\n'
            f'log.dirs = "{self.folder}/data-{broker}"\nmin.insync.replicas = {min_isr}\n'
        )
        with (self.folder / f"errors-{broker}").open("a") as errors:
            self.processes[broker] = subprocess.Popen(
                [*COMMAND, "broker", "--config", str(file), "--store", self.store],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def wait_ready(self, broker: int) -> None:
        stdout = self.processes[broker].stdout
        assert stdout is not None
        line = stdout.readline()
        assert line.startswith("ready: "), (self.folder / f"errors-{broker}").read_text()

    def kill(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def go_through_a_kill(brokers: Brokers) -> None:
    wait_until(lambda: is_well(brokers.bootstrap), TIMEOUT_S)
    create(brokers.bootstrap)
    writer = Writer(brokers.bootstrap)
    writer.write(500)
    victim = brokers.processes[1]
    victim.kill()
    victim.wait()
    assert victim.stdout is not None
    victim.stdout.close()
    writer.write(500)
    writer.finish()
    brokers.begin(1)
    brokers.wait_ready(1)
    assert is_well(brokers.bootstrap)
    assert read(brokers.bootstrap, 1000) == list(range(1000))


def test_brokers_with_one_store_are_a_cluster(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, f"sqlite:{tmp_path}/store/cluster.sqlite")
    try:
        go_through_a_kill(brokers)
    finally:
        brokers.kill()


@pytest.mark.interop
@pytest.mark.slow
def test_brokers_with_one_zookeeper_are_a_cluster(tmp_path: Path) -> None:
    with running_ensemble(tmp_path / "zookeeper") as ensemble:
        brokers = Brokers(tmp_path, f"{ensemble.url}/moldau")
        try:
            go_through_a_kill(brokers)
        finally:
            brokers.kill()
