"""What `moldau doctor` says of secrets that others can read, of certificates, and of listeners that let everyone in."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from moldau.cli import private_files, profiles
from moldau.cli.cert_files import authority_of, make_authority, make_store
from moldau.cli.doctor_security import (
    certificate_of,
    examine_config,
    examine_folder,
    examine_profiles,
    open_listeners,
    until_when,
)
from moldau.cli.findings import Finding, Status
from moldau.cli.private_files import read_by_others
from moldau.security.certificates import KeyKind, Role, new_authority, new_key

NOW = datetime.now(UTC).replace(microsecond=0)


def worst(found: list[Finding]) -> list[tuple[Status, str]]:
    return [(one.status, one.text) for one in found if one.status in (Status.WARNING, Status.PROBLEM)]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that every user may enter: pytest's own is for this user alone."""
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    private = {str(above) for above in folder.parents}
    real = private_files._above
    monkeypatch.setattr(
        private_files, "_above", lambda path: (one for one in real(path) if one not in private)
    )
    return folder


def test_a_file_is_read_by_others_where_they_get_to_it(opened: Path) -> None:
    file = opened / "key"
    file.touch(mode=0o600)
    assert not read_by_others(str(file))
    file.chmod(0o640)
    assert not read_by_others(str(file)), "a group was chosen"
    file.chmod(0o644)
    assert read_by_others(str(file))
    opened.chmod(0o700)
    assert not read_by_others(str(file))


def test_a_data_folder_that_everyone_reads_is_a_warning(opened: Path) -> None:
    data = opened / "moldau-data"
    data.mkdir(mode=0o755)
    ((status, text),) = worst(list(examine_folder(str(data))))
    assert status is Status.WARNING and "can be read by every user" in text
    data.chmod(0o700)
    assert list(examine_folder(str(data))) == []


def test_keys_and_passwords_of_up_that_others_read_are_warnings(opened: Path) -> None:
    secrets = opened / "security"
    secrets.mkdir(mode=0o755)
    opened.chmod(0o711)
    make_authority(str(secrets))
    (secrets / "admin.password").write_text("secret")
    (secrets / "admin.password").chmod(0o644)
    (secrets / "ca.key").chmod(0o604)
    found = list(examine_folder(str(opened)))
    assert sorted(text.split()[0].rpartition("/")[2] for _, text in worst(found)) == [
        "admin.password",
        "ca.key",
    ]
    assert any(one.status is Status.OK and "ca.crt, until" in one.text for one in found)


def test_a_profile_that_others_read_is_a_warning(opened: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(opened))
    path = profiles.save("prod", {"bootstrap.servers": "localhost:9092"}, replace=False)
    assert list(examine_profiles()) == []
    Path(path).chmod(0o644)
    assert list(examine_profiles()) == [], "nobody gets into the folder"
    for folder in (Path(path).parent, Path(path).parents[1]):
        folder.chmod(0o755)
    assert len(worst(list(examine_profiles()))) == 1


@pytest.mark.parametrize(
    ("days_ago", "days", "status", "said"),
    [
        (0, 365, Status.OK, "until"),
        (0, 20, Status.WARNING, "in 20 days"),
        (30, 20, Status.PROBLEM, "has expired"),
        (-2, 20, Status.PROBLEM, "on only"),
    ],
)
def test_a_certificate_is_good_ends_soon_or_has_ended(
    days_ago: int, days: int, status: Status, said: str
) -> None:
    made = new_authority("One", new_key(KeyKind.ECDSA), NOW - timedelta(days=days_ago), 1, days=days)
    found = until_when("certificate", "ca.crt", made.certificate, NOW)
    assert found.status is status and said in found.text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"listeners": "PLAINTEXT://:9092"}, "open without authentication"),
        ({"listeners": "PLAINTEXT://localhost:9092"}, ""),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092,SASL_SSL://:9093"}, ""),
        ({"listeners": "SSL://:9093"}, "open without authentication"),
        ({"listeners": "SSL://:9093", "ssl.client.auth": "requested"}, "open without authentication"),
        ({"listeners": "SSL://:9093", "ssl.client.auth": "required"}, ""),
        (
            {"listeners": "OUT://:9093", "listener.security.protocol.map": "OUT:SSL", "ssl.client.auth": "required",
             "listener.name.out.ssl.client.auth": "none"},
            "open without authentication",
        ),
        (
            {"listeners": "OUT://:9093", "listener.security.protocol.map": "OUT:SSL",
             "listener.name.out.ssl.client.auth": "required"},
            "",
        ),
        ({"listeners": "SASL_PLAINTEXT://:9093"}, "passwords without TLS"),
        ({"listeners": "CONTROLLER://:9093,SASL_SSL://:1", "controller.listener.names": "CONTROLLER"}, ""),
        ({}, "open without authentication"),
    ],
)  # fmt: skip
def test_listeners_that_let_everyone_in_are_warnings(settings: dict[str, str], said: str) -> None:
    found = worst(list(open_listeners("broker 1", settings)))
    assert len(found) == bool(said)
    assert not said or said in found[0][1]


def test_the_configuration_of_a_broker_is_looked_through(opened: Path) -> None:
    make_authority(str(opened / "certs"))
    _, (store,) = make_store(
        str(opened / "certs"), authority_of(str(opened / "certs")), Role.BROKER, "b", ["localhost"], days=10
    )
    (opened / "certs").chmod(0o755)
    Path(store).chmod(0o644)
    config = opened / "server.properties"
    config.write_text(
        f"listeners=SASL_SSL://:9093\nssl.keystore.location={store}\nssl.truststore.location={opened}/gone.crt\n"
        'listener.name.sasl_ssl.plain.sasl.jaas.config=PlainLoginModule required password="a-secret";\n'
    )
    config.chmod(0o644)
    found = list(examine_config(str(config)))
    said = " ".join(text for _, text in worst(found))
    assert f"{config} can be read by every user" in said
    assert f"{store} can be read by every user" in said and re.search("in (9|10) days", said)
    assert "there is no file" in said
    assert "a-secret" not in repr(found)


def test_the_certificate_of_a_listener_is_what_it_shows(tmp_path: Path) -> None:
    folder = str(tmp_path / "certs")
    make_authority(folder)
    made, (store,) = make_store(folder, authority_of(folder), Role.BROKER, "b", ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store)

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        try:
            context.wrap_socket(connection, server_side=True).close()
        except OSError:
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        assert certificate_of(*listening.getsockname()) == made
        thread.join(10)


def test_a_listener_without_tls_shows_no_certificate() -> None:
    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"\0\0\0\4what")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        assert certificate_of(*listening.getsockname()) is None
        thread.join(10)
