"""TLS as the network port has it: what a handshake goes by, and a stream that needs one.

Everything is in memory: certificates and keys are PEM, names of ciphers are OpenSSL's. Where they come from (files,
key stores, settings by Kafka's names) is the callers'.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from moldau.runtime.ports import Stream


class TlsError(ConnectionError):
    """A handshake that failed, or a stream that was not what it must be; the text says why, for people."""


class TlsEnded(TlsError):
    """The other side has ended the connection before the handshake was made, and said nothing of a reason: a client
    that is gone, or somebody who only looks whether the port is open."""


class TlsSettingsError(ValueError):
    """Keys, certificates or ciphers that do not serve; the text says why."""


class ClientAuth(Enum):
    """Whether a server asks its clients for a certificate. One that is shown must be good in any case."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What one side of a connection goes by."""

    is_server: bool
    chain_pem: bytes = b""
    """The own certificate, and those that lead to its authority. A client may have none."""
    key_pem: bytes = field(default=b"", repr=False)
    """Not encrypted."""
    trusted_pem: bytes = b""
    """The certificates that others' must lead to. None: for a client those of the system, for a server nobody's."""
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    """Of TLS 1.2, by OpenSSL's names; none: those that are good."""
    suites: tuple[str, ...] = ()
    """Of TLS 1.3; none: all of OpenSSL's."""
    checks_host: bool = True
    """Whether a client looks for the host's name in the server's certificate."""


class TlsContext(Protocol):
    """Settings made ready for handshakes (`Net.tls_context`). Others may replace it; connections keep theirs."""


class TlsStream(Stream, Protocol):
    """A stream that carries nothing until its handshake is made (`secure`)."""

    @property
    def certificate(self) -> bytes | None:
        """The other side's, as DER, where it was asked for one and it was found good."""
        ...

    @property
    def waits_for_us(self) -> bool:
        """Whether the handshake has something to compute, and its turn has not come or it is under way."""
        ...

    @property
    def has_begun(self) -> bool:
        """Whether the other side has said something that was worth an answer."""
        ...

    def secure(self, done: Callable[[TlsError | None], object]) -> None:
        """Make the handshake, in its own time and off the loop; `done` is called once, unless the stream is closed
        before. After an error it is closed."""
        ...
