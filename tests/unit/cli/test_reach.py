"""Who can reach what `moldau up` starts, and what is said of it."""

from __future__ import annotations

import pytest

from moldau.cli.reach import is_local, listeners_of, remarks_on_reach
from moldau.cli.up_plan import configs_of, settings_for
from moldau.config.broker import BrokerConfig

SQLITE = "sqlite:data/cluster.sqlite"
HERE = "zookeeper:localhost:2181,127.0.0.1:2182,[::1]:2183/moldau"
ELSEWHERE = "zookeeper:user:secret@zk1:2181,zk2:2181/moldau?tls=true"


def config(listeners: str | None = None, advertised: str | None = None) -> BrokerConfig:
    given = {} if listeners is None else {"listeners": listeners}
    given |= {} if advertised is None else {"advertised.listeners": advertised}
    return BrokerConfig.parse(settings_for(3) | {"node.id": "1", "log.dirs": "data"} | given)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_addresses_that_never_leave_the_machine_are_local(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "192.168.1.7", "kafka1"])
def test_all_others_may_be_reached_from_elsewhere(host: str) -> None:
    assert not is_local(host)


def test_one_broker_and_each_of_several_listen_on_localhost_by_default() -> None:
    assert [str(one) for one in config().listeners] == ["PLAINTEXT://localhost:9092"]
    several = configs_of(config(), "data", 3, lambda: pytest.fail("the ports are known"))
    assert [str(one.listeners[0]) for one in several] == [
        f"PLAINTEXT://localhost:{port}" for port in (9092, 9093, 9094)
    ]
    assert list(remarks_on_reach(config(), SQLITE)) == []


def test_opened_it_listens_on_the_port_asked_for_or_the_usual_one() -> None:
    assert listeners_of(None, is_open=True) == "PLAINTEXT://:9092"
    assert listeners_of(0, is_open=True) == "PLAINTEXT://:0"
    assert listeners_of(9192, is_open=False) == "PLAINTEXT://localhost:9192"


@pytest.mark.parametrize(
    ("listeners", "where"),
    [
        ("PLAINTEXT://:9092", "all addresses of this machine"),
        ("PLAINTEXT://0.0.0.0:9092", "all addresses of this machine"),
        ("PLAINTEXT://192.168.1.7:9092", "192.168.1.7"),
    ],
)
def test_whatever_opens_it_it_is_said_that_there_is_no_password(listeners: str, where: str) -> None:
    """An option, a variable or `--set listeners=...`."""
    assert list(remarks_on_reach(config(listeners), ELSEWHERE)) == [
        f"the listener PLAINTEXT is open on {where}, without a password: "
        "whoever reaches it can read and write everything"
    ]


def test_a_broker_that_sends_clients_where_it_does_not_listen_says_so() -> None:
    (remark,) = remarks_on_reach(config(advertised="PLAINTEXT://kafka1:9092"), SQLITE)
    assert remark.startswith(
        "advertised.listeners sends clients to PLAINTEXT://kafka1:9092, and that listener is open on localhost only"
    )
    assert list(remarks_on_reach(config(advertised="PLAINTEXT://127.0.0.1:9092"), SQLITE)) == []
    (opened,) = remarks_on_reach(config("PLAINTEXT://:9092", "PLAINTEXT://kafka1:9092"), SQLITE)
    assert "without a password" in opened


def test_a_broker_that_others_of_its_cluster_cannot_reach_says_so() -> None:
    (remark,) = remarks_on_reach(config(), ELSEWHERE)
    assert "no broker there can reach this one" in remark and "--open" in remark
    assert list(remarks_on_reach(config(), HERE)) == []
