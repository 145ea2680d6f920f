"""The way to a cluster: addresses, and what is said where nobody answers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from moldau.cli.client import Connection, reach, split_bootstrap
from moldau.cli.errors import CliError, Exit
from moldau.cli.message_produce import Delivery, explain_failure
from moldau.cli.options import Target, parse_pairs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("kafka", [("kafka", 9092)]),
        ("[::1]:19092", [("::1", 19092)]),
        ("[::1]", [("::1", 9092)]),
        ("PLAINTEXT://h:5", [("h", 5)]),
    ],
)
def test_addresses_are_hosts_with_a_port_or_9092(text: str, expected: list[tuple[str, int]]) -> None:
    assert split_bootstrap(text) == expected


@pytest.mark.parametrize(
    "text", ["", " , ", "host:", ":9092", "host:port", "host:0", "host:70000", "http://host:9092"]
)
def test_what_is_no_address_is_wrong_usage(text: str) -> None:
    with pytest.raises(CliError) as error:
        split_bootstrap(text)
    assert error.value.code is Exit.USAGE


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # and not listened to: nobody else is given it
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_port_on_which_nobody_listens_is_said_at_once(closed_port: int) -> None:
    with pytest.raises(CliError) as error:
        reach(Target(f"127.0.0.1:{closed_port}"))
    assert error.value.code is Exit.UNREACHABLE
    assert error.value.message == f"Cannot reach a broker at 127.0.0.1:{closed_port}: nothing listens there."
    assert "moldau up" in error.value.hint and "--bootstrap" in error.value.hint


def test_an_unknown_host_is_said_to_be_unknown() -> None:
    with pytest.raises(CliError, match="unknown host name"):
        reach(Target("no-such-host.invalid:9092"))


def test_the_first_address_that_answers_is_enough(closed_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reach(Target(f"127.0.0.1:{closed_port},127.0.0.1:{server.getsockname()[1]}"))


def test_a_server_that_is_no_broker_is_reported_within_the_time_out(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(CliError) as error:
            Connection(Target(address, timeout_s=0.5)).metadata()
    assert error.value.code is Exit.UNREACHABLE
    assert f"The cluster at {address} does not answer" in error.value.message
    assert capfd.readouterr() == ("", ""), "librdkafka's own log leaks"


def test_an_unknown_client_property_is_wrong_usage() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        target = Target(f"127.0.0.1:{server.getsockname()[1]}", {"no.such.property": "1"})
        with pytest.raises(CliError, match=r"no\.such\.property") as error:
            _ = Connection(target).admin
    assert error.value.code is Exit.USAGE


def test_pairs_keep_what_stands_after_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", " d = e", "f="], "--set") == {"a": "b=c", "d": " e", "f": ""}
    with pytest.raises(CliError, match="--set takes KEY=VALUE, not 'x'"):
        parse_pairs(["x"], "--set")


@pytest.mark.parametrize(
    ("answers", "said", "code"),
    [(True, "did not store a message", Exit.FAILED), (False, "does not answer", Exit.UNREACHABLE)],
)
def test_a_message_that_nobody_takes_is_told_with_whether_the_cluster_is_there(
    monkeypatch: pytest.MonkeyPatch, answers: bool, said: str, code: Exit
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = Connection(Target(f"127.0.0.1:{server.getsockname()[1]}"))
    monkeypatch.setattr(connection, "answers", lambda: answers)
    delivery = Delivery("orders", messages=7, failure=KafkaError(KafkaError._MSG_TIMED_OUT))
    error = explain_failure(connection, delivery)

    assert said in error.message
    assert error.code is code


def test_what_is_stored_when_a_command_fails_is_said_and_what_nobody_knows() -> None:
    assert Delivery("orders", read=1).remainder == "", "there is nothing in the middle of one message"
    assert Delivery("orders", read=2).remainder == " 0 messages are stored."
    assert Delivery("orders", read=2, messages=1).remainder == " 1 message is stored."
    delivery = Delivery("orders", read=3000, messages=2000)
    for code in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        delivery.on_delivery(KafkaError(code), None)  # type: ignore[arg-type]
    assert delivery.remainder == " 2,000 messages are stored, and perhaps 1 more that was not answered."
    assert Delivery("orders", "sent", read=3, messages=2).remainder == " 2 messages are sent."
