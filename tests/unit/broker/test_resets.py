"""A client that resets its connection together with its last bytes is noticed, whatever the loop tells of it."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

from moldau.broker import server
from moldau.testing import Cluster

PATIENCE_S = 60.0
NO_LINGER = struct.pack("ii", 1, 0)
API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
HALF_A_FRAME = struct.pack(">i", 100) + b"\0\x12\0\0"


def test_a_reset_that_comes_with_data_ends_the_connection_long_before_it_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "LOOK_INTERVAL_S", 0.2)
    with Cluster() as cluster:
        (member,) = cluster._members.values()
        assert member.broker is not None
        connections = member.broker._server.connections
        go_on, is_held = threading.Event(), threading.Event()

        async def hold() -> None:
            is_held.set()
            go_on.wait(PATIENCE_S)

        host, _, port = cluster.bootstrap_servers.partition(":")
        with socket.create_connection((host, int(port))) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
            wait_for(lambda: len(connections) == 1)
            holder = threading.Thread(target=lambda: member.thread.call(hold, timeout_s=PATIENCE_S))
            holder.start()
            assert is_held.wait(PATIENCE_S)
            client.sendall(HALF_A_FRAME)
        go_on.set()  # data and reset are there when the broker looks for the first time
        holder.join()
        wait_for(lambda: not connections)


@pytest.mark.parametrize("with_reset", [True, False], ids=["reset", "broken pipe"])
def test_clients_that_are_gone_are_no_news(with_reset: bool, caplog: pytest.LogCaptureFixture) -> None:
    """They crash, or end without reading their answers."""
    with caplog.at_level(logging.INFO), Cluster() as cluster:
        (member,) = cluster._members.values()
        assert member.broker is not None
        connections = member.broker._server.connections
        host, _, port = cluster.bootstrap_servers.partition(":")
        for _ in range(20):
            with socket.create_connection((host, int(port))) as client:
                if with_reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                wait_for(lambda: len(connections) == 1)
                client.sendall(API_VERSIONS * 100)  # nobody reads the answers
            wait_for(lambda: not connections)
    assert [record.message for record in caplog.records if "closing" in record.message] == []


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
