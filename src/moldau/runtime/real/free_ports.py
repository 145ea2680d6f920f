"""Ports that nobody uses: kept for servers that come and go, or looked up."""

from __future__ import annotations

import random
import socket
import sys

HOST = "127.0.0.1"
# Below every system's ephemeral range: a client that keeps connecting to the port of a dead broker can be
# given that very port as its own, and then talks to itself.
PORTS = range(20_000, 32_000)


class FreePorts:
    """Kept until `close`: a server that is started again finds its port free.

    They are bound and not listened to. On Linux that keeps others from being given them, and lets a server have them;
    elsewhere they are only looked up.
    """

    def __init__(self, host: str = "") -> None:
        self._host = host
        self._sockets: list[socket.socket] = []

    def take(self) -> int:
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((self._host, 0))
        port: int = bound.getsockname()[1]
        self._sockets.append(bound)
        return port

    def let_servers_have_them(self) -> None:
        """To be called when all are taken, before the first server starts."""
        if sys.platform != "linux":
            self.close()

    def close(self) -> None:
        for bound in self._sockets:
            bound.close()
        self._sockets.clear()


def free_port() -> int:
    """A port that nobody listens on now."""
    for _ in range(200):
        port = random.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError("no free port found")
