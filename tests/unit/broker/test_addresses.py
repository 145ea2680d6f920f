"""What clients and other brokers are told of a broker's listeners."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from moldau.broker.addresses import advertised, bootstrap_servers
from moldau.config.broker import BrokerConfig


class Listening(NamedTuple):
    address: tuple[str, int]

    def close(self) -> None: ...


def config(listeners: str, **more: str) -> BrokerConfig:
    dotted = {name.replace("_", "."): value for name, value in more.items()}
    return BrokerConfig.parse({"node.id": "1", "log.dirs": "/x", "listeners": listeners} | dotted)


def listening(given: BrokerConfig) -> Any:
    """On ports of its own where the settings leave it open."""
    return {
        endpoint.name: Listening((endpoint.host, endpoint.port or 7000 + number))
        for number, endpoint in enumerate(given.listeners)
    }


@pytest.mark.parametrize(
    ("listeners", "more", "told"),
    [
        ("PLAINTEXT://:9092", {}, "localhost:9092"),
        ("PLAINTEXT://127.0.0.1:0", {}, "127.0.0.1:7000"),
        ("PLAINTEXT://[::1]:9092", {}, "[::1]:9092"),
        (
            "A://10.0.0.1:1,B://10.0.0.2:2",
            {
                "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter_broker_listener_name": "A",
                "advertised_listeners": "A://a:1,B://b:2",
            },
            "a:1,b:2",
        ),
    ],
)
def test_clients_start_from_what_is_advertised(listeners: str, more: dict[str, str], told: str) -> None:
    given = config(listeners, **more)
    assert bootstrap_servers(given, listening(given)) == told


def test_clients_are_not_sent_to_listeners_that_speak_otherwise() -> None:
    given = config(
        "A://:9092,B://:9093",
        listener_security_protocol_map="A:PLAINTEXT,B:SSL",
        inter_broker_listener_name="A",
    )
    assert bootstrap_servers(given, listening(given)) == "localhost:9092"


@pytest.mark.parametrize(("host_name", "host"), [("localhost", ""), ("kafka1", "kafka1")])
def test_a_listener_on_all_addresses_is_where_the_machine_is(host_name: str, host: str) -> None:
    given = config("PLAINTEXT://0.0.0.0:9092")
    listener = listening(given)["PLAINTEXT"]
    assert advertised(given, "PLAINTEXT", listener, host_name) == (host, 9092)
