"""`moldau up --secure` as processes, and the commands on a cluster with TLS and passwords, all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cluster.support import wait_until
from cluster.test_cli_up import COMMAND, TIMEOUT_S, Process, at_terminal
from moldau.cli import profiles
from moldau.runtime.real.free_ports import free_port
from moldau.testing import Cluster
from terminal import ENTER

PASSWORD_SHOWN = re.compile(r"^sasl\.password=(.+)$", re.M)
READY = re.compile(r"ready: bootstrap\.servers=((?:localhost:\d+,?)+)\n")


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("MOLDAU_PROFILE", "MOLDAU_BOOTSTRAP"):
        monkeypatch.delenv(name, raising=False)


class Up:
    """A running `moldau up --secure`, ready when constructed, with all that it has told."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.errors = folder / "errors"
        with self.errors.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, "up", "--secure", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
            )
        assert self.popen.stdout is not None
        first = self.popen.stdout.readline()
        found = READY.fullmatch(first)
        assert found is not None, (first, self.errors.read_text())
        self.bootstrap = found[1]
        self.told = ""
        while "profile local" not in self.told:
            line = self.popen.stdout.readline()
            assert line, self.errors.read_text()
            self.told += line

    @property
    def settings(self) -> dict[str, str]:
        security = self.folder / "moldau-data" / "security"
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(security / "ca.crt"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": (security / "admin.password").read_text().strip(),
        }

    def end(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        return self.popen.wait(TIMEOUT_S)


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Up] = []

    def run(*arguments: str) -> Up:
        started.append(Up(tmp_path, *arguments))
        return started[-1]

    yield run
    for one in started:
        one.popen.kill()
        one.popen.wait()
        assert one.popen.stdout is not None
        one.popen.stdout.close()


def moldau(folder: Path, *arguments: str, code: int = 0, stdin: str = "") -> str:
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def round_trip(settings: dict[str, Any], topic: str, value: bytes) -> None:
    producer = Producer(settings)
    producer.produce(topic, value)
    assert producer.flush(20) == 0
    consumer = Consumer(settings | {"group.id": "test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.value() == value


def fails(settings: dict[str, Any]) -> bool:
    try:
        AdminClient(settings).list_topics(timeout=2)
    except KafkaException:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("brokers", [1, 3])
def test_one_command_gives_tls_and_a_password_and_keeps_them(
    brokers: int, start: Start, tmp_path: Path
) -> None:
    port = ["--port", str(free_port())] if brokers == 1 else ["--port", "0"]
    up = start("--brokers", str(brokers), *port)
    settings = up.settings
    round_trip(settings, "orders", b"3 apples")
    assert fails({"bootstrap.servers": up.bootstrap})
    assert fails(settings | {"sasl.password": "guessed"})
    assert fails({name: value for name, value in settings.items() if name != "ssl.ca.location"})
    assert json.loads(moldau(tmp_path, "topic", "list", "--json"))[0]["name"] == "orders"
    described = json.loads(moldau(tmp_path, "cluster", "describe", "--json"))
    assert len(described["brokers"]) == brokers
    up.end()
    assert profiles.default_name() is None, "with its broker the default goes"

    again = start("--brokers", str(brokers), *port)
    assert again.settings["sasl.password"] == settings["sasl.password"]
    round_trip(again.settings, "orders", b"3 apples")
    assert again.end() == 0
    said = again.errors.read_text()
    assert settings["sasl.password"] not in said
    levels = {line["level"] for line in map(json.loads, said.splitlines())}
    assert not {"error", "critical"} & levels

    plain = Process(tmp_path, "up", "--brokers", str(brokers), "--port", "0")
    plain.popen.kill()
    plain.popen.wait()
    assert plain.popen.stdout is not None
    plain.popen.stdout.close()
    assert "was started with --secure before" in plain.errors.read_text()


@pytest.mark.slow
def test_a_broker_is_killed_and_the_others_go_on_over_tls(start: Start, tmp_path: Path) -> None:
    up = start("--brokers", "3", "--port", "0")
    round_trip(up.settings, "orders", b"1")
    pid_file = up.folder / "moldau-data" / "broker-2" / "pid"
    pid = int(pid_file.read_text())
    os.kill(pid, signal.SIGKILL)
    round_trip(up.settings, "more", b"2")
    wait_until(lambda: pid_file.exists() and int(pid_file.read_text() or pid) != pid, TIMEOUT_S, "broker 2")
    moldau(tmp_path, "cluster", "health", "--wait", "30")


@pytest.mark.slow
def test_the_password_is_shown_on_a_terminal_and_nowhere_else(start: Start, tmp_path: Path) -> None:
    up = start("--port", "0")
    password = up.settings["sasl.password"]
    (shown,) = PASSWORD_SHOWN.findall(up.told)
    assert password not in up.told and shown.startswith("(in ") and "admin.password" in shown
    up.end()
    with at_terminal(tmp_path, "up", "--secure", "--port", "0") as terminal:
        terminal.wait_for(f"sasl.password={password}", TIMEOUT_S)
        terminal.wait_for("profile local", TIMEOUT_S)


@pytest.mark.slow
def test_what_is_thrown_away_leaves_no_profile(start: Start, tmp_path: Path) -> None:
    up = start("--data", ":temp:", "--port", "0")
    assert profiles.names() == ["local"]
    moldau(tmp_path, "topic", "create", "orders")
    assert up.end() == 0
    assert profiles.names() == [] and not (tmp_path / "moldau-data").exists()


@pytest.mark.slow
def test_a_profile_of_another_cluster_is_left_alone(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.crt").write_text("")
    mine = {"bootstrap.servers": "kafka1:9093", "ssl.ca.location": str(tmp_path / "mine.crt")}
    profiles.save("local", mine, replace=False)
    profiles.use("local")
    up = start("--port", "0")
    assert profiles.load("local")["bootstrap.servers"] == "kafka1:9093"
    name = f"local-{up.bootstrap.rpartition(':')[2]}"
    assert profiles.default_name() == "local" and f"--profile {name}" in up.told
    moldau(tmp_path, "topic", "list", "--profile", name)
    up.end()
    assert profiles.default_name() == "local"


def test_listeners_of_ones_own_and_secure_exclude_each_other(tmp_path: Path) -> None:
    said = moldau(tmp_path, "up", "--secure", "--set", "listeners=PLAINTEXT://:1", code=2)
    assert "--secure and --set listeners=... exclude each other" in said


# ---- every way to a cluster -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(secure=True, topics={"orders": 1}) as running:
        yield running


@pytest.fixture
def profile(cluster: Cluster) -> Iterator[str]:
    profiles.save("secure", cluster.client_settings(), replace=False)
    yield "secure"


EVERYWHERE = [
    ("topic", "list"),
    ("topic", "describe", "orders"),
    ("group", "list"),
    ("cluster", "describe"),
    ("cluster", "health"),
    ("transaction", "list"),
    ("config", "get", "broker", "all"),
    ("config", "get", "topic", "orders"),
    ("user", "list"),
    ("quota", "list"),
    ("doctor",),
]
"""Over librdkafka, over connections of our own, over both."""


@pytest.mark.parametrize("command", EVERYWHERE, ids=" ".join)
def test_every_command_goes_by_tls_and_a_password(
    command: tuple[str, ...], profile: str, tmp_path: Path
) -> None:
    moldau(tmp_path, *command, "--profile", profile)


@pytest.mark.parametrize("command", [("topic", "list"), ("cluster", "describe")], ids=" ".join)
@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("sasl.password=guessed", "Check the user, the password"),
        ("ssl.ca.location=", "signed by an authority that this command does not know"),
        ("security.protocol=PLAINTEXT", "--profile"),
    ],
)
def test_who_is_not_let_in_hears_why(
    command: tuple[str, ...], wrong: str, advice: str, profile: str, tmp_path: Path
) -> None:
    if wrong == "ssl.ca.location=" and command[0] == "topic":
        wrong = f"ssl.ca.location={another_authority(tmp_path)}"
    said = moldau(tmp_path, *command, "--profile", profile, "-X", wrong, "--timeout", "5", code=3)
    assert advice in said and "guessed" not in said
    assert "PLAINTEXT" in wrong or "The settings are those of the profile secure." in said


def another_authority(folder: Path) -> str:
    moldau(folder, "certs", "authority")
    return str(folder / "certs" / "ca.crt")


def test_a_file_of_kafkas_tools_will_do(cluster: Cluster, tmp_path: Path) -> None:
    java = cluster.client_settings("java")
    (tmp_path / "client.properties").write_text("".join(f"{name}={value}\n" for name, value in java.items()))
    for command in (("topic", "list"), ("cluster", "describe")):
        moldau(tmp_path, *command, "--command-config", "client.properties")


def test_what_the_client_is_told_is_what_the_broker_speaks(cluster: Cluster) -> None:
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    context = ssl.create_default_context(cafile=cluster.client_settings()["ssl.ca.location"])
    with (
        socket.create_connection((host, int(port)), 10) as connection,
        context.wrap_socket(connection, server_hostname=host) as stream,
    ):
        assert stream.version() == "TLSv1.3"


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SSL"])
def test_brokers_with_listeners_of_ones_own_are_waited_for_by_their_login(
    protocol: str, tmp_path: Path
) -> None:
    moldau(tmp_path, "certs", "authority")
    moldau(tmp_path, "certs", "broker", "localhost", "127.0.0.1", "--name", "broker")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    line = f'{module} required username="broker" password="a-secret" user_broker="a-secret";'
    settings = {
        "SASL_PLAINTEXT": {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": line,
        },
        "SSL": {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(tmp_path / "certs" / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tmp_path / "certs" / "ca.crt"),
        },
    }[protocol]
    ours = {"listeners": f"{protocol}://localhost:0", "security.inter.broker.protocol": protocol} | settings
    words = [word for name, value in ours.items() for word in ("--set", f"{name}={value}")]
    process = Process(tmp_path, "up", "--brokers", "2", *words, "--set", "min.insync.replicas=2")
    try:
        assert READY.fullmatch(process.first_line), process.errors.read_text()
        log = [entry["message"] for entry in process.log()]
        assert not [line for line in log if "waiting for the broker" in line or "could not be set" in line]
        assert process.end() == 0
    finally:
        process.popen.kill()
        process.popen.wait()
        assert process.popen.stdout is not None
        process.popen.stdout.close()


def test_a_password_that_is_asked_for_is_not_shown(tmp_path: Path) -> None:
    arguments = ("profile", "add", "prod", "-b", "kafka1:9093", "--user", "alice")
    with at_terminal(tmp_path, *arguments) as terminal:
        terminal.wait_for("Password of alice: ", TIMEOUT_S)
        terminal.send("a-secret", ENTER)
        terminal.wait_for("prod: added", TIMEOUT_S)
        assert "a-secret" not in terminal.screen
    assert profiles.load("prod")["sasl.password"] == "a-secret"
