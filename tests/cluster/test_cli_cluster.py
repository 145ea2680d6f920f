"""`moldau cluster` against brokers that are processes: what it shows and does, and what a person sees when one dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cluster.support import wait_until
from cluster.up import COMMAND, TIMEOUT_S, Up
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import ClusterClient
from moldau.cli.options import Target


class Cli:
    def __init__(self, up: Up, bootstrap: str | None = None) -> None:
        self.up = up
        self.bootstrap = bootstrap or ",".join(up.addresses)

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*COMMAND, *arguments, "--bootstrap", self.bootstrap],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def replicas(self, topic: str) -> list[list[int]]:
        (described,) = self.json("topic", "describe", topic)
        return [partition["replicas"] for partition in described["partitions"]]

    def broker(self, number: int) -> Any:
        (found,) = (one for one in self.json("cluster", "describe")["brokers"] if one["id"] == number)
        return found


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    up = Up(tmp_path_factory.mktemp("cluster"), "--brokers", "4")
    yield Cli(up)
    up.kill()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Callable[..., Cli]]:
    """Starts a cluster for one test."""
    started: list[Up] = []

    def start(*arguments: str) -> Cli:
        started.append(Up(tmp_path, *arguments))
        return Cli(started[-1])

    yield start
    for up in started:
        up.kill()


def test_brokers_are_described_with_what_they_lead_and_hold(cli: Cli) -> None:
    cli.json("topic", "create", "described", "--partitions", "4", "--replication-factor", "2")
    found = cli.json("cluster", "describe")
    assert [broker["id"] for broker in found["brokers"]] == [1, 2, 3, 4]
    assert {broker["state"] for broker in found["brokers"]} == {"running"}
    assert [broker["is_controller"] for broker in found["brokers"]].count(True) == 1
    assert sum(broker["leads"] for broker in found["brokers"]) == found["partitions"]["total"]
    text = cli.run("cluster", "describe").stdout
    assert found["cluster_id"] in text and "controller" in text and cli.up.addresses[3].split(":")[1] in text


def test_a_partition_goes_where_a_plan_in_kafkas_format_says(cli: Cli, tmp_path: Path) -> None:
    cli.json("topic", "create", "planned", "--replication-factor", "1")
    (before,) = cli.replicas("planned")
    (other,) = [number for number in (1, 2, 3, 4) if number not in before][:1]
    plan = {"version": 1, "partitions": [{"topic": "planned", "partition": 0, "replicas": [other]}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = cli.json("cluster", "reassign", "--file", str(tmp_path / "plan.json"))
    assert cli.replicas("planned") == [[other]]
    assert done["previous"]["partitions"] == [{"topic": "planned", "partition": 0, "replicas": before}]


def test_copies_become_more_and_a_dry_run_moves_nothing(cli: Cli) -> None:
    cli.json("topic", "create", "copied", "--partitions", "2", "--replication-factor", "1")
    arguments = ["cluster", "reassign", "--topic", "copied", "--replication-factor", "3"]
    plan = cli.json(*arguments, "--dry-run")
    assert {len(one["replicas"]) for one in plan["partitions"]} == {3}
    assert {len(replicas) for replicas in cli.replicas("copied")} == {1}
    assert "2 partitions moved" in cli.run(*arguments).stdout
    assert {len(replicas) for replicas in cli.replicas("copied")} == {3}
    assert "Nothing to move." in cli.run(*arguments).stdout


def test_a_move_to_a_broker_that_is_down_is_shown_and_can_be_cancelled(cli: Cli) -> None:
    cli.json("topic", "create", "stuck", "--replication-factor", "1")
    ((before,),) = cli.replicas("stuck")
    down = next(number for number in (4, 3) if number != before)
    pid = cli.up.pid(down)
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: cli.broker(down)["state"] == "fenced", TIMEOUT_S, "the broker to be fenced")
        assert cli.run("cluster", "health", code=1).stdout.count(f"broker {down}: registered") == 1
        arguments = ["cluster", "reassign", "--topic", "stuck", "--brokers", str(down)]
        assert "1 partition moving" in cli.run(*arguments, "--no-wait").stdout
        (moving,) = cli.json("cluster", "describe")["moving"]
        assert (moving["topic"], moving["adding"], moving["removing"]) == ("stuck", [down], [before])
        assert cli.json("cluster", "reassign", "--cancel") == {"cancelled": ["stuck-0"]}
        assert cli.replicas("stuck") == [[before]]
        assert "Nothing is being moved." in cli.run("cluster", "reassign", "--cancel").stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    assert cli.json("cluster", "health", "--wait", "60")["healthy"]


def test_what_a_dead_broker_led_is_led_by_others_and_given_back_by_an_election(cli: Cli) -> None:
    cli.json("topic", "create", "elected", "--partitions", "4", "--replication-factor", "3")
    preferred = [replicas[0] for replicas in cli.replicas("elected")]
    victim = preferred[0]
    first = cli.up.pid(victim)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: leaders(cli, "elected")[0] not in (victim, None), TIMEOUT_S, "another leader")
    cli.up.wait_for_another(victim, first)
    assert cli.json("cluster", "health", "--wait", "60")["healthy"]
    cli.json("cluster", "elect", "--topic", "elected")
    wait_until(lambda: leaders(cli, "elected") == preferred, TIMEOUT_S, "the preferred leaders")
    assert "Nothing to elect" in cli.run("cluster", "elect", "--topic", "elected:0").stdout


def leaders(cli: Cli, topic: str) -> list[int | None]:
    (described,) = cli.json("topic", "describe", topic)
    return [partition["leader"] for partition in described["partitions"]]


def test_partitions_that_are_not_well_are_seen_everywhere(alone: Callable[..., Cli]) -> None:
    cli = alone("--brokers", "3", "--no-restart")
    cli.json("topic", "create", "orders", "--replication-factor", "3")
    assert cli.run("cluster", "health").stdout.count("all replicas in sync") == 1
    ((first, second, third),) = cli.replicas("orders")

    def state() -> Any:
        return cli.json("topic", "describe", "orders")[0]["partitions"][0]["state"]

    os.kill(cli.up.pid(third), signal.SIGKILL)
    wait_until(lambda: state() == "under-replicated", TIMEOUT_S, "the in-sync set to shrink")
    health = cli.run("cluster", "health", code=1).stdout
    assert f"not in sync on broker {third}" in health and f"broker {third}: registered" in health
    os.kill(cli.up.pid(second), signal.SIGKILL)
    wait_until(lambda: state() == "under min ISR", TIMEOUT_S, "the in-sync set to shrink")
    for arguments, code in ((["topic", "describe", "orders"], 0), (["cluster", "health"], 1)):
        assert "under min ISR: writes with acks=all are refused" in cli.run(*arguments, code=code).stdout
    doctor = cli.run("doctor", "--data", str(cli.up.data), code=1).stdout
    assert "under min ISR" in doctor and "registered, and not serving" in doctor
    assert cli.json("cluster", "describe")["partitions"]["under_min_isr"] == 1
    assert cli.broker(first)["leads"] == 1


def test_a_drained_broker_holds_nothing_and_is_forgotten_when_it_is_gone(alone: Callable[..., Cli]) -> None:
    cli = alone("--brokers", "3", "--no-restart")
    cli.json("topic", "create", "orders", "--partitions", "6", "--replication-factor", "2")
    assert "is running" in cli.run("cluster", "unregister", "3", code=1).stderr
    cli.json("topic", "create", "everywhere", "--replication-factor", "3")
    refused = cli.run("cluster", "drain", "3", code=1).stderr
    assert "everywhere-0 is to have 3 replicas, and there are only 2 brokers" in refused
    cli.json("topic", "delete", "everywhere", "--yes")
    assert "moldau cluster unregister 3" in cli.run("cluster", "drain", "3").stderr
    assert cli.broker(3)["replicas"] == 0
    os.kill(cli.up.pid(3), signal.SIGTERM)
    wait_until(lambda: cli.broker(3)["state"] == "fenced", TIMEOUT_S, "broker 3 to be gone")
    assert cli.json("cluster", "unregister", "3") == {"broker": 3, "status": "unregistered"}
    assert [one["id"] for one in cli.json("cluster", "describe")["brokers"]] == [1, 2]
    assert cli.json("cluster", "health")["healthy"]
    assert "There is no broker 3" in cli.run("cluster", "unregister", "3", code=4).stderr


def test_a_broker_that_hangs_does_not_keep_the_next_one_from_being_asked(cli: Cli) -> None:
    pid = cli.up.pid(1)
    os.kill(pid, signal.SIGSTOP)
    try:
        found = cli.json("cluster", "describe")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert [one["id"] for one in found["brokers"]] == [1, 2, 3, 4]
    assert cli.json("cluster", "health", "--wait", "60")["healthy"]


@contextmanager
def starting() -> Iterator[str]:
    """The address of a broker that is about to start: it closes what connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(TIMEOUT_S)


def test_a_broker_that_is_about_to_start_does_not_keep_the_next_one_from_being_asked(cli: Cli) -> None:
    with starting() as address:
        both = Cli(cli.up, f"{address},{cli.bootstrap}")
        assert len(both.json("cluster", "describe")["brokers"]) == 4


def test_waiting_for_health_outlives_the_restart_of_the_only_broker_that_is_asked(
    alone: Callable[..., Cli],
) -> None:
    cli = alone("--brokers", "2")
    first = Cli(cli.up, cli.up.addresses[0])
    os.kill(cli.up.pid(1), signal.SIGKILL)
    assert first.json("cluster", "health", "--wait", "60")["healthy"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["reassign"], 2, "Say what to move"),
        (["reassign", "--brokers", "1,x"], 2, "ids with commas"),
        (["reassign", "--brokers", "1,9"], 4, "There is no broker 9"),
        (["reassign", "--topic", "describd"], 4, "There is no topic 'describd'"),
        (["reassign", "--file", "no-such-file"], 4, "There is no file"),
        (["reassign", "--cancel", "--brokers", "1"], 2, "--cancel goes back"),
        (["drain", "9"], 4, "There is no broker 9"),
        (["elect", "--unclean"], 2, "loses data"),
        (["elect", "--topic", "nobody"], 4, "There is no topic 'nobody'"),
        (["reassign", "--topic", "described", "--replication-factor", "9"], 1, "only 4 brokers"),
    ],
)
def test_mistakes_are_said_in_a_sentence(cli: Cli, arguments: list[str], code: int, said: str) -> None:
    if "described" in arguments:
        cli.json("topic", "create", "described", "--if-not-exists")
    assert said in cli.run("cluster", *arguments, code=code).stderr


def test_the_sizes_of_logs_are_told_by_each_broker(cli: Cli) -> None:
    cli.json("topic", "create", "sized", "--replication-factor", "4")
    subprocess.run(
        [*COMMAND, "message", "produce", "sized", "--bootstrap", cli.bootstrap],
        input=b"x" * 1000 + b"\n",
        timeout=TIMEOUT_S,
        check=True,
        capture_output=True,
    )
    place = TopicPartition("sized", 0)
    with ClusterClient(Target(cli.bootstrap)) as client:
        brokers = client.cluster().brokers
        wait_until(lambda: all(client.log_sizes(broker)[place] > 1000 for broker in brokers), TIMEOUT_S)
