"""A connection to a broker, byte by byte: what was said on it, and whether it ended."""

from __future__ import annotations

import re
import socket
from itertools import count
from types import SimpleNamespace
from typing import Any

from moldau.security.sasl.client import Login
from moldau.wire.codec import encode_request
from moldau.wire.frames import SIZE, request_frame

VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
TIMEOUT_S = 10.0
ADDRESSES = count()


class Dialogue:
    """One connection, and what was said on it: answers, and whether it ended."""

    def __init__(self, port: int) -> None:
        own = f"127.0.1.{next(ADDRESSES) % 250 + 1}"  # many failures of one address would be slowed
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S, source_address=(own, 0))
        self._reader = self._socket.makefile("rb")
        self._next_id = 100
        self.heard: list[bytes | str] = []

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def hear(self) -> bytes:
        """The next answer, b"" where the connection has ended instead."""
        try:
            head = self._reader.read(4)
            answer = self._reader.read(SIZE.unpack(head)[0]) if len(head) == 4 else b""
        except (ConnectionError, TimeoutError) as error:
            answer, head = b"", b""
            if isinstance(error, TimeoutError):
                self.heard.append("nothing")
                return b""
        self.heard.append(answer if len(head) == 4 else "the end")
        return answer

    def raw(self, data: bytes) -> bytes:
        self._socket.sendall(data)
        return self.hear()

    def ask(self, api_key: int, version: int, body: bytes) -> bytes:
        self._next_id += 1
        return self.raw(request_frame(api_key, version, self._next_id, "client", body))

    def request(self, api_key: int, version: int, **fields: Any) -> bytes:
        return self.ask(api_key, version, encode_request(api_key, version, SimpleNamespace(**fields)))

    def handshake(self, mechanism: str, version: int = 1) -> None:
        self.request(HANDSHAKE, version, mechanism=mechanism)

    def authenticate(self, message: bytes, version: int = 2) -> bytes:
        return self.request(AUTHENTICATE, version, auth_bytes=message)

    def scram(self, mechanism: str, user: str, password: str, version: int = 2) -> None:
        dialogue = Login(mechanism, user, password).messages(b"always the same nonce")
        answer = self.authenticate(next(dialogue), version)
        self.authenticate(dialogue.send(re.search(rb"r=.*,i=\d+", answer)[0]), version)  # type: ignore[index]
