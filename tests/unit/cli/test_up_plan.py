"""What the brokers of `moldau up --brokers N` are given, and when one that ended is started again."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import pytest

from moldau.cli.errors import CliError, Exit
from moldau.cli.min_isr import Wanted, wanted_of
from moldau.cli.restarts import PAUSE_S_MAX, STEADY_S, Restarts
from moldau.cli.up_plan import configs_of, new_brokers, number_of_brokers, settings_for
from moldau.config.broker import BrokerConfig
from moldau.runtime.real.free_ports import FreePorts


def base(**settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig.parse(settings_for(3) | {"node.id": "1", "log.dirs": "data"} | given)


def folder(path: Path, *ids: int) -> str:
    for number in ids:
        (path / f"broker-{number}").mkdir()
    return str(path)


@pytest.mark.parametrize(("brokers", "copies", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_topics_have_up_to_three_copies_and_from_three_on_two_in_sync(
    brokers: int, copies: int, in_sync: int
) -> None:
    config = BrokerConfig.parse(settings_for(brokers) | {"node.id": "1"})
    for name in (
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
        "default.replication.factor",
    ):
        assert config[name] == copies
    assert (config["min.insync.replicas"], config["transaction.state.log.min.isr"]) == (in_sync, in_sync)


def test_each_broker_has_an_id_a_folder_and_the_next_ports() -> None:
    given = base(
        listeners="PLAINTEXT://127.0.0.1:9092", advertised_listeners="PLAINTEXT://kafka.example:19092"
    )
    configs = configs_of(BrokerConfig.parse(dict(given.static) | {"moldau.http.port": "9100"}), "d", 3, int)
    assert [config.node_id for config in configs] == [1, 2, 3]
    assert [config.log_dirs for config in configs] == [["d/broker-1"], ["d/broker-2"], ["d/broker-3"]]
    assert [str(config.listeners[0]) for config in configs] == [
        f"PLAINTEXT://127.0.0.1:{port}" for port in (9092, 9093, 9094)
    ]
    assert [config.advertised_listeners["PLAINTEXT"][1] for config in configs] == [19092, 19093, 19094]
    assert [config["moldau.http.port"] for config in configs] == [9100, 9101, 9102]


def test_ports_that_are_not_given_are_free_ones_and_none_is_beyond_the_last() -> None:
    numbers = itertools.count(20_000)
    configs = configs_of(base(listeners="PLAINTEXT://:0"), "d", 2, lambda: next(numbers))
    assert [config.listeners[0].port for config in configs] == [20_000, 20_001]
    with pytest.raises(CliError, match="no port 65536 for broker 2"):
        configs_of(base(listeners="PLAINTEXT://:65535"), "d", 2, int)


def test_a_free_port_is_a_brokers_to_take_and_nobody_elses() -> None:
    ports = FreePorts()
    taken = [ports.take() for _ in range(3)]
    ports.let_servers_have_them()
    try:
        assert len(set(taken)) == 3
        for port in taken:
            for _ in range(2):  # also when the broker is started again
                with socket.create_server(("", port)):
                    pass
    finally:
        ports.close()


@pytest.mark.parametrize(
    ("there", "wanted", "number"),
    [
        ((), None, 1),
        ((), 3, 3),
        ((1,), None, 1),
        ((1, 2, 3), None, 3),
        ((1,), 3, 3),
        ((7,), 1, 1),
        ((7,), None, 1),
    ],
)
def test_as_many_brokers_run_as_were_asked_for_or_are_there(
    tmp_path: Path, there: tuple[int, ...], wanted: int | None, number: int
) -> None:
    assert number_of_brokers(folder(tmp_path, *there), wanted) == number


@pytest.mark.parametrize(
    ("there", "wanted", "said"),
    [
        ((1, 2, 3), 2, "would leave out broker 3"),
        ((1, 2, 3), 1, "would leave out brokers 2, 3"),
        ((7,), 3, "data of broker 7"),
    ],
)
def test_no_broker_is_left_out(tmp_path: Path, there: tuple[int, ...], wanted: int, said: str) -> None:
    with pytest.raises(CliError, match=said) as error:
        number_of_brokers(folder(tmp_path, *there), wanted)
    assert error.value.code is Exit.CANNOT_START and error.value.hint


def test_brokers_that_join_a_cluster_of_before_are_known(tmp_path: Path) -> None:
    assert new_brokers(str(tmp_path), 3) == []
    assert new_brokers(folder(tmp_path, 1), 3) == [2, 3]


@pytest.mark.parametrize(
    ("options", "before", "brokers", "wanted"),
    [
        ({"min.insync.replicas": "3"}, 3, 3, Wanted(3)),
        ({"min.insync.replicas": "1"}, 1, 3, Wanted(1)),
        ({}, 3, 3, None),
        ({}, 1, 3, Wanted(2, instead_of=1)),
        ({}, 2, 4, Wanted(2, instead_of=1)),
        ({}, 1, 2, None),
        ({}, 3, 5, None),
    ],
)
def test_min_isr_is_as_was_asked_for_or_as_more_brokers_bring(
    options: dict[str, str], before: int, brokers: int, wanted: Wanted | None
) -> None:
    assert wanted_of(options, before=before, brokers=brokers) == wanted


def test_a_broker_that_worked_is_started_again_at_once_and_one_that_fails_after_longer_and_longer_pauses() -> (
    None
):
    restarts = Restarts()
    assert restarts.pause_s(STEADY_S) == 0.0
    pauses = [restarts.pause_s(worked_s) for worked_s in (None, 0.1, None, None)]
    assert pauses == [0.0, 0.5, 1.0, 2.0]
    assert [restarts.pause_s(None) for _ in range(20)][-1] == PAUSE_S_MAX
    assert restarts.pause_s(STEADY_S) == 0.0
    assert restarts.pause_s(None) == 0.0
