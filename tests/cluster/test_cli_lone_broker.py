"""`moldau broker` as its help shows it: it works; and what those hear who leave out that it is the only one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from cluster.support import wait_until
from moldau.broker.coordinators import OTHERS_JOIN_S
from moldau.cli.broker import command

COMMAND = [sys.executable, "-c", "from moldau.cli import main; main()"]
TIMEOUT_S = 60
SHOWN = re.compile(r"^ *# +(\S+ = .+)$", re.MULTILINE)
GROUPS = (
    "consumer groups do not work: __consumer_offsets is to have 3 replicas (offsets.topic.replication.factor), "
    "and the cluster has 1 broker"
)
TRANSACTIONS = (
    "transactions do not work: __transaction_state is to have 3 replicas "
    "(transaction.state.log.replication.factor), and the cluster has 1 broker"
)


def shown_config() -> list[str]:
    return SHOWN.findall(CliRunner().invoke(command, ["--help"]).output)


class LoneBroker:
    """`moldau broker` with a file of these lines, on free ports and in a folder of the test's."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        self.folder = folder
        own = {"listeners": '"PLAINTEXT://127.0.0.1:0"', "log.dirs": '"data"', "moldau.http.port": "0"}
        given = dict(line.split(" = ", 1) for line in lines) | own
        (folder / "broker.toml").write_text("".join(f"{key} = {value}\n" for key, value in given.items()))
        with (folder / "errors").open("wb") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, "broker", "-c", "broker.toml", "--log-format", "json"],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
            )
        assert self.popen.stdout is not None
        self.bootstrap = self.popen.stdout.readline().partition("=")[2].strip()
        assert self.bootstrap, (folder / "errors").read_text()

    def log(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in (self.folder / "errors").read_text().splitlines()]

    def health(self) -> Any:
        wait_until(lambda: any("http" in entry for entry in self.log()), TIMEOUT_S, "the broker to be ready")
        (address,) = [entry["http"] for entry in self.log() if "http" in entry]
        with urllib.request.urlopen(f"{address}/health", timeout=TIMEOUT_S) as answer:
            return json.load(answer)

    def moldau(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *arguments, "--bootstrap", self.bootstrap],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    def produce(self, topic: str) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, b"1")
        assert producer.flush(TIMEOUT_S) == 0

    def member(self, protocol: str = "classic") -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "shop",
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        return consumer

    def transactional(self) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "transactional.id": "shop", "log_level": 0})

    def close(self) -> None:
        self.popen.terminate()
        self.popen.wait(TIMEOUT_S)
        assert self.popen.stdout is not None
        self.popen.stdout.close()


@pytest.fixture
def as_shown(tmp_path: Path) -> Iterator[LoneBroker]:
    with closing(LoneBroker(tmp_path, shown_config())) as broker:
        yield broker


@pytest.fixture(scope="module")
def too_little(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoneBroker]:
    """With Kafka's defaults."""
    with closing(LoneBroker(tmp_path_factory.mktemp("lone"), ["node.id = 1"])) as broker:
        broker.produce("orders")
        yield broker


def test_groups_and_transactions_work_with_the_config_that_the_help_shows(as_shown: LoneBroker) -> None:
    producer = as_shown.transactional()
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"1")
    producer.commit_transaction(TIMEOUT_S)
    with closing(as_shown.member()) as member:
        (message,) = member.consume(1, TIMEOUT_S)
        assert (message.error(), message.value()) == (None, b"1")
        member.commit(asynchronous=False)
    assert as_shown.health()["status"] == "ok"
    assert [entry["message"] for entry in as_shown.log() if entry["level"] == "warning"] == []
    assert as_shown.moldau("doctor").returncode == 0


def test_the_start_says_what_will_not_work_and_what_to_do(too_little: LoneBroker) -> None:
    warnings = {entry["message"]: entry["hint"] for entry in too_little.log() if entry["level"] == "warning"}
    assert list(warnings) == [GROUPS, TRANSACTIONS]
    assert warnings[GROUPS].startswith("Start more brokers, or set offsets.topic.replication.factor=1 in ")


def test_health_and_doctor_find_the_problem(too_little: LoneBroker) -> None:
    assert too_little.health()["problems"] == [GROUPS, TRANSACTIONS]
    done = too_little.moldau("doctor", "--json")
    (cluster,) = [section for section in json.loads(done.stdout) if section["title"] == "Cluster"]
    found = {one["text"]: one["advice"] for one in cluster["findings"] if one["status"] == "problem"}
    assert list(found) == [GROUPS, TRANSACTIONS]
    assert "set transaction.state.log.replication.factor=1" in found[TRANSACTIONS]
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("message", "consume", "orders", "--group", "shop"), GROUPS),
        (("group", "describe", "shop"), GROUPS),
        (("group", "reset", "shop", "--to", "beginning", "--topic", "orders"), GROUPS),
        (("transaction", "describe", "shop"), TRANSACTIONS),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_command_that_needs_a_coordinator_says_why_there_is_none(
    too_little: LoneBroker, arguments: tuple[str, ...], problem: str
) -> None:
    done = too_little.moldau(*arguments)
    assert done.returncode == 1
    assert problem[1:] in " ".join(done.stderr.split())
    assert "Start more brokers, or set " in done.stderr


@pytest.mark.parametrize(
    ("protocol", "code"),
    [("classic", KafkaError.INVALID_REPLICATION_FACTOR), ("consumer", KafkaError._FATAL)],
)
def test_members_are_told_by_an_error_of_their_client_instead_of_polling_for_ever(
    too_little: LoneBroker, protocol: str, code: int
) -> None:
    with closing(too_little.member(protocol)) as member:
        (message,) = member.consume(1, OTHERS_JOIN_S + TIMEOUT_S)
        failure = message.error()
        assert failure is not None and failure.code() == code
        assert "Invalid replication factor" in failure.str()


def test_so_are_producers_with_transactions(too_little: LoneBroker) -> None:
    with pytest.raises(KafkaException) as error:
        too_little.transactional().init_transactions(OTHERS_JOIN_S + TIMEOUT_S)
    assert error.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_who_reads_without_a_group_hears_nothing_of_it(too_little: LoneBroker) -> None:
    with closing(too_little.member()) as member:
        member.consume(1, OTHERS_JOIN_S + TIMEOUT_S)  # from now on members are told
    done = too_little.moldau("message", "consume", "orders")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
