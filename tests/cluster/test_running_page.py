"""What docs/running.md shows is what works: its unit is one that systemd takes, its file one that a broker takes, and
its backups and the way back are done in the page's own words, with folders of the test in place of the page's."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cluster.shown import ROOT, Page, parse
from cluster.support import create_topic, wait_until
from cluster.test_cli_up import COMMAND, TIMEOUT_S, Process
from interop.clients.confluent import Confluent
from moldau.config.broker import BrokerConfig
from moldau.config.sources import parse_file
from needs import missing

PAGE = Page("docs/running.md")
UNIT_PAGES = ("docs/running.md", "docs/cluster.md")
DATA, COPY = "/var/lib/moldau", "/backup/moldau"
PARTITIONS = 3


def block_of(page: Page, kind: str) -> str:
    (block,) = (block for found, block in page.blocks if found == kind)
    return block


@pytest.mark.parametrize("line", sorted({line for line in PAGE.commands() if "--help" not in line}))
def test_every_command_of_the_page_is_one_that_moldau_takes(line: str, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.touch()
    parse(line.replace("/etc/moldau/broker.toml", str(config)).replace(COPY, str(tmp_path)))


def test_the_configuration_of_the_page_is_one_that_a_broker_takes() -> None:
    config = BrokerConfig.parse(parse_file("broker.toml", block_of(PAGE, "toml")))
    assert (config.log_dir, config.warnings) == (DATA, [])


@pytest.mark.parametrize("name", UNIT_PAGES)
def test_the_unit_of_the_page_is_one_that_systemd_takes(name: str, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        missing("There is no `systemd-analyze` here; it comes with systemd.")
    text = block_of(Page(name), "ini").replace("/opt/moldau/bin/moldau", sys.executable)
    unit = tmp_path / "moldau.service"
    unit.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    remarks = [line for line in done.stderr.splitlines() if str(unit) in line or "moldau.service" in line]
    assert (done.returncode, remarks) == (0, []), done.stderr


def test_the_unit_leaves_no_broker_dead_but_one_that_is_told_wrong() -> None:
    unit = block_of(PAGE, "ini")
    assert "\nRestart=always\n" in unit and "\nRestartPreventExitStatus=2\n" in unit
    command = re.search(r"^ExecStart=\S+/moldau (broker .*)$", unit, re.M)
    assert command is not None and tomllib.loads(block_of(PAGE, "toml"))
    wrong = subprocess.run(
        [*COMMAND, "broker", "--config", "/dev/null", "--set", "no.such.key=1"],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert wrong.returncode == 2


class Service:
    """The broker of the page, which `systemctl` would start and stop, with its folder and backups in one place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "broker.toml"
        text = block_of(PAGE, "toml").replace("127.0.0.1:9092", "127.0.0.1:0")
        self.config.write_text(re.sub(r"moldau.http.port = .*", "", self.put(text)))
        (folder / "backup").mkdir()
        self.process: Process | None = None

    def put(self, text: str) -> str:
        """The folders of the test in place of the page's."""
        text = text.replace("/etc/moldau/broker.toml", str(self.folder / "broker.toml"))
        return text.replace(DATA, str(self.folder / "data")).replace("/backup", str(self.folder / "backup"))

    def start(self, *options: str) -> str:
        self.process = Process(self.folder, "broker", "--config", str(self.config), *options)
        return self.process.bootstrap_servers

    def stop(self) -> None:
        assert self.process is not None
        assert self.process.end() == 0

    def kill(self) -> None:
        if self.process is not None:
            self.process.popen.kill()
            self.process.popen.communicate()

    def type(self, line: str) -> None:
        match line:
            case "systemctl stop moldau":
                self.stop()
            case "systemctl start moldau":
                self.start()
            case _:
                words = self.put(line).split()
                command = [*COMMAND, *words[1:]] if words[0] == "moldau" else words
                done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.kill()


def commands_with(text: str) -> list[str]:
    """The lines of the block in which a text stands."""
    (block,) = (block for kind, block in PAGE.blocks if not kind and text in block)
    return block.splitlines()


def filled(address: str, start: int, stop: int) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
    for number in range(start, stop):
        producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(TIMEOUT_S) == 0


def commit(address: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "shop", "log_level": 0})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "shop", "log_level": 0})
    with contextlib.closing(consumer):
        (place,) = consumer.committed([TopicPartition("orders", 0)], timeout=TIMEOUT_S)
        offset: int = place.offset
        return offset


def orders(address: str) -> list[int]:
    """What there is, each partition in the order of its offsets."""
    reader = Confluent(address)
    found = []
    for partition in range(PARTITIONS):
        first, after = reader.watermarks("orders", partition)
        messages = reader.consume("orders", partition=partition, offset=first, count=after - first)
        assert [message.offset for message in messages] == list(range(first, after))
        found += [int(message.value or b"-1") for message in messages]
    return found


def of_all_partitions(count: int) -> list[int]:
    return [number for partition in range(PARTITIONS) for number in range(partition, count, PARTITIONS)]


@pytest.mark.slow
def test_a_backup_of_a_stopped_broker_has_all_of_it_and_is_restored_as_the_page_says(
    service: Service,
) -> None:
    address = service.start()
    create_topic(address, "orders", PARTITIONS, retention_ms="-1")
    filled(address, 0, 3000)
    commit(address, 500)
    for line in commands_with("moldau log verify"):
        service.type(line)
    assert service.process is not None
    address = service.process.bootstrap_servers
    filled(address, 3000, 4000)
    commit(address, 900)

    for line in commands_with(f"mv {DATA}"):
        service.type(line)
    address = service.process.bootstrap_servers
    assert orders(address) == of_all_partitions(3000)
    assert committed(address) == 500
    assert Confluent(address).describe_configs("orders")["retention.ms"] == "-1"
    filled(address, 3000, 3300)
    assert orders(address) == of_all_partitions(3300)


@pytest.mark.slow
def test_a_backup_can_be_read_beside_the_broker(service: Service) -> None:
    address = service.start()
    create_topic(address, "orders", PARTITIONS)
    filled(address, 0, 300)
    for line in commands_with("moldau log verify"):
        service.type(line)
    (line,) = commands_with(f"log.dirs={COPY}")
    arguments = service.put(line).replace(":9192", ":0").split()[1:]
    beside = Process(service.folder, *arguments)
    try:
        assert orders(beside.bootstrap_servers) == of_all_partitions(300)
        assert beside.end() == 0
    finally:
        beside.popen.kill()
        beside.popen.communicate()


IN_FLIGHT_MAX = 1000


class Writer:
    """A producer at work: how far it was acknowledged is known at any moment."""

    def __init__(self, address: str) -> None:
        self.acknowledged = [0] * PARTITIONS
        """How many of each partition, which are acknowledged in their order."""
        self._is_over = threading.Event()
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0})
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._is_over.is_set():
            if number - sum(self.acknowledged) >= IN_FLIGHT_MAX:  # the broker is stopped, to be copied
                self._producer.poll(0.01)
                continue
            self._producer.produce(
                "orders", b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            number += 1
            self._producer.poll(0.0005)
        self._producer.flush(TIMEOUT_S)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged[message.partition()] += 1  # type: ignore[attr-defined]

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()


def snapshot(service: Service, copy: Path) -> None:
    """All files as they are at one moment, as a file system's snapshot has them: nobody writes meanwhile."""
    assert service.process is not None
    pid = service.process.popen.pid
    service.process.popen.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: state_of(pid) == "T", what="the broker to stand still")
        copied = ["cp", "-a", str(service.folder / "data"), str(copy)]  # with its named pipes
        subprocess.run(copied, check=True, timeout=TIMEOUT_S)
    finally:
        service.process.popen.send_signal(signal.SIGCONT)


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]


@pytest.mark.slow
def test_a_snapshot_of_a_running_broker_has_what_was_acknowledged_before_it(service: Service) -> None:
    address = service.start("--set", "log.segment.bytes=1048576")
    create_topic(address, "orders", PARTITIONS)
    commit(address, 7)
    writer = Writer(address)
    copies = []
    try:
        for number in range(3):
            wait_until(lambda least=2000 * (number + 1): sum(writer.acknowledged) > least, TIMEOUT_S)
            before = list(writer.acknowledged)
            copies.append((service.folder / f"copy-{number}", before))
            snapshot(service, copies[-1][0])
    finally:
        writer.end()
    service.stop()
    for copy, before in copies:
        address = service.start("--set", f"log.dirs={copy}")
        found = orders(address)
        assert committed(address) == 7
        for partition, count in enumerate(before):
            mine = [number for number in found if number % PARTITIONS == partition]
            assert mine == [partition + PARTITIONS * n for n in range(len(mine))], "in order, without a gap"
            assert len(mine) >= count, "what was acknowledged is there"
        service.stop()


@pytest.mark.slow
def test_the_folder_of_several_brokers_is_copied_and_started_elsewhere(tmp_path: Path) -> None:
    first = Process(tmp_path, "up", "--brokers", "3", "--port", "0")
    second: Process | None = None
    try:
        address = first_address(first)
        Confluent(address).create("orders", partitions=PARTITIONS)
        filled(address, 0, 3000)
        commit(address, 500)
        assert first.end() == 0
        subprocess.run(["cp", "-a", "moldau-data", "copy"], cwd=tmp_path, check=True, timeout=TIMEOUT_S)
        second = Process(tmp_path, "up", "--data", "copy", "--port", "0")
        address = first_address(second)
        assert orders(address) == of_all_partitions(3000)
        assert committed(address) == 500
        filled(address, 3000, 3300)
        assert second.end() == 0
    finally:
        for process in (first, second):
            if process is not None:
                process.popen.kill()
                process.popen.communicate()


def first_address(process: Process) -> str:
    found = re.fullmatch(r"ready: bootstrap\.servers=((?:localhost:\d+,?)+)\n", process.first_line)
    assert found, (process.first_line, process.errors.read_text())
    return found[1].split(",")[0]


def numbers_of(pattern: str) -> list[str]:
    return re.findall(pattern, PAGE.text)


def test_the_formats_that_the_page_promises_are_those_of_the_program() -> None:
    from moldau.controller.layout import LAYOUT, LAYOUT_VERSION
    from moldau.log.folder import META_VERSION
    from moldau.store.sqlite_file import FORMAT

    assert numbers_of(r"format (\d+) of the file") == [str(FORMAT)]
    assert numbers_of(r"layout (\d+) \(its entry `(.*?)`\)") == [(str(LAYOUT_VERSION), LAYOUT)]
    assert numbers_of(r"Kafka's version (\d+)") == [META_VERSION]


def test_the_tests_that_the_page_names_are_there() -> None:
    for name in set(re.findall(r"`(tests/\S+\.py)`", PAGE.text)):
        assert (ROOT / name).is_file(), name
