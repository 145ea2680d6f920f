"""Key stores and trust stores of Kafka's `ssl.*` keys: PEM in files or in the settings, PKCS12, encrypted keys.

What a store is, its content says. JKS, which Java alone reads, is refused with the line that converts it. Errors name
the key and the file, never what is in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from moldau.config.key import ConfigError
from moldau.config.listener_settings import ListenerSettings

if TYPE_CHECKING:
    from cryptography import x509

Read = Callable[[str], bytes]
"""A whole file; OSError."""

STORE_BYTES_MAX = 4 * 1024 * 1024
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_KEY = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----.*?-----END \1PRIVATE KEY-----", re.DOTALL)
_JAVA_STORES = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_IN_ONE_LINE = re.compile(rb"\s*(-----BEGIN [A-Z ]+-----)\s*(.*?)\s*(-----END [A-Z ]+-----)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is told of one, and compared with the next."""

    subject: str
    hosts: frozenset[str]
    not_before_s: float
    not_after_s: float


@dataclass(frozen=True, slots=True)
class KeyStore:
    chain_pem: bytes
    key_pem: bytes = field(repr=False)
    own: Certificate


def key_store(settings: ListenerSettings, read: Read) -> KeyStore | None:
    """None where none is named."""
    location: str | None = settings["ssl.keystore.location"]
    key, chain = settings["ssl.keystore.key"], settings["ssl.keystore.certificate.chain"]
    if key is None and chain is not None:
        raise ConfigError("SSL certificate chain is specified, but private key is not specified")
    if key is not None:
        if chain is None:
            raise ConfigError("SSL private key is specified, but certificate chain is not specified.")
        if location:
            raise ConfigError("Both SSL key store location and separate private key are specified.")
        return _pem_key_store(
            settings, _lines(key.reveal()) + b"\n" + _lines(chain.reveal()), "ssl.keystore.key"
        )
    if not location:
        return None
    data = _file("ssl.keystore.location", location, read)
    _check_type(settings, "ssl.keystore.type", data, location)
    if b"-----BEGIN" in data:
        return _pem_key_store(settings, data, location)
    _refuse_java(data, location)
    return _pkcs12_key_store(settings, data, location)


def trust_store(settings: ListenerSettings, read: Read) -> bytes:
    """Certificates as PEM; empty where no store is named."""
    location: str | None = settings["ssl.truststore.location"]
    certificates = settings["ssl.truststore.certificates"]
    if certificates is not None:
        if location:
            raise ConfigError("Both SSL trust store location and separate trust certificates are specified.")
        return _certificates(_lines(certificates.reveal()), "ssl.truststore.certificates")
    if not location:
        return b""
    data = _file("ssl.truststore.location", location, read)
    _check_type(settings, "ssl.truststore.type", data, location)
    if b"-----BEGIN" in data:
        return _certificates(data, location)
    _refuse_java(data, location)
    return _pkcs12_trust_store(data, settings["ssl.truststore.password"], location)


def locations(settings: ListenerSettings) -> list[str]:
    """The files that both stores are in."""
    names = (settings["ssl.keystore.location"], settings["ssl.truststore.location"])
    return [name for name in names if name]


def _file(key: str, location: str, read: Read) -> bytes:
    try:
        data = read(location)
    except OSError as error:
        raise ConfigError(f"{key}: {location} cannot be read: {error.strerror or error}") from None
    if len(data) > STORE_BYTES_MAX:
        raise ConfigError(f"{key}: {location} is larger than {STORE_BYTES_MAX} bytes")
    return data


def _check_type(settings: ListenerSettings, key: str, data: bytes, location: str) -> None:
    is_pem = b"-----BEGIN" in data
    if settings.is_set(key) and (settings[key].upper() == "PEM") != is_pem:
        raise ConfigError(f"{key} is {settings[key]}, and {location} is {'' if is_pem else 'not '}PEM")


def _refuse_java(data: bytes, location: str) -> None:
    if data[:4] in _JAVA_STORES:
        target = location.removesuffix(".jks").removesuffix(".keystore") + ".p12"
        raise ConfigError(
            f"{location} is a JKS store, which Java alone reads. Convert it: keytool -importkeystore "
            f"-srckeystore {location} -destkeystore {target} -deststoretype PKCS12"
        )


def _lines(text: str) -> bytes:
    """PEM that a settings file has in one line, in lines again: OpenSSL wants them."""
    data = text.replace("\\n", "\n").encode("utf-8", "replace")
    blocks = [
        b"%s\n%s\n%s" % (begin, b"\n".join(_chunks(b"".join(body.split()))), end)
        if b":" not in body
        else b"%s\n%s\n%s" % (begin, body, end)
        for begin, body, end in _IN_ONE_LINE.findall(data)
    ]
    return b"\n".join(blocks) or data


def _chunks(data: bytes) -> list[bytes]:
    return [data[start : start + 64] for start in range(0, len(data), 64)]


def _certificates(data: bytes, where: str) -> bytes:
    found = _CERTIFICATE.findall(data)
    if not found:
        raise ConfigError(f"{where} has no certificates in PEM")
    for one in found:
        _parsed(one, where)
    return b"\n".join(found) + b"\n"


def _pem_key_store(settings: ListenerSettings, data: bytes, where: str) -> KeyStore:
    chain = _CERTIFICATE.findall(data)
    if not chain:
        raise ConfigError(f"{where} has no certificates in PEM")
    key = _KEY.search(data)
    if key is None:
        raise ConfigError(f"{where} has no private key in PEM")
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    password = settings["ssl.key.password"]
    is_encrypted = b"ENCRYPTED" in key[0]
    if is_encrypted and password is None:
        raise ConfigError(f"{where}: the private key is encrypted, and ssl.key.password is not set")
    try:
        private = load_pem_private_key(key[0], password.reveal().encode() if is_encrypted else None)
    except Exception:  # its texts may have what it was given
        reason = "the password is wrong, or it is damaged" if is_encrypted else "it is damaged"
        raise ConfigError(f"{where}: the private key cannot be read: {reason}") from None
    return KeyStore(b"\n".join(chain) + b"\n", _key_pem(private), _described(chain[0], where))


def _pkcs12_key_store(settings: ListenerSettings, data: bytes, location: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    found = _opened(pkcs12.load_key_and_certificates, data, settings["ssl.keystore.password"], location)
    key, certificate, others = found
    if key is None or certificate is None:
        raise ConfigError(f"{location} has no private key with its certificate")
    chain = [one.public_bytes(Encoding.PEM) for one in _in_order(certificate, others)]
    return KeyStore(b"".join(chain), _key_pem(key), _described(chain[0], location))


def _in_order(own: x509.Certificate, others: list[x509.Certificate]) -> list[x509.Certificate]:
    """Each behind the one that it has signed; a store may have them in any order."""
    chain, left = [own], list(others)
    while (signer := next((one for one in left if one.subject == chain[-1].issuer), None)) is not None:
        chain.append(signer)
        left.remove(signer)
    return chain


def _pkcs12_trust_store(data: bytes, password: Any, location: str) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    store = _opened(pkcs12.load_pkcs12, data, password, location)
    certificates = [one.certificate.public_bytes(Encoding.PEM) for one in store.additional_certs]
    if not certificates:
        raise ConfigError(f"{location} has no certificates")
    return b"".join(certificates)


def _opened(load: Callable[..., Any], data: bytes, password: Any, location: str) -> Any:
    try:
        return load(data, None if password is None else password.reveal().encode())
    except Exception:
        reason = "no password is set" if password is None else "the password is wrong"
        raise ConfigError(f"{location} cannot be read as PKCS12: {reason}, or it is damaged") from None


def _key_pem(private: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    pem: bytes = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


def _parsed(pem: bytes, where: str) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ConfigError(f"{where}: a certificate cannot be read") from None


def _described(pem: bytes, where: str) -> Certificate:
    from cryptography import x509

    from moldau.security.tls.names import rfc_2253

    certificate = _parsed(pem, where)
    hosts: frozenset[str]
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = frozenset(str(name.value) for name in names)
    except (x509.ExtensionNotFound, ValueError):
        hosts = frozenset()
    return Certificate(
        rfc_2253(certificate.subject.public_bytes()),
        hosts,
        _seconds(certificate.not_valid_before_utc),
        _seconds(certificate.not_valid_after_utc),
    )


def _seconds(moment: datetime) -> float:
    return moment.astimezone(UTC).timestamp()
