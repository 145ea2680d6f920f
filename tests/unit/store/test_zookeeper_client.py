"""One kazoo client is one session, and sends nothing behind the back of whoever asked: kazoo's insides, guarded."""

from __future__ import annotations

import pytest
from kazoo.exceptions import ConnectionClosedError, SessionExpiredError
from kazoo.protocol.states import KeeperState

from moldau.store.zookeeper import SessionClient
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
