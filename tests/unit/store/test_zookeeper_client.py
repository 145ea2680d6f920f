"""One kazoo client is one session, and sends nothing behind the back of whoever asked: kazoo's insides, guarded."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from kazoo.exceptions import ConnectionClosedError, SessionExpiredError
from kazoo.protocol.states import KeeperState

from moldau.store.zookeeper import SessionClient
from moldau.store.zookeeper_log import Absence
from moldau.store.zookeeper_url import parse


@pytest.fixture
def client() -> SessionClient:
    """As connected, as far as it knows; nothing is started."""
    client = SessionClient(parse("127.0.0.1:1"), 3.0)
    client._stopped.clear()
    client._session_callback(KeeperState.CONNECTING)
    client._session_callback(KeeperState.CONNECTED)
    assert client.connected
    return client


def test_what_is_asked_without_a_connection_is_refused_and_never_sent(client: SessionClient) -> None:
    client._session_callback(KeeperState.CONNECTING)
    result = client.set_async("/a", b"")
    assert isinstance(result.exception, ConnectionClosedError)
    assert not client._queue
    transaction = client.transaction()
    transaction.create("/a")
    assert isinstance(transaction.commit_async().exception, ConnectionClosedError)
    assert not client._queue


def test_a_client_is_done_with_when_its_session_has_expired(client: SessionClient) -> None:
    client._session_callback(KeeperState.CONNECTING)
    client._session_callback(KeeperState.EXPIRED_SESSION)
    assert client._stopped.is_set()  # its thread connects no more
    result = client.set_async("/a", b"")
    assert isinstance(result.exception, SessionExpiredError)
    assert not client._queue


class Timers:
    """Timers that the test lets go off."""

    def __init__(self) -> None:
        self.due: list[Callable[[], object]] = []

    def call_later(self, _delay_s: float, callback: Callable[[], object]) -> Timers:
        self.due.append(callback)
        return self

    def cancel(self) -> None:
        self.due.clear()


def test_an_ensemble_that_is_away_is_told_once_then_every_minute_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers = Timers()
    absence = Absence(timers, "zk1:2181")  # type: ignore[arg-type]
    with caplog.at_level(logging.INFO, "moldau"):
        absence.end()
        for _ in range(3):
            absence.begin()
        for _ in range(2):
            timers.due.pop()()
        absence.end()
        absence.end()
    assert [record.message for record in caplog.records] == [
        "no connection to ZooKeeper (zk1:2181): brokers go on, and nothing changes",
        "still no connection to ZooKeeper (zk1:2181), for 1 min",
        "still no connection to ZooKeeper (zk1:2181), for 2 min",
        "connected to ZooKeeper again",
    ]
    assert not timers.due


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 1), (logging.DEBUG, 3)])
def test_what_kazoo_says_of_each_attempt_is_for_debugging(
    client: SessionClient, caplog: pytest.LogCaptureFixture, level: int, lines: int
) -> None:
    with caplog.at_level(level, "moldau"):
        client.logger.info("Connecting to zk1(10.0.0.1):2181")
        client.logger.warning("Connection dropped: connection refused")
        client.logger.error("something is really wrong")
    assert len(caplog.records) == lines
