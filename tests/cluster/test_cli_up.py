"""`moldau up` and `moldau broker` as processes: ready line, signals, data folders, and what stops a start."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.controller.layout import LAYOUT_VERSION
from moldau.runtime.real.free_ports import FreePorts, free_port
from terminal import Terminal

TIMEOUT_S = 60
COMMAND = [sys.executable, "-c", "from moldau.cli import main; main()"]
READY = re.compile(r"ready: bootstrap\.servers=(localhost|127\.0\.0\.1):(\d+)\n")


class Process:
    """A running `moldau up` or `moldau broker`, ready when constructed."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.errors = folder / "errors"
        with self.errors.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=os.environ | environment,
            )
        assert self.popen.stdout is not None
        self.first_line = self.popen.stdout.readline()

    @property
    def bootstrap_servers(self) -> str:
        match = READY.fullmatch(self.first_line)
        assert match, (self.first_line, self.errors.read_text())
        return f"{match[1]}:{match[2]}"

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(TIMEOUT_S)

    def log(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.errors.read_text().splitlines()]


Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def run(*arguments: str, **environment: str) -> Process:
        started.append(Process(tmp_path, *arguments, **environment))
        return started[-1]

    yield run
    for process in started:
        process.popen.kill()
        process.popen.wait()
        assert process.popen.stdout is not None
        process.popen.stdout.close()


def at_terminal(folder: Path, *arguments: str, log_to: str = "") -> Terminal:
    """It leads its session, as a shell does: when the terminal goes, the kernel tells it."""
    into = f" 2>{log_to}" if log_to else ""
    return Terminal(["sh", "-c", f'exec "$@"{into}', "sh", *COMMAND, *arguments], {}, folder)


def address_at(terminal: Terminal) -> str:
    terminal.wait_for("ready: bootstrap.servers=", TIMEOUT_S)
    return terminal.wait_for("\n", TIMEOUT_S).strip()


def clean_stops(folder: Path) -> int:
    return len(list(folder.rglob(".kafka_cleanshutdown")))


@pytest.mark.parametrize("log_to", ["errors", ""], ids=["log in a file", "log on the terminal"])
def test_broker_outlives_its_terminal(tmp_path: Path, log_to: str) -> None:
    file = broker_file(tmp_path)
    with at_terminal(tmp_path, "broker", "--config", file, log_to=log_to) as terminal:
        address = address_at(terminal)
        terminal.hang_up()
        produce(address, "after", b"the terminal")
        assert consume(address, "after", 1) == [b"the terminal"]
        terminal.process.terminate()
        code = terminal.process.wait(TIMEOUT_S)
    assert clean_stops(tmp_path) == 1
    if log_to:
        assert code == 0
        assert "SIGHUP: the broker goes on as it is" in (tmp_path / log_to).read_text()


@pytest.mark.parametrize("number", [1, 2])
def test_up_ends_with_its_terminal_and_cleanly(tmp_path: Path, number: int) -> None:
    with at_terminal(tmp_path, "up", "--port", "0", "--brokers", str(number)) as terminal:
        address_at(terminal)
        terminal.hang_up()
        terminal.process.wait(TIMEOUT_S)
    assert clean_stops(tmp_path) == number


def test_a_reload_by_systemd_is_noted_and_changes_nothing(start: Start, tmp_path: Path) -> None:
    process = start("broker", "--config", broker_file(tmp_path))
    address = process.bootstrap_servers
    for _ in range(3):
        process.popen.send_signal(signal.SIGHUP)
    produce(address, "after", b"a reload")
    assert consume(address, "after", 1) == [b"a reload"]
    assert process.end() == 0
    assert any("SIGHUP" in entry["message"] for entry in process.log())


def test_under_nohup_a_lost_terminal_ends_nothing(tmp_path: Path) -> None:
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND, "up", "--port", "0"]
    with Terminal(command, {}, tmp_path) as terminal:
        address = address_at(terminal)
        terminal.hang_up()
        produce(address, "after", b"the terminal")
        terminal.process.terminate()
        terminal.process.wait(TIMEOUT_S)
    assert clean_stops(tmp_path) == 1


def broker_file(folder: Path) -> str:
    path = folder / "broker.properties"
    path.write_text(f"node.id=1\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs={folder / 'data'}\n")
    return str(path)


def refused(folder: Path, *arguments: str, code: int = 5) -> str:
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, cwd=folder, check=False
    )
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error = done.stderr[done.stderr.index("error: ") :]  # behind the log, if it had begun to work
    assert "Traceback" not in done.stderr
    return error


def produce(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0


def consume(address: str, topic: str, count: int) -> list[bytes | None]:
    # Without commits: a lone broker with Kafka's defaults has no place for them (offsets.topic.replication.factor=3).
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, TIMEOUT_S)]
    finally:
        consumer.close()


def test_up_keeps_its_data_in_moldau_data_over_restarts(start: Start, tmp_path: Path) -> None:
    first = start("up", "--port", "0")
    produce(first.bootstrap_servers, "orders", b"before")
    data = tmp_path / "moldau-data"
    assert (data / "cluster.sqlite").exists()
    assert int((data / "broker-1" / "pid").read_text()) == first.popen.pid
    assert first.end() == 0
    assert not (data / "broker-1" / "pid").exists()

    second = start("up", "--port", "0")
    produce(second.bootstrap_servers, "orders", b"after")
    assert consume(second.bootstrap_servers, "orders", 2) == [b"before", b"after"]


def test_the_ready_line_is_all_of_stdout_and_logs_are_json_lines_on_stderr(start: Start) -> None:
    process = start("up", "--port", "0")
    assert process.bootstrap_servers
    process.end()
    assert process.popen.stdout is not None and process.popen.stdout.read() == ""
    messages = [entry["message"] for entry in process.log()]
    assert messages[-3].startswith("ready") and messages[-2:] == ["stopping", "stopped"]
    assert process.log()[-3]["bootstrap_servers"] == process.bootstrap_servers


def test_the_ready_line_is_json_when_asked(start: Start) -> None:
    process = start("up", "--port", "0", "--json")
    ready = json.loads(process.first_line)
    assert ready["ready"] is True
    produce(ready["bootstrap_servers"], "orders", b"1")


def test_it_listens_on_the_port_that_it_is_given(start: Start) -> None:
    with closing(FreePorts()) as ports:
        port = ports.take()
        process = start("up", "--port", str(port), "--data", ":temp:")
    assert process.bootstrap_servers == f"localhost:{port}"


def two_free_ports() -> int:
    """The first of two neighbours."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port + 1))
            except OSError:
                continue
            return port


@pytest.mark.parametrize("brokers", ["1", "2"])
@pytest.mark.parametrize("options", [(), ("--port", "0"), ("--open",), ("--open", "--port", "0")])
def test_it_is_for_this_machine_unless_it_is_opened_and_says_so_then(
    start: Start, brokers: str, options: tuple[str, ...]
) -> None:
    """127.0.0.2 is this machine's as well, and stands for its other addresses: nobody listens there by default."""
    if "--port" not in options:
        options += ("--port", str(two_free_ports()))
    process = start("up", "--data", ":temp:", "--brokers", brokers, "--log-format", "json", *options)
    servers = process.first_line.rpartition("=")[2].strip().split(",")
    assert len(servers) == int(brokers)
    for server in servers:
        host, _, number = server.partition(":")
        assert host == "localhost"
        assert listens("127.0.0.1", int(number))
        assert listens("127.0.0.2", int(number)) == ("--open" in options)
    said = [entry for entry in process.log() if "without a password" in entry["message"]]
    assert len(said) == ("--open" in options)
    for entry in said:
        assert entry["level"] == "warning" and "all addresses of this machine" in entry["message"]
    produce(",".join(servers), "orders", b"1")


def test_fewer_brokers_than_its_own_topics_are_to_have_replicas_are_told_of_once(start: Start) -> None:
    """By one of those that start together, when all that start count."""
    process = start(
        "up", "--port", "0", "--data", ":temp:", "--brokers", "2", "--log-format", "json",
        "--set", "offsets.topic.replication.factor=3",
    )  # fmt: skip
    process.end()
    warnings = [entry["message"] for entry in process.log() if entry["level"] == "warning"]
    assert warnings == [
        "consumer groups do not work: __consumer_offsets is to have 3 replicas "
        "(offsets.topic.replication.factor), and the cluster has 2 brokers"
    ]


def listens(host: str, port: int) -> bool:
    with closing(socket.socket()) as client:
        return client.connect_ex((host, port)) == 0


def test_a_server_properties_of_kafka_3_is_taken_over_and_what_is_left_out_is_named(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "server.properties").write_text(
        "broker.id=3\nlisteners=PLAINTEXT://127.0.0.1:0\nlog.dirs=data\nnum.network.threads=3\n"
        "offsets.topic.replication.factor=1\ntransaction.state.log.replication.factor=1\n"
        "zookeeper.connect=localhost:2181\nconfluent.support.metrics.enable=true\n"
    )
    kubernetes = {"MOLDAU_PORT": "tcp://10.96.0.7:9092", "MOLDAU_SERVICE_HOST": "10.96.0.7"}
    process = start(
        "broker", "--config", "server.properties", **kubernetes, MOLDAU_HTTP_PORT="0", MOLDAU_IMAGE_TAG="1"
    )
    produce(process.bootstrap_servers, "orders", b"1")
    warnings = [entry["message"] for entry in process.log() if entry["level"] == "warning"]
    assert warnings[:2] == [
        "left out of server.properties, being no keys of Moldau's: "
        "zookeeper.connect, confluent.support.metrics.enable",
        "these variables name no configuration key, and have no effect: MOLDAU_IMAGE_TAG",
    ]
    assert not any("MOLDAU_PORT" in warning for warning in warnings)


def test_clients_that_speak_tls_are_told_of_in_one_line(start: Start) -> None:
    process = start("up", "--port", "0", "--data", ":temp:")
    client = Consumer(
        {
            "bootstrap.servers": process.bootstrap_servers,
            "group.id": "test",
            "security.protocol": "ssl",
            "enable.ssl.certificate.verification": False,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )
    for _ in range(10):  # it tries again some ten times a second, once for each address of localhost
        client.poll(0.3)
    client.close()
    process.end()
    about = [entry for entry in process.log() if "TLS" in entry["message"] or "clos" in entry["message"]]
    assert {entry["level"] for entry in about} == {"warning"}
    assert all("speaks TLS to the listener PLAINTEXT" in entry["message"] for entry in about)
    addresses = [entry["message"].split()[0] for entry in about]
    assert addresses and len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_and_temporary_data_is_gone(
    start: Start, tmp_path: Path, number: int
) -> None:
    process = start("up", "--port", "0", "--data", ":temp:", TMPDIR=str(tmp_path))
    produce(process.bootstrap_servers, "orders", b"1")
    assert list(tmp_path.glob("moldau-*/broker-1/orders-0"))
    assert process.end(number) == 0
    assert list(tmp_path.glob("moldau-*")) == []


SYNCS_NOTED = """
import os, sqlite3

def note(what):
    with open(os.environ["NOTED"], "a") as file:
        file.write(what + "\\n")

fsync, connect = os.fsync, sqlite3.connect

def noted_fsync(descriptor):
    note(f"fsync {os.readlink(f'/proc/self/fd/{descriptor}')}")
    fsync(descriptor)

def noted_connect(*arguments, **options):
    connection = connect(*arguments, **options)
    connection.set_trace_callback(lambda text: note(text) if text == "PRAGMA synchronous=FULL" else None)
    return connection

os.fsync, sqlite3.connect = noted_fsync, noted_connect
"""
"""A sitecustomize.py: Python runs it at the start of each process."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
@pytest.mark.parametrize("brokers", [1, 2])
def test_data_that_is_thrown_away_is_not_synced(start: Start, tmp_path: Path, brokers: int) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "sitecustomize.py").write_text(SYNCS_NOTED)
    path = os.pathsep.join([str(tmp_path / "code"), os.environ.get("PYTHONPATH", "")])
    noted = {data: tmp_path / f"noted-{number}" for number, data in enumerate((":temp:", "kept"))}
    for data, file in noted.items():
        process = start(
            "up", "--port", "0", "--brokers", str(brokers), "--data", data, "--set", "num.partitions=9",
            PYTHONPATH=path, NOTED=str(file),
        )  # fmt: skip
        produce(process.first_line.strip().partition("=")[2], "orders", b"1")
        assert process.end() == 0
    assert not noted[":temp:"].exists(), noted[":temp:"].read_text()
    assert "PRAGMA" in noted["kept"].read_text() and "orders" in noted["kept"].read_text()


def test_settings_come_from_options_over_variables(start: Start) -> None:
    process = start(
        "up", "--port", "0", "--data", ":temp:", "--set", "num.partitions=3",
        MOLDAU_NUM_PARTITIONS="2", MOLDAU_DEFAULT_REPLICATION_FACTOR="1", MOLDAU_DEBUG="0",
    )  # fmt: skip
    produce(process.bootstrap_servers, "orders", b"1")
    done = subprocess.run(
        [*COMMAND, "topic", "list", "--json", "--bootstrap", process.bootstrap_servers],
        capture_output=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    assert json.loads(done.stdout) == [{"name": "orders", "partitions": 3, "replication_factor": 1}]


@pytest.mark.parametrize("name", ["broker.toml", "broker.properties"])
def test_broker_runs_from_a_file(start: Start, tmp_path: Path, name: str) -> None:
    quote = '"' if name.endswith("toml") else ""
    (tmp_path / name).write_text(
        f"node.id={quote}7{quote}\nlisteners={quote}PLAINTEXT://127.0.0.1:0{quote}\nlog.dirs={quote}data{quote}\n"
    )
    process = start("broker", "--config", name, "--set", "num.partitions=2")
    produce(process.bootstrap_servers, "orders", b"1")
    assert consume_any(process.bootstrap_servers, "orders", 2) == b"1"
    assert "node.id=7" in (tmp_path / "data" / "meta.properties").read_text()
    assert (tmp_path / "data" / "cluster.sqlite").exists()
    assert process.end() == 0


def consume_any(address: str, topic: str, partitions: int) -> bytes | None:
    # Without commits: a lone broker with Kafka's defaults has no place for them (offsets.topic.replication.factor=3).
    consumer = Consumer({"bootstrap.servers": address, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    try:
        (message,) = consumer.consume(1, TIMEOUT_S)
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def test_a_port_in_use_is_said_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("0.0.0.0", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = refused(tmp_path, "up", "--port", port, "--data", ":temp:")
    assert "The port is in use by another process" in text and port in text and "--port" in text


def test_an_address_that_is_not_this_machines_is_said_so(tmp_path: Path) -> None:
    text = refused(tmp_path, "up", "--set", "listeners=PLAINTEXT://203.0.113.1:9092", "--data", ":temp:")
    assert "This machine has no such address" in text


def test_a_data_folder_in_use_names_the_process_that_uses_it(start: Start, tmp_path: Path) -> None:
    process = start("up", "--port", "0")
    text = refused(tmp_path, "up", "--port", "0")
    assert "in use by another broker" in text and str(process.popen.pid) in text
    produce(process.bootstrap_servers, "orders", b"still well")
    pid_file = tmp_path / "moldau-data" / "broker-1" / "pid"
    assert int(pid_file.read_text()) == process.popen.pid, "the refused one leaves the other's file"


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("words")
    assert "chapter.tex" in refused(tmp_path, "up", "--port", "0", "--data", "thesis")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter.tex"]


def test_a_folder_of_another_cluster_is_refused(start: Start, tmp_path: Path) -> None:
    start("up", "--port", "0").end()
    (tmp_path / "moldau-data" / "cluster.sqlite").unlink()
    text = refused(tmp_path, "up", "--port", "0")
    assert "belongs to cluster.id=" in text and "Choose" in text


def test_a_store_that_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a database, but longer than the head of one: " + "x" * 200)
    text = refused(tmp_path, "up", "--port", "0", "--store", "sqlite:store", "--data", ":temp:")
    assert "cannot open the cluster store store" in text.lower() and "--store" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("PRAGMA user_version=3", "has format 3, and this version knows 2 at most."),
        (
            f"UPDATE entries SET value = '{LAYOUT_VERSION + 1}' WHERE path = '/cluster/layout'",
            f"has layout {LAYOUT_VERSION + 1}, and this version knows {LAYOUT_VERSION}",
        ),
    ],
)
def test_a_store_of_a_later_version_is_refused_and_left_alone(
    start: Start, tmp_path: Path, change: str, said: str
) -> None:
    start("up", "--port", "0").end()
    store = tmp_path / "moldau-data" / "cluster.sqlite"
    with closing(sqlite3.connect(store, isolation_level=None)) as file:
        assert file.execute("SELECT 1 FROM entries WHERE path = '/cluster/layout'").fetchone()
        file.execute(change)
        before = file.execute("SELECT * FROM entries ORDER BY path").fetchall()
    text = refused(tmp_path, "up", "--port", "0")
    assert said in text and "Run the version of Moldau that ran here last" in text
    with closing(sqlite3.connect(store)) as file:
        assert file.execute("SELECT * FROM entries ORDER BY path").fetchall() == before


def test_a_data_folder_of_a_later_version_is_refused(start: Start, tmp_path: Path) -> None:
    start("up", "--port", "0").end()
    meta = tmp_path / "moldau-data" / "broker-1" / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=2"))
    text = refused(tmp_path, "up", "--port", "0")
    assert "has version 2, not 1" in text and "Run the version of Moldau that ran here last" in text


def test_a_file_with_an_unknown_key_is_refused_with_the_near_one(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("node.id = 1\nlog.retention.hourss = 3\n")
    text = refused(tmp_path, "broker", "--config", "broker.toml", code=2)
    assert "log.retention.hourss" in text and "did you mean 'log.retention.hours'?" in text
    (tmp_path / "broken.toml").write_text("node.id = \n")
    assert "broken.toml: not TOML" in refused(tmp_path, "broker", "--config", "broken.toml", code=2)


def test_doctor_looks_into_a_data_folder(start: Start, tmp_path: Path) -> None:
    process = start("up", "--port", "0")
    produce(process.bootstrap_servers, "orders", b"value" * 100)

    def findings(code: int) -> list[tuple[str, str, str]]:
        done = subprocess.run(
            [*COMMAND, "doctor", "--deep", "--json", "--data", "moldau-data"],
            capture_output=True,
            timeout=TIMEOUT_S,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == code, done.stdout
        (section,) = (found for found in json.loads(done.stdout) if found["title"] == "Data folder")
        return [(found["status"], found["subject"], found["text"]) for found in section["findings"]]

    assert ("ok", "broker-1", f"is running as process {process.popen.pid}") in findings(0)
    process.end()
    assert ("ok", "broker-1", "was stopped cleanly") in findings(0)
    assert ("ok", "logs", "1 batch checked, all sound") in findings(0)

    (segment,) = (tmp_path / "moldau-data" / "broker-1" / "orders-0").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 1
    segment.write_bytes(damaged)
    (found,) = (finding for finding in findings(1) if finding[0] == "problem")
    assert found[1] == "orders-0" and "checksum does not match" in found[2]
