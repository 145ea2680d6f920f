"""`moldau transaction` against a broker in this process: open transactions, and one that hangs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import click
import pytest
from confluent_kafka import Producer

from bench.raw import RawConnection
from cluster.support import create_topic
from moldau.cli.app import run
from moldau.cli.complete import transactional_ids
from moldau.cli.transaction import command, parse_duration
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster
from moldau.wire.codec import encode_request_frame


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        create_topic(running.bootstrap_servers, "payments", 2)
        yield running


class Cli:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115 (not a terminal: nothing is asked)

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            run(["transaction", *words])
        out, err = self._capture.readouterr()
        assert ended.value.code == code, (out, err)
        assert "Traceback" not in err
        return out, err

    def json(self, *words: str) -> Any:
        return json.loads(self.run(*words, "--json")[0])


@pytest.fixture
def cli(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("MOLDAU_BOOTSTRAP", cluster.bootstrap_servers)
    return Cli(monkeypatch, capsys)


def begin(cluster: Cluster, transactional_id: str) -> Producer:
    """A producer with an open transaction in payments-0."""
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("payments", b"open", partition=0)
    assert producer.flush(10) == 0
    return producer


def test_an_open_transaction_is_listed_described_and_aborted(cluster: Cluster, cli: Cli) -> None:
    producer = begin(cluster, "billing-1")
    (listed,) = cli.json("list", "billing*")
    assert (listed["transactional_id"], listed["state"]) == ("billing-1", "Ongoing")
    assert "billing-1" in cli.run("list", "--state", "ongoing")[0]
    assert cli.json("list", "--state", "Empty") == []
    found = cli.json("describe", "billing-1")
    assert found["partitions"] == [{"topic": "payments", "partition": 0}]
    assert found["start_ms"] > 0
    assert cli.json("list", "--hanging", "--longer-than", "0s") == []  # its coordinator knows of it
    assert (
        "'billing-1'" in cli.run("abort", "-p", "payments:0", "-o", "0", code=1)[1]
    )  # all of it, or nothing
    assert cli.json("describe", "billing-1")["state"] == "Ongoing"
    assert cli.json("abort", "billing-1")["state"] == "CompleteAbort"
    assert "no open transaction" in cli.run("abort", "billing-1", code=1)[1]
    with pytest.raises(Exception, match=r"fenced|epoch"):
        producer.commit_transaction(10)


def test_transactional_ids_are_completed_from_the_cluster(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.cli.complete.PATIENCE_S", 60.0)
    begin(cluster, "packing-1").abort_transaction(10)
    context = click.Context(command.commands["abort"])
    for bootstrap, known in ((cluster.bootstrap_servers, ["packing-1"]), ("127.0.0.1:1", [])):
        context.params["bootstrap"] = bootstrap
        assert [item.value for item in transactional_ids(context, click.Option(["-x"]), "pack")] == known


def test_what_is_not_there_is_said_so(cluster: Cluster, cli: Cli) -> None:
    begin(cluster, "shipping-1").abort_transaction(10)
    assert "Did you mean shipping-1" in cli.run("describe", "shiping-1", code=4)[1]
    assert "No transaction is open" in cli.run("abort", "-p", "payments:1", "-o", "7", code=4)[1]
    assert "no topic" in cli.run("abort", "-p", "nothing:1", "-o", "7", code=4)[1]
    cli.run("abort", code=2)
    cli.run("abort", "shipping-1", "-p", "payments:0", "-o", "1", code=2)
    cli.run("abort", "-p", "payments", "-o", "1", code=2)
    cli.run("list", "--hanging", "--longer-than", "soon", code=2)
    assert "PrepareCommit, PrepareAbort" in cli.run("list", "--state", "open", code=2)[1]
    assert "Choose with --topic" in cli.run("list", "shipping*", "--hanging", code=2)[1]
    assert "Add --hanging" in cli.run("list", "--longer-than", "1m", code=2)[1]
    assert [parse_duration(text) for text in ("90s", "15m", "2h")] == [90_000, 900_000, 7_200_000]


def test_a_hanging_transaction_is_found_and_ended(cluster: Cluster, cli: Cli) -> None:
    """A batch that no coordinator knows of, as a broker without verification takes it."""
    assert cli.json("list", "--hanging", "--longer-than", "0s") == []
    cluster_wide = {"transaction.partition.verification.enable": "false"}
    with Cluster(config=cluster_wide) as careless:
        create_topic(careless.bootstrap_servers, "payments", 2)
        with RawConnection(careless.bootstrap_servers) as connection:
            connection.send(_produce_of_nobody())
            connection.receive()
        words = ("--bootstrap", careless.bootstrap_servers)
        (found,) = cli.json("list", "--hanging", "--longer-than", "0s", *words)
        place = (found["topic"], found["partition"], found["start_offset"], found["producer_id"])
        assert place == ("payments", 1, 0, 4711)
        out, err = cli.run("list", "--hanging", "--longer-than", "0s", "--topic", "payments", *words)
        assert "4711" in out
        assert "abort --partition payments:1 --offset 0" in err
        cli.run("abort", "--partition", "payments:1", "--offset", "0", *words)
        assert cli.json("list", "--hanging", "--longer-than", "0s", *words) == []


def _produce_of_nobody() -> bytes:
    fields = {"producer_id": 4711, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    batch = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")], **fields)
    row = SimpleNamespace(index=1, records=batch)
    topic = SimpleNamespace(name="payments", partition_data=(row,))
    request = SimpleNamespace(transactional_id="nobody", acks=-1, timeout=5000, topic_data=(topic,))
    return encode_request_frame(0, 9, 1, "test", request)
