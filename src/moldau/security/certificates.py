"""Certificates for a cluster of one's own: an authority, and what it signs for brokers and clients. Pure.

What is made is what Kafka's PEM stores take (KIP-651): a key in PKCS#8 and the chain behind it in one file, the
authority in another. A broker's certificate names its hosts and addresses, and serves and asks others (brokers are each
other's clients); a client's names its user and asks alone. Keys are ECDSA on P-256, or RSA with 3072 bits.

The time and the serial number come from outside; keys and signatures draw on OpenSSL's own generator. Left out:
requests to other authorities, revocation lists, authorities below an authority.

It brings the package cryptography with it: whoever may not need it imports this when they do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

RSA_BITS = 3072
AUTHORITY_DAYS = 3650
DAYS = 825
"""The longest that Apple's systems take of an authority that a user has added."""
CLOCK_SKEW = timedelta(hours=1)
"""A certificate is good a little before it is made: clocks differ."""
COMMON_NAME_MAX = 64  # RFC 5280, ub-common-name
_LABEL = "[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
HOST_NAME = re.compile(rf"(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?")
HOST_NAME_MAX = 253
SERIAL_BYTES = 20  # RFC 5280; the first bit is 0, and the number not
PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?P<kind>[A-Z ]*PRIVATE KEY)-----.*?-----END (?P=kind)-----", re.DOTALL
)
USAGES = {
    ExtendedKeyUsageOID.SERVER_AUTH: "server",
    ExtendedKeyUsageOID.CLIENT_AUTH: "client",
}


class CertificateError(ValueError):
    """What is wrong with a name, a key or a file: one sentence."""


class KeyKind(Enum):
    ECDSA = "ecdsa"
    RSA = "rsa"


class Role(Enum):
    """What a certificate is for."""

    BROKER = "broker"
    CLIENT = "client"


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, and the key that belongs to it."""

    certificate: x509.Certificate
    key: PrivateKey = field(repr=False)


class Contents(NamedTuple):
    """What a PEM or PKCS#12 file has: certificates in its order, and perhaps a key."""

    certificates: tuple[x509.Certificate, ...]
    key: PrivateKey | None

    def __repr__(self) -> str:
        return f"Contents({len(self.certificates)} certificates, {'a' if self.key else 'no'} key)"


class Description(NamedTuple):
    """What people want to know of a certificate."""

    subject: str
    """As Kafka's principal says it: `CN=alice`."""
    issuer: str
    names: tuple[str, ...]
    """The hosts and addresses that it is good for."""
    usages: tuple[str, ...]
    """`authority`; `server`, `client`; none: anything."""
    key: str
    not_before: datetime
    not_after: datetime
    serial: str
    fingerprint: str
    """SHA-256, as `openssl x509 -fingerprint -sha256` shows it."""


def new_key(kind: KeyKind) -> PrivateKey:
    if kind is KeyKind.RSA:
        return rsa.generate_private_key(public_exponent=65537, key_size=RSA_BITS)
    return ec.generate_private_key(ec.SECP256R1())


def serial_of(random: bytes) -> int:
    """A serial number of as many random bytes as `SERIAL_BYTES`."""
    return max(1, int.from_bytes(random[:SERIAL_BYTES], "big") >> 1)


def new_authority(
    name: str, key: PrivateKey, now: datetime, serial: int, *, days: int = AUTHORITY_DAYS
) -> Pair:
    """An authority that signs certificates of brokers and clients, and no other authority."""
    subject = common_name(name)
    builder = (
        _begun(subject, subject, key, now, serial, _end(now, days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return Pair(_signed(builder, key), key)


def issue(
    authority: Pair,
    role: Role,
    name: str,
    key: PrivateKey,
    now: datetime,
    serial: int,
    *,
    hosts: Sequence[str] = (),
    days: int = DAYS,
) -> Pair:
    """A certificate for a broker, good for those hosts and addresses, or for a client, whose user `name` is. It ends
    with its authority at the latest.
    """
    if role is Role.BROKER and not hosts:
        raise CertificateError("A broker's certificate needs the host names or addresses that clients use.")
    parent = authority.certificate
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if role is Role.BROKER:
        usages.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
    end = min(_end(now, days), parent.not_valid_after_utc)
    builder = (
        _begun(common_name(name), parent.subject, key, now, serial, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_rsa=isinstance(key, rsa.RSAPrivateKey)), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(_authority_key(parent), critical=False)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
    return Pair(_signed(builder, authority.key), key)


def renewed(old: Pair, authority: Pair | None, now: datetime, serial: int, *, days: int) -> Pair:
    """The same certificate for the same key, good from now on. Without an authority it is one, and signs itself: what
    it has signed stays good.
    """
    issuer = old if authority is None else authority
    end = _end(now, days)
    if authority is not None:
        end = min(end, authority.certificate.not_valid_after_utc)
    certificate = old.certificate
    builder = _builder(certificate.subject, issuer.certificate.subject, old.key, now, serial, end)
    for extension in certificate.extensions:
        if extension.oid != ExtensionOID.AUTHORITY_KEY_IDENTIFIER:
            builder = builder.add_extension(extension.value, extension.critical)
    if authority is not None:
        builder = builder.add_extension(_authority_key(authority.certificate), critical=False)
    return Pair(_signed(builder, issuer.key), old.key)


def is_authority(certificate: x509.Certificate) -> bool:
    try:
        return bool(certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
    except x509.ExtensionNotFound:
        return False


def is_signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


# Files


def key_pem(key: PrivateKey, password: bytes | None = None) -> bytes:
    """PKCS#8, which is all that Kafka's PEM stores read; encrypted where there is a password."""
    encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password)
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def certificate_pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def store_pem(pair: Pair, authority: x509.Certificate, password: bytes | None = None) -> bytes:
    """Key and chain in one file: `ssl.keystore.location` with `ssl.keystore.type=PEM`."""
    return key_pem(pair.key, password) + certificate_pem(pair.certificate) + certificate_pem(authority)


def store_pkcs12(pair: Pair, authority: x509.Certificate, name: str, password: bytes) -> bytes:
    """The same for programs that want PKCS#12."""
    encryption = serialization.BestAvailableEncryption(password)
    return pkcs12.serialize_key_and_certificates(
        name.encode(), pair.key, pair.certificate, [authority], encryption
    )


def read(data: bytes, password: bytes | None = None) -> Contents:
    """What a file has, by its first bytes: PEM or PKCS#12. CertificateError where it is neither, or does not open."""
    if data.startswith(b"\xfe\xed\xfe\xed"):
        raise CertificateError(
            "It is a JKS store: `keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 "
            "-deststoretype PKCS12` makes a PKCS#12 store of it."
        )
    return _read_pem(data, password) if b"-----BEGIN " in data else _read_pkcs12(data, password)


def _read_pem(data: bytes, password: bytes | None) -> Contents:
    try:
        certificates = tuple(x509.load_pem_x509_certificates(data)) if b"BEGIN CERTIFICATE" in data else ()
        found = PRIVATE_KEY.search(data)
        is_encrypted = found is not None and b"ENCRYPTED" in found[0][:400]
        if found is None or (is_encrypted and password is None):
            return Contents(certificates, None)
        key = serialization.load_pem_private_key(found[0], password if is_encrypted else None)
    except (ValueError, TypeError) as error:
        raise CertificateError(
            "It has a certificate or a key that cannot be read, or another password."
        ) from error
    return Contents(certificates, _known(key))


def _read_pkcs12(data: bytes, password: bytes | None) -> Contents:
    try:
        key, certificate, others = pkcs12.load_key_and_certificates(data, password)
    except (ValueError, TypeError) as error:
        raise CertificateError("It is neither PEM nor PKCS#12, or has another password.") from error
    certificates = ([certificate] if certificate is not None else []) + list(others)
    return Contents(tuple(certificates), None if key is None else _known(key))


def _known(key: object) -> PrivateKey:
    if isinstance(key, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return key
    raise CertificateError("Its key is neither ECDSA nor RSA.")


def has_key(data: bytes) -> bool:
    """Whether a PEM file has a private key, which nobody else is to read."""
    return PRIVATE_KEY.search(data) is not None


# For people


def describe(certificate: x509.Certificate) -> Description:
    digest = certificate.fingerprint(hashes.SHA256()).hex().upper()
    return Description(
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        _names(certificate),
        ("authority",) if is_authority(certificate) else _usages(certificate),
        _key_name(certificate),
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        f"{certificate.serial_number:x}",
        ":".join(digest[at : at + 2] for at in range(0, len(digest), 2)),
    )


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return (
        *found.get_values_for_type(x509.DNSName),
        *map(str, found.get_values_for_type(x509.IPAddress)),
    )


def _usages(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(USAGES.get(usage, usage.dotted_string) for usage in found)


def _key_name(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"ECDSA {key.curve.name}"
    return type(key).__name__.removesuffix("PublicKey").lstrip("_")


# Parts


def common_name(name: str) -> x509.Name:
    if not 0 < len(name) <= COMMON_NAME_MAX or not name.isprintable():
        raise CertificateError(f"A name in a certificate has 1 to {COMMON_NAME_MAX} printable characters.")
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _general_name(host: str) -> x509.GeneralName:
    address = address_of(host)
    if address is not None:
        return x509.IPAddress(address)
    if len(host) > HOST_NAME_MAX or not HOST_NAME.fullmatch(host.lower()):
        raise CertificateError(f"'{host}' is neither a host name nor an address.")
    return x509.DNSName(host.lower().rstrip("."))


def address_of(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None


def _end(now: datetime, days: int) -> datetime:
    try:
        return now + timedelta(days=days)
    except OverflowError:
        raise CertificateError(f"{days} days are too many.") from None


def _begun(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, now: datetime, serial: int, end: datetime
) -> x509.CertificateBuilder:
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return _builder(subject, issuer, key, now, serial, end).add_extension(own, critical=False)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, now: datetime, serial: int, end: datetime
) -> x509.CertificateBuilder:
    begin = now - CLOCK_SKEW
    if end <= begin:
        raise CertificateError("The authority has expired: renew it first.")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(serial)
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _key_usage(*, signs_certificates: bool = False, is_rsa: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_encipherment=is_rsa,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority_key(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key = authority.public_key()
        assert isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey)
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _signed(builder: x509.CertificateBuilder, key: PrivateKey) -> x509.Certificate:
    return builder.sign(key, hashes.SHA256())
