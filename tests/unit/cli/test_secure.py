"""What `moldau up --secure` keeps beside its data, and what it tells clients."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from moldau.cli import secure
from moldau.cli.cert_files import authority_of, current_time, make_store
from moldau.cli.client_file import client_settings as read_settings
from moldau.cli.errors import CliError, Exit
from moldau.cli.secure import Secured, client_settings, hosts_of, java_settings, secured, texts
from moldau.config.jaas import parse_jaas
from moldau.security.certificates import Role, describe, is_signed_by, read

HOSTS = ["localhost", "127.0.0.1", "::1"]


def store_of(made: Secured) -> tuple[str, ...]:
    return describe(read(Path(made.store).read_bytes()).certificates[0]).names


def test_it_is_made_once_and_stays(tmp_path: Path) -> None:
    first = secured(str(tmp_path))
    before = {name: Path(first.folder, name).read_bytes() for name in os.listdir(first.folder)}
    again = secured(str(tmp_path))
    assert again == first and len(first.password) == 24
    assert {name: Path(first.folder, name).read_bytes() for name in os.listdir(first.folder)} == before
    assert set(before) == {"ca.crt", "ca.key", "brokers.pem", "admin.password"}


def test_two_folders_have_two_passwords(tmp_path: Path) -> None:
    assert secured(str(tmp_path / "a")).password != secured(str(tmp_path / "b")).password


def test_all_of_it_is_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = secured(str(tmp_path / "data"))
    finally:
        os.umask(before)
    modes = {
        name: stat.S_IMODE(os.stat(os.path.join(made.folder, name)).st_mode)
        for name in os.listdir(made.folder)
    }
    assert stat.S_IMODE(os.stat(made.folder).st_mode) == 0o700
    assert modes.pop("ca.crt") == 0o644 and set(modes.values()) == {0o600}


def test_the_certificate_is_made_anew_before_it_ends(tmp_path: Path) -> None:
    made = secured(str(tmp_path))
    make_store(made.folder, authority_of(made.folder), Role.BROKER, "brokers", HOSTS, days=10, replace=True)
    secured(str(tmp_path))
    (authority,) = read(Path(made.authority).read_bytes()).certificates
    certificate = read(Path(made.store).read_bytes()).certificates[0]
    assert certificate.not_valid_after_utc > current_time() + timedelta(days=700)
    assert is_signed_by(certificate, authority)


def test_a_machine_that_is_called_otherwise_gets_another_certificate(tmp_path: Path) -> None:
    made = secured(str(tmp_path), HOSTS)
    secured(str(tmp_path), [*HOSTS, "10.0.0.5"])
    assert store_of(made) == (*HOSTS, "10.0.0.5")
    secured(str(tmp_path), HOSTS)
    assert store_of(made) == (*HOSTS, "10.0.0.5"), "what was good stays good"


def test_a_broken_folder_is_one_sentence(tmp_path: Path) -> None:
    made = secured(str(tmp_path))
    Path(made.folder, "ca.key").write_text("no key")
    Path(made.store).unlink()
    with pytest.raises(CliError) as refused:
        secured(str(tmp_path))
    assert refused.value.code is Exit.CANNOT_START and "Remove" in refused.value.hint


def test_names_that_a_certificate_cannot_have_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "My_Machine !")
    monkeypatch.setattr("socket.getfqdn", lambda: "Machine.example.com")
    monkeypatch.setattr(secure, "own_address", lambda: "")
    assert hosts_of(["0.0.0.0", "kafka.example.com"], is_open=True) == [
        *HOSTS,
        "kafka.example.com",
        "machine.example.com",
    ]
    assert hosts_of([""], is_open=False) == HOSTS


def test_the_settings_to_paste_are_those_that_clients_take(tmp_path: Path) -> None:
    made = secured(str(tmp_path))
    settings = client_settings(made, "localhost:9092")
    AdminClient(settings)
    java = "\n".join(f"{name}={value}" for name, value in java_settings(settings).items())
    assert read_settings(java) == settings | {"security.protocol": "sasl_ssl"}
    pasted = texts(settings)
    assert len(pasted) == 3 and all(made.password in text for text in pasted.values())
    namespace: dict[str, object] = {}
    exec(pasted["Python: confluent_kafka.Producer(settings)"], namespace)
    assert namespace["settings"] == settings
    assert read_settings(pasted["librdkafka, kcat -F"]) == settings


def test_the_password_is_in_no_repr(tmp_path: Path) -> None:
    made = secured(str(tmp_path))
    assert made.password not in repr(made)


def test_a_password_with_quotes_is_one_for_java_too() -> None:
    settings = {
        "bootstrap.servers": "localhost:9092",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/ca.crt",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": 'a "word" with \\ and \'',
    }
    login = parse_jaas(java_settings(settings)["sasl.jaas.config"])
    assert login.options == {"username": "ann", "password": settings["sasl.password"]}
