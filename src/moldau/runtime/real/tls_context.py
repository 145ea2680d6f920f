"""Keys, certificates and rules made ready for handshakes: Python's SSLContext, and what it cannot be told.

Renegotiation and compression are off, and no tickets are given out: every connection shows its certificate anew. A
certificate that is trusted ends a chain, whether it is a root or not, as in Java.
"""

from __future__ import annotations

import os
import ssl
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from moldau.runtime.real.tls_errors import as_tls_error
from moldau.runtime.tls import ClientAuth, TlsError, TlsSettings, TlsSettingsError

CHECKED_HOST = "localhost"
"""Whose name is asked for where names are not looked at."""
FLIGHTS_MAX = 6

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class RealTlsContext:
    """Python's SSLContext, and what it cannot be told."""

    __slots__ = ("_context", "_is_server", "_suites")

    def __init__(self, settings: TlsSettings) -> None:
        self._is_server = settings.is_server
        self._suites = frozenset(settings.suites)
        try:
            self._context = _context(settings)
        except ssl.SSLError as error:
            raise TlsSettingsError(_settings_reason(error)) from None
        if "TLSv1.3" in settings.versions and settings.suites:
            _check_suites(self._context, settings.suites)

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, host: str | None) -> ssl.SSLObject:
        return self._context.wrap_bio(incoming, outgoing, server_side=self._is_server, server_hostname=host)

    @property
    def asks_for_certificate(self) -> bool:
        return self._is_server and self._context.verify_mode != ssl.CERT_NONE

    @property
    def sessions_remembered(self) -> int:
        """By OpenSSL, for clients that would resume them."""
        return self._context.session_stats()["number"]

    def check(self, secured: ssl.SSLObject) -> None:
        """That TLS 1.3 came to a suite that is allowed: older Pythons cannot leave one out beforehand."""
        used = secured.cipher()
        if self._suites and used is not None and used[1] == "TLSv1.3" and used[0] not in self._suites:
            raise TlsError("the two sides have no cipher suite in common")


def check_together(server: RealTlsContext, client: RealTlsContext) -> None:
    """A handshake between the two, in memory."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap(back, there, CHECKED_HOST), server.wrap(there, back, None)]
    try:
        for _ in range(FLIGHTS_MAX):
            for side in sides:
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except OSError as error:
        raise TlsSettingsError(str(as_tls_error(error))) from None


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if settings.is_server else ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[name] for name in settings.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whatever is trusted ends a chain, as in Java
    if settings.is_server:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = _VERIFY[settings.client_auth]
    else:
        context.check_hostname = settings.checks_host
    if settings.ciphers:
        context.set_ciphers(":".join(settings.ciphers))
    if settings.trusted_pem:
        context.load_verify_locations(cadata=settings.trusted_pem.decode("ascii"))
    elif not settings.is_server:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.chain_pem:
        with _as_file(settings.chain_pem + b"\n" + settings.key_pem) as path:
            context.load_cert_chain(path, password=_no_password)
    return context


def _no_password() -> str:
    raise TlsSettingsError("the private key is encrypted")


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """A path by which OpenSSL reads it: on Linux of memory, so that no key gets on a disk."""
    if sys.platform == "linux" and os.path.isdir("/proc/self/fd"):
        fd = os.memfd_create("tls", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{fd}"
    else:
        fd, path = tempfile.mkstemp()  # for this user alone
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield path
    finally:
        os.close(fd)
        if not path.startswith("/proc/"):
            os.unlink(path)


def _check_suites(context: ssl.SSLContext, suites: Sequence[str]) -> None:
    """Python before 3.15 cannot choose suites of TLS 1.3. The server's first choice is what nearly all connections
    use; where it is not allowed, they would all fail, so say it at once."""
    choose = getattr(context, "set_ciphersuites", None)
    if choose is not None:
        choose(":".join(suites))
        return
    known = [one["name"] for one in context.get_ciphers() if one["protocol"] == "TLSv1.3"]
    if known and known[0] not in suites:
        raise TlsSettingsError(
            f"ssl.cipher.suites: this Python cannot leave out {known[0]}: add it, or leave out all suites of TLS 1.3"
        )


def _settings_reason(error: ssl.SSLError) -> str:
    match error.reason:
        case "KEY_VALUES_MISMATCH":
            return "the private key does not belong to the first certificate of the chain"
        case "NO_CIPHER_MATCH":
            return "none of the cipher suites is known"
        case "EE_KEY_TOO_SMALL" | "CA_KEY_TOO_SMALL":
            return "the key is too small to be safe"
        case "CA_MD_TOO_WEAK":
            return "a certificate is signed with a digest that is not safe any more"
    return f"OpenSSL does not take the certificates or the key: {error.reason or error}"
