"""`moldau certs`: files with the right contents and permissions, nothing replaced unasked."""

from __future__ import annotations

import json
import os
import socket
import ssl
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from moldau.cli.app import run
from moldau.cli.errors import Exit
from moldau.security.certificates import is_signed_by, read


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def called(*arguments: str, code: int = Exit.OK) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["certs", *arguments])
    assert ended.value.code == code


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    called(*arguments, "--json")
    return json.loads(capsys.readouterr().out)


def mode(path: str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def test_what_it_makes_belongs_together_and_keys_are_for_this_user_alone() -> None:
    before = os.umask(0)
    try:
        called("authority")
        called("broker", "localhost", "127.0.0.1", "--name", "broker-1")
        called("client", "alice")
    finally:
        os.umask(before)
    (authority,) = read(Path("certs/ca.crt").read_bytes()).certificates
    for name in ("broker-1", "alice"):
        contents = read(Path(f"certs/{name}.pem").read_bytes())
        assert contents.key is not None
        assert is_signed_by(contents.certificates[0], authority) and contents.certificates[1] == authority
    assert {mode(f"certs/{name}") for name in ("ca.key", "broker-1.pem", "alice.pem")} == {0o600}
    assert (mode("certs"), mode("certs/ca.crt")) == (0o700, 0o644)


def test_nothing_is_replaced_unless_it_is_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    before = Path("certs/ca.key").read_bytes()
    called("authority", code=Exit.FAILED)
    assert "There is a file certs/ca.key already.\n       --force replaces it" in capsys.readouterr().err
    assert Path("certs/ca.key").read_bytes() == before
    called("authority", "--force")
    assert Path("certs/ca.key").read_bytes() != before
    assert sorted(os.listdir("certs")) == ["ca.crt", "ca.key"]


def test_one_file_that_is_there_keeps_all_from_being_written() -> None:
    called("authority")
    Path("certs/alice.p12").write_text("mine")
    Path("secret").write_text("a-password\n")
    called("client", "alice", "--pkcs12", "--password-file", "secret", code=Exit.FAILED)
    assert not os.path.exists("certs/alice.pem")


def test_a_broker_needs_an_authority(capsys: pytest.CaptureFixture[str]) -> None:
    called("broker", "localhost", code=Exit.NOT_FOUND)
    assert "Make one first: `moldau certs authority`." in capsys.readouterr().err


def test_the_key_of_another_authority_signs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    called("authority", "--dir", "other")
    os.replace("other/ca.key", "certs/ca.key")
    called("client", "alice", code=Exit.FAILED)
    assert "is not the key of ca.crt" in capsys.readouterr().err


def test_pkcs12_and_an_encrypted_key_open_with_the_password_of_the_file() -> None:
    called("authority")
    Path("secret").write_text("a-password\n")
    called("client", "alice", "--pkcs12", "--password-file", "secret")
    for name in ("alice.p12", "alice.pem"):
        assert read(Path(f"certs/{name}").read_bytes(), b"a-password").key is not None
        assert mode(f"certs/{name}") == 0o600
    assert b"ENCRYPTED" in Path("certs/alice.pem").read_bytes()


def test_a_password_that_is_too_short_for_java_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    Path("secret").write_text("short\n")
    called("client", "alice", "--password-file", "secret", code=Exit.USAGE)
    err = capsys.readouterr().err
    assert "less than 6 characters" in err and "short" not in err.replace("too short", "")


def test_renewing_keeps_the_key_and_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    called("broker", "kafka1.example.com", "10.0.0.5", "--days", "10")
    path = "certs/kafka1.example.com.pem"
    before = read(Path(path).read_bytes())
    called("renew", path, "--days", "20")
    after = read(Path(path).read_bytes())
    assert before.key is not None and after.key is not None
    assert after.key.public_key() == before.key.public_key()
    (shown,) = document(capsys, "show", path)
    assert shown["certificates"][0]["names"] == ["kafka1.example.com", "10.0.0.5"]
    left = after.certificates[0].not_valid_after_utc - before.certificates[0].not_valid_after_utc
    assert left.days == 10
    assert mode(path) == 0o600


def test_a_renewed_authority_is_the_one_that_signed(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority", "--days", "30")
    called("client", "alice")
    called("renew", "certs/ca.crt", "--days", "300")
    (authority,) = read(Path("certs/ca.crt").read_bytes()).certificates
    assert is_signed_by(read(Path("certs/alice.pem").read_bytes()).certificates[0], authority)
    called("renew", "certs/alice.pem")


def test_nobody_renews_what_another_has_signed(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority", "--name", "One")
    called("client", "alice")
    called("authority", "--name", "Other", "--dir", "other")
    called("renew", "certs/alice.pem", "--dir", "other", code=Exit.FAILED)
    assert "was not signed by the authority in other" in capsys.readouterr().err


def test_show_says_who_for_what_and_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    called("broker", "localhost", "127.0.0.1")
    capsys.readouterr()
    called("show")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["certs/ca.crt", "certs/localhost.pem"]
    assert "CN=localhost" in lines[2] and "localhost, 127.0.0.1" in lines[2] and "server, client" in lines[2]
    assert "(82" in lines[2] and "CN=Moldau authority" in lines[2]
    assert "PRIVATE" not in "".join(lines)


def test_the_settings_are_those_that_kafka_knows(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    made = document(capsys, "broker", "localhost")
    assert made["settings"]["the broker's settings"] == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": os.path.abspath("certs/localhost.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": os.path.abspath("certs/ca.crt"),
    }
    made = document(capsys, "client", "alice")
    native = made["settings"]["librdkafka, and confluent-kafka for Python"]
    from confluent_kafka.admin import AdminClient

    AdminClient(native)  # which loads them


@pytest.mark.parametrize("user", ["../alice", "/etc/alice", ".alice", "a/b"])
def test_a_user_is_no_path(user: str) -> None:
    called("authority")
    called("client", user)
    assert len(os.listdir("certs")) == 3


def test_show_looks_at_a_listener_too(capsys: pytest.CaptureFixture[str]) -> None:
    called("authority")
    called("broker", "localhost", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("certs/localhost.pem")

    def serve(listening: socket.socket) -> None:
        connection, _ = listening.accept()
        with connection, context.wrap_socket(connection, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,))
        thread.start()
        place = f"127.0.0.1:{listening.getsockname()[1]}"
        (shown,) = document(capsys, "show", place)
        thread.join(10)
    assert shown["file"] == place and not shown["has_key"]
    assert shown["certificates"][0]["names"] == ["localhost", "127.0.0.1"]
    called("show", place, code=Exit.UNREACHABLE)
    assert f"{place} cannot be reached: nothing listens there." in capsys.readouterr().err
