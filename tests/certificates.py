"""Authorities and certificates for tests, made in a few milliseconds each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
HERE = ("localhost", "127.0.0.1", "::1")
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Issued:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: PrivateKey

    @property
    def chain_pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def pem(self) -> bytes:
        """Both, as a key store file has them."""
        return self.key_pem + self.chain_pem

    def encrypted_key_pem(self, password: str) -> bytes:
        return self.key.private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
        )

    def pkcs12(self, password: str, authorities: Sequence[x509.Certificate] = ()) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"own", self.key, self.certificate, list(authorities), encryption
        )


class Authority:
    """One that signs what it is asked to."""

    def __init__(self, name: str = "Test authority", signer: Authority | None = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key: PrivateKey = ec.generate_private_key(ec.SECP256R1())
        issuer = signer or self
        self.certificate = (
            _builder(self.name, issuer.name, self.key, timedelta(days=3650), timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(issuer.key, hashes.SHA256())
        )

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def issue(
        self,
        subject: str | x509.Name,
        hosts: Sequence[str] = HERE,
        usages: Sequence[x509.ObjectIdentifier] = (SERVER, CLIENT),
        *,
        lasts: timedelta = timedelta(days=30),
        rsa_bits: int = 0,
        signs_itself: bool = False,
    ) -> Issued:
        name = _name(subject) if isinstance(subject, str) else subject
        key: PrivateKey = (
            rsa.generate_private_key(65537, rsa_bits) if rsa_bits else ec.generate_private_key(ec.SECP256R1())
        )
        builder = _builder(name, name if signs_itself else self.name, key, lasts, timedelta(days=60))
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        return Issued(builder.sign(key if signs_itself else self.key, hashes.SHA256()), key)


def _name(text: str) -> x509.Name:
    return x509.Name.from_rfc4514_string(text)


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PrivateKey, lasts: timedelta, since: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - since)
        .not_valid_after(now + lasts)
    )
