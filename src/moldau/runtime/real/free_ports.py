"""Ports that nobody uses, kept for servers that come and go."""

from __future__ import annotations

import socket
import sys


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
