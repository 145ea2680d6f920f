"""What OpenSSL says of a connection, in words for people and as errors of the network port."""

from __future__ import annotations

import errno
import ssl

from moldau.runtime.tls import TlsEnded, TlsError

_REASONS = {
    "CERTIFICATE_VERIFY_FAILED": "the other side's certificate is not accepted",
    "HTTP_REQUEST": "the client speaks HTTP without TLS",
    "HTTPS_PROXY_REQUEST": "the client takes this port for a proxy",
    "NO_SHARED_CIPHER": "the two sides have no cipher suite in common",
    "NO_SUITABLE_SIGNATURE_ALGORITHM": "the two sides have no signature algorithm in common",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client shows no certificate, and ssl.client.auth is required",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the other side does not accept this side's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the other side finds this side's certificate expired",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the other side does not accept this side's certificate",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the other side ended the handshake: versions, ciphers or certificates",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the other side asks for a certificate, and this side has none",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the two sides have no version of TLS in common",
    "TLSV1_ALERT_UNKNOWN_CA": "the other side does not know the authority of this side's certificate",
    "UNSUPPORTED_PROTOCOL": "the two sides have no version of TLS in common",
    "WRONG_VERSION_NUMBER": "the other side does not speak TLS",
}


def as_connection_error(error: OSError) -> OSError:
    if isinstance(error, ssl.SSLError):
        if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):
            return ConnectionResetError(errno.ECONNRESET, "the other side has ended the connection")
        return ConnectionAbortedError(errno.ECONNABORTED, f"TLS: {error.reason or 'the stream is broken'}")
    return error


def as_tls_error(error: OSError) -> TlsError:
    if isinstance(error, TlsError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(f"the other side's certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return TlsEnded("the other side has ended the connection during the handshake")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "unknown"
        return TlsError(_REASONS.get(reason, f"the handshake failed: {reason}"))
    return TlsError(error.strerror or "the connection has failed during the handshake")
