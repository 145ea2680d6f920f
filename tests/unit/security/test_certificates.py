"""Certificates: what they say, what others take of them, and what is refused."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moldau.security import certificates
from moldau.security.certificates import (
    CertificateError,
    KeyKind,
    Pair,
    Role,
    describe,
    is_authority,
    is_signed_by,
    issue,
    new_authority,
    new_key,
    read,
    renewed,
    serial_of,
    store_pem,
    store_pkcs12,
)

NOW = datetime.now(UTC).replace(microsecond=0)
KEYS = {kind: new_key(kind) for kind in KeyKind}
HOSTS = ["kafka1.example.com", "localhost", "127.0.0.1", "::1"]


def authority(days: int = 3650, kind: KeyKind = KeyKind.ECDSA) -> Pair:
    return new_authority("An authority", KEYS[kind], NOW, 1, days=days)


def broker(of: Pair, kind: KeyKind = KeyKind.ECDSA, hosts: list[str] = HOSTS, days: int = 825) -> Pair:
    return issue(of, Role.BROKER, "broker-1", new_key(kind), NOW, 2, hosts=hosts, days=days)


def client(of: Pair, name: str = "alice") -> Pair:
    return issue(of, Role.CLIENT, name, new_key(KeyKind.ECDSA), NOW, 3)


def test_a_brokers_certificate_names_its_hosts_and_serves_and_asks() -> None:
    told = describe(broker(authority()).certificate)
    assert (told.subject, told.issuer) == ("CN=broker-1", "CN=An authority")
    assert told.names == ("kafka1.example.com", "localhost", "127.0.0.1", "::1")
    assert told.usages == ("server", "client")
    assert (told.not_after - NOW).days == 825 and told.not_before < NOW
    assert told.key == "ECDSA secp256r1"


def test_a_clients_certificate_names_its_user_and_only_asks() -> None:
    told = describe(client(authority(), "alice, of accounting").certificate)
    assert told.subject == "CN=alice\\, of accounting"
    assert (told.names, told.usages) == ((), ("client",))


def test_an_authority_signs_no_other_authority() -> None:
    made = authority()
    assert is_authority(made.certificate) and describe(made.certificate).usages == ("authority",)
    constraints = made.certificate.extensions.get_extension_for_class(certificates.x509.BasicConstraints)
    assert constraints.critical and constraints.value.path_length == 0


def test_nothing_is_good_for_longer_than_its_authority() -> None:
    short = authority(days=10)
    assert broker(short, days=100).certificate.not_valid_after_utc == short.certificate.not_valid_after_utc


def test_an_authority_that_has_expired_signs_nothing() -> None:
    old = new_authority("Old", KEYS[KeyKind.ECDSA], NOW - timedelta(days=10), 1, days=5)
    with pytest.raises(CertificateError, match="renew it first"):
        client(old)


def test_a_renewed_certificate_has_the_same_key_and_names() -> None:
    signer = authority()
    old = broker(signer, days=5)
    new = renewed(old, signer, NOW + timedelta(days=4), 9, days=50)
    before, after = describe(old.certificate), describe(new.certificate)
    assert (after.subject, after.names, after.usages) == (before.subject, before.names, before.usages)
    assert new.certificate.public_key() == old.certificate.public_key()
    assert after.not_after == NOW + timedelta(days=54) and after.serial == "9"
    assert is_signed_by(new.certificate, signer.certificate)


def test_what_a_renewed_authority_had_signed_stays_good() -> None:
    old = authority(days=5)
    signed = broker(old)
    new = renewed(old, None, NOW, 9, days=50)
    assert is_signed_by(signed.certificate, new.certificate) and is_authority(new.certificate)


def test_another_authority_of_the_same_name_has_signed_nothing() -> None:
    other = new_authority("An authority", new_key(KeyKind.ECDSA), NOW, 1)
    assert not is_signed_by(broker(authority()).certificate, other.certificate)


@pytest.mark.parametrize(
    "host", ["", "two words", "kafka..example", "-kafka", "a" * 64, "kafka/1", "kafka:9092", "büro.example"]
)
def test_what_is_neither_a_host_name_nor_an_address_is_refused(host: str) -> None:
    with pytest.raises(CertificateError, match="neither a host name nor an address"):
        broker(authority(), hosts=[host])


@pytest.mark.parametrize("name", ["", "x" * 65, "two\nlines", "nul\0"])
def test_names_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(CertificateError, match="1 to 64 printable"):
        client(authority(), name)


def test_a_broker_without_a_host_is_refused() -> None:
    with pytest.raises(CertificateError, match="needs the host names"):
        broker(authority(), hosts=[])


def test_serial_numbers_are_positive_and_have_159_bits_at_most() -> None:
    assert serial_of(bytes(20)) == 1
    assert serial_of(b"\xff" * 20).bit_length() == 159


@pytest.mark.parametrize("kind", KeyKind)
def test_pem_and_pkcs12_are_read_as_they_were_written(kind: KeyKind) -> None:
    signer = authority(kind=kind)
    made = broker(signer, kind)
    for data, password in (
        (store_pem(made, signer.certificate), None),
        (store_pem(made, signer.certificate, b"secret"), b"secret"),
        (store_pkcs12(made, signer.certificate, "broker-1", b"secret"), b"secret"),
    ):
        contents = read(data, password)
        assert contents.certificates == (made.certificate, signer.certificate)
        assert contents.key is not None and contents.key.public_key() == made.key.public_key()


def test_keys_are_pkcs8_as_kafka_wants_them() -> None:
    text = store_pem(broker(authority()), authority().certificate)
    assert text.startswith(b"-----BEGIN PRIVATE KEY-----\n")
    text = store_pem(broker(authority()), authority().certificate, b"secret")
    assert text.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----\n")
    assert read(text).key is None and len(read(text).certificates) == 2


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xfe\xed\xfe\xed and more", "keytool -importkeystore"),
        (b"no certificate", "neither PEM nor PKCS#12"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
    ],
)
def test_what_cannot_be_read_says_so(data: bytes, said: str) -> None:
    with pytest.raises(CertificateError, match=said):
        read(data)


def test_a_wrong_password_says_so_and_is_not_repeated() -> None:
    store = store_pem(broker(authority()), authority().certificate, b"secret")
    with pytest.raises(CertificateError, match="another password") as refused:
        read(store, b"guessed")
    assert "guessed" not in str(refused.value)


def test_a_key_is_in_no_repr() -> None:
    made = broker(authority())
    number = made.key.private_numbers().private_value  # type: ignore[union-attr]
    for shown in (repr(made), repr(read(store_pem(made, made.certificate)))):
        assert "rivate" not in shown and str(number) not in shown


# ---- others -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KeyKind)
def test_openssl_finds_them_in_order(kind: KeyKind, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("There is no openssl here.")
    signer = authority(kind=kind)
    (tmp_path / "ca.crt").write_bytes(certificates.certificate_pem(signer.certificate))
    for name, made, purposes in (
        ("broker", broker(signer, kind), ["sslserver", "sslclient"]),
        ("client", client(signer), ["sslclient"]),
    ):
        (tmp_path / name).write_bytes(store_pem(made, signer.certificate))
        for purpose in ("sslserver", "sslclient"):
            done = subprocess.run(
                ["openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", "ca.crt", name],
                cwd=tmp_path,
                capture_output=True,
                timeout=30,
                check=False,
            )
            assert (done.returncode == 0) == (purpose in purposes), done


def handshake(folder: Path, signer: Pair, server: Pair, asking: Pair | None, host: str) -> str:
    """Over loopback, with verification on both sides and by every rule; the subject that the server saw."""
    names = {
        "ca": certificates.certificate_pem(signer.certificate),
        "server": store_pem(server, signer.certificate),
    }
    if asking is not None:
        names["client"] = store_pem(asking, signer.certificate)
    for name, data in names.items():
        (folder / name).write_bytes(data)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server")
    serving.load_verify_locations(folder / "ca")
    serving.verify_mode = ssl.CERT_REQUIRED if asking else ssl.CERT_NONE
    context = ssl.create_default_context(cafile=str(folder / "ca"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    serving.verify_flags |= ssl.VERIFY_X509_STRICT
    if asking is not None:
        context.load_cert_chain(folder / "client")
    seen: list[object] = []

    def serve() -> None:
        connection, _ = listening.accept()
        with connection, serving.wrap_socket(connection, server_side=True) as stream:
            stream.sendall(b"!")
            seen.append(stream.getpeercert())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        with (
            socket.create_connection(listening.getsockname(), 10) as connection,
            context.wrap_socket(connection, server_hostname=host) as stream,
        ):
            assert stream.recv(1) == b"!"
        thread.join(10)
    (peer,) = seen
    return str(peer)


@pytest.mark.parametrize("kind", KeyKind)
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "kafka1.example.com"])
def test_pythons_ssl_takes_a_broker_by_each_of_its_names(kind: KeyKind, host: str, tmp_path: Path) -> None:
    signer = authority(kind=kind)
    handshake(tmp_path, signer, broker(signer, kind), None, host)


def test_a_broker_knows_a_client_by_its_certificate(tmp_path: Path) -> None:
    signer = authority()
    assert "'alice'" in handshake(tmp_path, signer, broker(signer), client(signer), "localhost")
    assert "'broker-1'" in handshake(tmp_path, signer, broker(signer), broker(signer), "localhost")


def test_another_host_is_not_taken(tmp_path: Path) -> None:
    signer = authority()
    server = broker(signer)
    context = ssl.create_default_context()
    (tmp_path / "ca").write_bytes(certificates.certificate_pem(signer.certificate))
    (tmp_path / "server").write_bytes(store_pem(server, signer.certificate))
    context.load_verify_locations(tmp_path / "ca")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "server")
    asks, answers = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context.wrap_bio(answers, asks, server_hostname="elsewhere.example.com")
    other = serving.wrap_bio(asks, answers, server_side=True)
    with pytest.raises(ssl.SSLWantReadError):
        one.do_handshake()
    with pytest.raises(ssl.SSLWantReadError):
        other.do_handshake()
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        one.do_handshake()
