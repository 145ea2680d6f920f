"""`moldau cluster reassign --throttle` against brokers that are processes: a throttle comes and goes with its move."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from cluster.support import wait_until
from cluster.test_cli_cluster import Cli
from cluster.up import COMMAND, TIMEOUT_S, Up

MB = 1_000_000
NOTHING = {"topics": {}, "brokers": {}}
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    up = Up(tmp_path_factory.mktemp("cluster"), "--brokers", "3")
    yield Cli(up)
    up.kill()


@pytest.fixture
def topic(cli: Cli, request: pytest.FixtureRequest) -> Iterator[str]:
    """One partition on broker 1, of 6 MB."""
    name = request.node.name.partition("[")[0][-60:]
    create(cli, name)
    yield name
    cli.run("cluster", "reassign", "--cancel")
    cli.json("topic", "delete", name, "--yes")


def create(cli: Cli, name: str) -> None:
    cli.json("topic", "create", name, "--replication-factor", "1")
    cli.json("cluster", "reassign", "--topic", name, "--brokers", "1")
    producer = Producer({"bootstrap.servers": cli.bootstrap, "linger.ms": 5})
    for _ in range(60):
        producer.produce(name, bytes(100_000), partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def throttled(cli: Cli) -> object:
    return cli.json("cluster", "describe")["throttled"]


def test_a_throttled_move_takes_its_time_and_leaves_nothing_behind(cli: Cli, topic: str) -> None:
    began_s = time.monotonic()
    done = cli.json("cluster", "reassign", "--topic", topic, "--brokers", "2", "--throttle", "2MB/s")
    assert time.monotonic() - began_s > 2.0
    assert (done["status"], done["throttle"]) == ("moved", 2 * MB)
    assert cli.replicas(topic) == [[2]]
    assert throttled(cli) == NOTHING


def test_whoever_stops_watching_hears_how_the_throttle_ends(cli: Cli, topic: str) -> None:
    arguments = ["cluster", "reassign", "--topic", topic, "--brokers", "3", "--throttle", "10KB/s"]
    watching = subprocess.Popen(
        [*COMMAND, *arguments, "--bootstrap", cli.bootstrap], stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: cli.json("cluster", "describe")["moving"], TIMEOUT_S, "the move to begin")
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=TIMEOUT_S)
    finally:
        watching.kill()
        watching.wait()
    assert "The move goes on" in said and "--throttle none` takes it away" in said
    described = cli.json("cluster", "describe")
    assert sorted(described["throttled"]["topics"]) == [topic]
    assert described["throttled"]["brokers"] == {number: dict.fromkeys(RATES, 10_000) for number in "13"}
    assert 0 <= described["moving_bytes"]["done"] < described["moving_bytes"]["total"]
    assert f"brokers 1, 3 at 9.8 KiB/s, replicas of {topic}" in cli.run("cluster", "describe").stdout
    faster = cli.run("cluster", "reassign", "--throttle", "1GB/s").stdout
    assert "1 move throttled to" in faster
    wait_until(lambda: not cli.json("cluster", "describe")["moving"], TIMEOUT_S, "the move to end")
    left = cli.run("cluster", "describe")
    assert "throttled: brokers 1, 3" in left.stdout
    assert "Nothing is being moved: `moldau cluster reassign --throttle none`" in left.stderr
    again = cli.run("cluster", "reassign", "--topic", topic, "--brokers", "3")
    assert "Throttled, and nothing is being moved: brokers 1, 3" in again.stderr
    assert "no longer throttled" in cli.run("cluster", "reassign", "--throttle", "none").stdout
    assert throttled(cli) == NOTHING
    assert "Nothing is throttled." in cli.run("cluster", "reassign", "--throttle", "none").stdout
    assert "Nothing is being moved." in cli.run("cluster", "reassign", "--throttle", "5MB/s").stdout


def test_a_cancelled_move_takes_its_throttle_along(cli: Cli, topic: str) -> None:
    arguments = ["cluster", "reassign", "--topic", topic, "--brokers", "2", "--throttle", "1B/s"]
    told = cli.run(*arguments, "--no-wait")
    assert "1 partition moving" in told.stdout and "The throttle stays" in told.stderr
    assert throttled(cli) != NOTHING
    cancelled = cli.run("cluster", "reassign", "--cancel").stdout
    assert "1 move cancelled" in cancelled and "no longer throttled" in cancelled
    assert throttled(cli) == NOTHING
    assert cli.replicas(topic) == [[1]]


def test_a_broker_is_drained_with_a_throttle(cli: Cli, topic: str) -> None:
    done = cli.json("cluster", "drain", "1", "--throttle", "20MB/s")
    assert (done["status"], done["throttle"]) == ("moved", 20 * MB)
    assert cli.broker(1)["replicas"] == 0
    assert throttled(cli) == NOTHING


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reassign", "--throttle", "fast"], "is not a rate"),
        (["reassign", "--throttle", "none", "--brokers", "1"], "for what is under way"),
        (["reassign", "--cancel", "--throttle", "1MB/s"], "--cancel goes back"),
        (["drain", "1", "--throttle", "none"], "Leave it out"),
    ],
)
def test_mistakes_are_said_in_a_sentence(cli: Cli, arguments: list[str], said: str) -> None:
    assert said in cli.run("cluster", *arguments, code=2).stderr
