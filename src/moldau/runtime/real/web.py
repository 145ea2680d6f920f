"""A small file from a web server: bounded in time and size, with the system's certificates, without redirections.

It blocks: call it through `Tasks.in_thread`.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

PIECE_BYTES = 16 * 1024
OK = 200


def fetch(url: str, seconds_max: float, bytes_max: int) -> bytes:
    """OSError or ValueError say why there is none."""
    from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection  # most fetch nothing
    from urllib.parse import urlsplit

    def body_of(answer: HTTPResponse) -> bytes:
        pieces: list[bytes] = []
        left = bytes_max
        while piece := answer.read1(PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"it has more than {bytes_max} bytes")
            pieces.append(piece)
        if answer.length:
            raise ValueError("it is not there whole")
        return b"".join(pieces)

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an address that begins with http:// or https://")
    began_s = time.monotonic()
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=seconds_max)
    watch: threading.Timer | None = None
    try:
        connection.connect()
        left_s = max(0.0, seconds_max - (time.monotonic() - began_s))
        watch = threading.Timer(left_s, _cut, (connection.sock,))
        watch.daemon = True
        watch.start()  # a server that says a byte now and then is no reason to stay
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != OK:
            raise ValueError(f"the server answers {answer.status}")
        body = body_of(answer)
        if time.monotonic() - began_s >= seconds_max:  # what is there may have been cut
            raise TimeoutError("it takes too long")
        return body
    except (HTTPException, ValueError) as error:
        if time.monotonic() - began_s >= seconds_max:
            raise TimeoutError("it takes too long") from None
        if isinstance(error, HTTPException):
            raise ValueError(f"the server's answer is none: {type(error).__name__}") from None
        raise
    finally:
        if watch is not None:
            watch.cancel()
        connection.close()


def _cut(peer: socket.socket) -> None:
    with suppress(OSError):
        peer.shutdown(socket.SHUT_RDWR)
