"""A small file from a web server: bounded in time and size, with the system's certificates, without redirections.

It blocks: call it through `Tasks.in_thread`.
"""

from __future__ import annotations

import time

PIECE_BYTES = 16 * 1024
OK = 200


def fetch(url: str, seconds_max: float, bytes_max: int) -> bytes:
    """OSError or ValueError say why there is none."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # most processes fetch nothing
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not an address that begins with http:// or https://")
    deadline_s = time.monotonic() + seconds_max
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=seconds_max)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != OK:
            raise ValueError(f"the server answers {answer.status}")
        pieces: list[bytes] = []
        left = bytes_max
        while piece := answer.read1(PIECE_BYTES):
            left -= len(piece)
            if left < 0:
                raise ValueError(f"it has more than {bytes_max} bytes")
            if (rest_s := deadline_s - time.monotonic()) <= 0:
                raise TimeoutError("it takes too long")
            if connection.sock is not None:
                connection.sock.settimeout(rest_s)
            pieces.append(piece)
        return b"".join(pieces)
    except HTTPException as error:
        raise ValueError(f"the server's answer is none: {type(error).__name__}") from None
    finally:
        connection.close()
