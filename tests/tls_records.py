"""Records of TLS 1.3 as a hostile client makes them, with the keys of a handshake that OpenSSL has made (RFC 8446)."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SECRET = "CLIENT_TRAFFIC_SECRET_0"
CHANGE_OF_KEYS = b"\x18\x00\x00\x01\x00\x16"
"""KeyUpdate, and that it is a handshake message."""
ANSWERED_CHANGE_OF_KEYS = b"\x18\x00\x00\x01\x01\x16"
ONE_BYTE = b"x\x17"


def client_secret(key_log: Path) -> bytes:
    """From a file of SSLContext.keylog_filename, of a connection with TLS_AES_256_GCM_SHA384."""
    (line,) = [line for line in key_log.read_text().splitlines() if line.startswith(SECRET)]
    return bytes.fromhex(line.split()[2])


def records(secret: bytes, inners: Iterable[bytes]) -> bytes:
    """The first records of a client, with these in them."""
    made, sequence = [], 0
    cipher, iv = _keys(secret)
    for inner in inners:
        head = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = bytes(one ^ other for one, other in zip(iv, struct.pack(">4xQ", sequence), strict=True))
        made.append(head + cipher.encrypt(nonce, inner, head))
        sequence += 1
        if inner.startswith(b"\x18"):
            secret, sequence = _expanded(secret, b"traffic upd", 48), 0
            cipher, iv = _keys(secret)
    return b"".join(made)


def _keys(secret: bytes) -> tuple[AESGCM, bytes]:
    return AESGCM(_expanded(secret, b"key", 32)), _expanded(secret, b"iv", 12)


def _expanded(secret: bytes, label: bytes, length: int) -> bytes:
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + b"\0"
    return hmac.digest(secret, info + b"\x01", hashlib.sha384)[:length]
