"""One blocking connection to a broker: requests out, answers in, each in the order of the other.

It begins with TLS, ApiVersions and SASL, as its settings are. Nothing is retried here: after an `OSError` or
`WireError` the connection is to be closed, and another one made.
"""

from __future__ import annotations

import socket
import ssl
import time
from struct import Struct
from types import SimpleNamespace
from typing import Any, Final, Self

from moldau.base.errors import ErrorCode
from moldau.spark.blocks.client_settings import ClientSettings
from moldau.spark.blocks.errors import ReadFailed, SecurityFailed
from moldau.spark.blocks.security import authenticate, tls_context
from moldau.wire.apis import API_VERSIONS, APIS
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import parse_response_header
from moldau.wire.primitives import WireError

Address = tuple[str, int]

ANSWER_BYTES_MAX: Final = 1 << 30
"""More than a broker sends by any setting: one batch may exceed what was asked for, and then comes whole."""
BUFFER_BYTES_MIN: Final = 64 * 1024
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
REFUSALS: Final = frozenset(
    {
        ErrorCode.sasl_authentication_failed,
        ErrorCode.unsupported_sasl_mechanism,
        ErrorCode.illegal_sasl_state,
    }
)
SESSION_SHARE: Final = 0.8
"""Of the time that a broker grants a login; later the connection is not used for another task."""
_SIZE: Final = Struct(">i")


class Connection:
    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.settings = settings
        self._usable_until_s = float("inf")
        self._correlation_id = 0
        self._awaited: list[tuple[int, int, int]] = []  # API key, version, correlation id
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._versions: dict[int, tuple[int, int]] = {}
        self._socket: socket.socket = socket.create_connection(address, settings.connect_timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(settings.answer_timeout_s)
            self._secure()
            self._learn_versions()
            self._log_in()
        except BaseException:
            self.close()
            raise

    @property
    def client_id(self) -> str:
        return self.settings.client_id

    @property
    def is_quiet(self) -> bool:
        """No answer is on its way."""
        return not self._awaited

    @property
    def is_stale(self) -> bool:
        """The login is about to end."""
        return time.monotonic() > self._usable_until_s

    def version_of(self, api_key: int, min_version: int, max_version: int) -> int:
        """The newest version that the broker serves too."""
        theirs_min, theirs_max = self._versions.get(api_key, (0, -1))
        version = min(theirs_max, max_version)
        if version < max(theirs_min, min_version):
            name = APIS[api_key].name
            raise ReadFailed(
                f"broker {self.address[0]}:{self.address[1]} serves {name} in the versions {theirs_min} to "
                f"{theirs_max}, and this reader knows {min_version} to {max_version}: it needs Kafka 2.7 or newer."
            )
        return version

    def next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    def ask(self, api_key: int, version: int, message: Any) -> Any:
        number = self.next_correlation_id()
        self.send(
            api_key, version, number, encode_request_frame(api_key, version, number, self.client_id, message)
        )
        frame, position = self.receive()
        return decode_response(api_key, version, frame, position)

    def send(self, api_key: int, version: int, correlation_id: int, frame: bytes) -> None:
        self._awaited.append((api_key, version, correlation_id))
        self._socket.sendall(frame)

    def receive(self) -> tuple[memoryview, int]:
        """The answer to the oldest request, and where its body begins. It is valid until the next call."""
        api_key, version, expected = self._awaited.pop(0)
        head = memoryview(bytearray(_SIZE.size))
        self._fill(head)
        (size,) = _SIZE.unpack(head)
        if not 0 < size <= ANSWER_BYTES_MAX:
            raise WireError(f"an answer of {size} bytes")
        if size > len(self._buffer):
            self._buffer = bytearray(size)  # a new one: whoever looks at the old one still may
        frame = memoryview(self._buffer)[:size]
        self._fill(frame)
        correlation_id, position = parse_response_header(frame, api_key, version)
        if correlation_id != expected:
            raise WireError(f"answer {correlation_id} instead of {expected}")
        return frame, position

    def _fill(self, view: memoryview) -> None:
        position = 0
        while position < len(view):
            received = self._socket.recv_into(view[position:])
            if not received:
                raise ConnectionError("the broker closed the connection")
            position += received

    def _secure(self) -> None:
        tls = self.settings.tls
        if tls is None:
            return
        try:
            self._socket = tls_context(tls).wrap_socket(self._socket, server_hostname=self.address[0])
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError):
            raise  # it was cut off, as any connection may be
        except ssl.SSLError as reason:
            raise SecurityFailed(f"no TLS with {self.address[0]}:{self.address[1]}: {reason}") from None

    def _log_in(self) -> None:
        sasl = self.settings.sasl
        if sasl is None:
            return
        version = self.version_of(SASL_HANDSHAKE, 1, 1)
        answer = self.ask(SASL_HANDSHAKE, version, SimpleNamespace(mechanism=sasl.mechanism))
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise SecurityFailed(f"the broker takes {offered or 'no SASL here'}, and not {sasl.mechanism}")
        authenticate(sasl, self._exchange)

    def _exchange(self, message: bytes) -> bytes:
        version = self.version_of(SASL_AUTHENTICATE, 0, 2)
        answer = self.ask(SASL_AUTHENTICATE, version, SimpleNamespace(auth_bytes=message))
        if answer.error_code in REFUSALS:
            raise SecurityFailed(
                f"the broker refuses the login: {answer.error_message or answer.error_code.name}"
            )
        if answer.error_code:
            raise WireError(f"SaslAuthenticate is answered with {answer.error_code.name}")
        lifetime_s = answer.session_lifetime.total_seconds() if version else 0
        if lifetime_s:
            self._usable_until_s = time.monotonic() + SESSION_SHARE * lifetime_s
        return bytes(answer.auth_bytes)

    def _learn_versions(self) -> None:
        answer = self.ask(
            API_VERSIONS, 0, SimpleNamespace(client_software_name="", client_software_version="")
        )
        if answer.error_code:
            raise WireError(f"ApiVersions is answered with {answer.error_code.name}")
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
