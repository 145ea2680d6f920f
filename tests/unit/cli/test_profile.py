"""`moldau profile`: what is kept, for whom, and which settings a command line means."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from moldau.cli import profiles
from moldau.cli.app import run
from moldau.cli.cert_files import authority_of, make_authority, make_store
from moldau.cli.client_file import client_settings
from moldau.cli.errors import CliError, Exit
from moldau.cli.options import Target
from moldau.cli.profiles import Given, Said, way_of
from moldau.cli.refused import advice_on
from moldau.security.certificates import Role

HERE, THERE = "kafka1:9093", "elsewhere:9092"
SECRET = "a-secret \\ with \"all\" 'sorts'; of = things#"


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MOLDAU_PROFILE", raising=False)
    monkeypatch.delenv("MOLDAU_BOOTSTRAP", raising=False)
    monkeypatch.chdir(tmp_path)


def called(*arguments: str, code: int = Exit.OK, stdin: str = "") -> None:
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    try:
        with pytest.raises(SystemExit) as ended:
            run(list(arguments))
    finally:
        sys.stdin = before
    assert ended.value.code == code


def add(name: str = "prod", *more: str, password: str = SECRET) -> None:
    called(
        "profile",
        "add",
        name,
        "-b",
        HERE,
        "-u",
        "alice",
        "--password-file",
        "-",
        *more,
        stdin=password + "\n",
    )


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    called("profile", "list", "--json")
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


# ---- the store ----------------------------------------------------------------------------------------------


def test_a_profile_is_a_file_for_this_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        add()
    finally:
        os.umask(before)
    file = tmp_path / "config" / "moldau" / "profiles" / "prod.properties"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert not list(file.parent.glob("*.tmp"))


def test_what_is_read_is_what_was_written() -> None:
    add()
    assert profiles.load("prod") == {
        "bootstrap.servers": HERE,
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": SECRET,
    }


@pytest.mark.parametrize(
    "value", [" led by a blank", "two\nlines\r\n", "tab\t", "\\", "\\n", "a=b:c", "#!", "ü\u20ac"]
)
def test_every_value_comes_back(value: str) -> None:
    profiles.save("one", {"bootstrap.servers": HERE, "sasl.password": value}, replace=False)
    assert profiles.load("one")["sasl.password"] == value


def test_no_command_prints_the_password(capsys: pytest.CaptureFixture[str]) -> None:
    add()
    called("profile", "show", "prod")
    called("profile", "show", "prod", "--json")
    called("profile", "list")
    add("prod", "--force", "--json")
    out, err = capsys.readouterr()
    assert "alice" in out and profiles.HIDDEN in out
    assert SECRET not in out + err and "a-secret" not in out + err


def test_no_repr_has_the_password() -> None:
    add()
    way = way_of(Given(None), Given("prod", Said.BY_OPTION), None)
    assert way.properties["sasl.password"] == SECRET
    assert "a-secret" not in repr(way) + repr(Target(HERE, way.properties))


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
    ],
)
def test_every_secret_is_hidden(name: str) -> None:
    assert profiles.shown({name: "x"}) == {name: profiles.HIDDEN}


def test_a_profile_is_replaced_only_where_it_is_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    add()
    called("profile", "add", "prod", "-b", THERE, code=Exit.FAILED)
    assert "There is a profile 'prod' already." in capsys.readouterr().err
    called("profile", "add", "prod", "-b", THERE, "--force")
    assert profiles.load("prod") == {"bootstrap.servers": THERE}


@pytest.mark.parametrize("name", ["../prod", "a/b", ".prod", "", "x" * 65, "a b", "-x"])
def test_a_name_is_no_path(name: str) -> None:
    called("profile", "add", "-b", HERE, "--", name, code=Exit.USAGE)


def test_several_clusters_and_a_default(capsys: pytest.CaptureFixture[str]) -> None:
    add()
    called("profile", "add", "test", "-b", THERE, "--use")
    assert [(one["name"], one["bootstrap"], one["protocol"], one["default"]) for one in listed(capsys)] == [
        ("prod", HERE, "SASL_SSL", False),
        ("test", THERE, "PLAINTEXT", True),
    ]
    called("profile", "use", "prod")
    assert profiles.default_name() == "prod"
    called("profile", "remove", "prod")
    assert profiles.default_name() is None and [one["name"] for one in listed(capsys)] == ["test"]


def test_a_profile_that_is_not_there_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    add()
    for arguments in (("show", "prd"), ("remove", "prd"), ("use", "prd")):
        called("profile", *arguments, code=Exit.NOT_FOUND)
        assert "There is no profile 'prd'.\n       Did you mean prod?" in capsys.readouterr().err
    called("topic", "list", "--profile", "prd", code=Exit.NOT_FOUND)


def test_without_a_terminal_the_password_comes_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    called("profile", "add", "prod", "-b", HERE, "-u", "alice", code=Exit.USAGE)
    assert "no terminal to ask for the password" in capsys.readouterr().err
    (tmp_path / "password").write_text("from a file\nand more\n")
    called("profile", "add", "prod", "-b", HERE, "-u", "alice", "--password-file", "password")
    assert profiles.load("prod")["sasl.password"] == "from a file"


def test_a_certificate_that_is_not_there_is_refused_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    called("profile", "add", "prod", "-b", HERE, "--ca", "no-such-file", code=Exit.USAGE)
    assert "ssl.ca.location" in capsys.readouterr().err
    assert profiles.names() == []


def test_certificates_are_found_from_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    make_authority("certs")
    make_store("certs", authority_of("certs"), Role.CLIENT, "alice", ())
    called("profile", "add", "prod", "-b", HERE, "--ca", "certs/ca.crt", "--certificate", "certs/alice.pem")
    settings = profiles.load("prod")
    assert settings["security.protocol"] == "ssl"
    for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
        assert settings[name].startswith(str(tmp_path))


# ---- what a command line means --------------------------------------------------------------------------------

NOT, VARIABLE, OPTION = Said


@pytest.mark.parametrize(
    ("bootstrap", "profile", "default", "expected"),
    [
        (NOT, NOT, False, (None, False)),
        (NOT, NOT, True, (HERE, True)),
        (NOT, VARIABLE, False, (HERE, True)),
        (NOT, OPTION, False, (HERE, True)),
        (VARIABLE, NOT, True, (THERE, False)),
        (OPTION, NOT, True, (THERE, False)),
        (VARIABLE, VARIABLE, False, (THERE, True)),
        (VARIABLE, OPTION, False, (HERE, True)),
        (OPTION, VARIABLE, False, (THERE, True)),
        (OPTION, OPTION, True, (THERE, True)),
    ],
)
def test_an_option_wins_over_a_variable_and_what_is_said_over_the_default(
    bootstrap: Said, profile: Said, default: bool, expected: tuple[str | None, bool]
) -> None:
    add()
    profiles.use("prod" if default else None)
    way = way_of(
        Given(THERE if bootstrap else "localhost:9092", bootstrap),
        Given("prod" if profile else None, profile),
        None,
    )
    assert (way.bootstrap, "sasl.password" in way.properties) == expected


def test_a_file_wins_over_a_variable_and_excludes_the_option(tmp_path: Path) -> None:
    add()
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={THERE}\nsecurity.protocol=PLAINTEXT\n")
    way = way_of(Given(None), Given("prod", Said.BY_VARIABLE), "client.properties")
    assert way.bootstrap == THERE and "sasl.password" not in way.properties
    with pytest.raises(CliError, match="exclude each other"):
        way_of(Given(None), Given("prod", Said.BY_OPTION), "client.properties")


def test_a_command_goes_where_its_profile_says(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    called("profile", "add", "prod", "-b", "127.0.0.1:1")
    monkeypatch.setenv("MOLDAU_PROFILE", "prod")
    called("topic", "list", code=Exit.UNREACHABLE)
    err = capsys.readouterr().err
    assert "Cannot reach a broker at 127.0.0.1:1" in err
    assert "That is the address in the profile prod; --bootstrap names another." in err
    called("topic", "list", "--bootstrap", "127.0.0.1:2", code=Exit.UNREACHABLE)
    err = capsys.readouterr().err
    assert "127.0.0.1:2" in err and "That is the address" not in err


# ---- files of other clients -----------------------------------------------------------------------------------


def test_a_file_of_librdkafka_is_taken_as_it_is() -> None:
    text = r"""
# kcat -F
metadata.broker.list = kafka1:9093
security.protocol=SASL_SSL
sasl.mechanisms=PLAIN
sasl.username=alice
sasl.password=back\slash=and more
ssl.ca.location=/etc/ca.crt
linger.ms=5
"""
    assert client_settings(text) == {
        "bootstrap.servers": "kafka1:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "back\\slash=and more",
        "ssl.ca.location": "/etc/ca.crt",
    }


def test_a_java_file_is_translated(tmp_path: Path) -> None:
    make_authority("certs")
    make_store("certs", authority_of("certs"), Role.CLIENT, "alice", ())
    text = f"""
bootstrap.servers=kafka1:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="alice" password="a secret";
ssl.truststore.type=PEM
ssl.truststore.location={tmp_path}/certs/ca.crt
ssl.keystore.type=PEM
ssl.keystore.location={tmp_path}/certs/alice.pem
ssl.endpoint.identification.algorithm=
ssl.enabled.protocols=TLSv1.3
ssl.cipher.suites=TLS_AES_128_GCM_SHA256
request.timeout.ms=1000
"""
    assert client_settings(text) == {
        "bootstrap.servers": "kafka1:9093",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "alice",
        "sasl.password": "a secret",
        "ssl.ca.location": f"{tmp_path}/certs/ca.crt",
        "ssl.certificate.location": f"{tmp_path}/certs/alice.pem",
        "ssl.key.location": f"{tmp_path}/certs/alice.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_javas_pkcs12_stores_are_taken_by_what_is_in_them(tmp_path: Path) -> None:
    make_authority("certs")
    make_store("certs", authority_of("certs"), Role.CLIENT, "alice", (), store_password=b"changeit")
    store = f"{tmp_path}/certs/alice.p12"
    settings = client_settings(
        f"security.protocol=SSL\nssl.truststore.location={store}\nssl.truststore.password=changeit\n"
        f"ssl.keystore.location={store}\nssl.keystore.password=changeit\n"
    )
    assert settings["ssl.keystore.location"] == store and settings["ssl.keystore.password"] == "changeit"
    assert settings["ssl.ca.pem"].count("BEGIN CERTIFICATE") == 2
    assert profiles.shown(settings)["ssl.ca.pem"] == "(2 in PEM)"
    with pytest.raises(ValueError, match="another password") as refused:
        client_settings(f"ssl.truststore.location={store}\nssl.truststore.password=guessed\n")
    assert "guessed" not in str(refused.value)


def test_a_jks_store_comes_with_the_line_that_converts_it(tmp_path: Path) -> None:
    (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ValueError, match="keytool -importkeystore"):
        client_settings(f"ssl.truststore.location={tmp_path}/trust.jks\n")


def test_a_login_that_is_not_understood_repeats_no_secret(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "client.properties").write_text('sasl.jaas.config=Mine required password="a-secret";\n')
    called("topic", "list", "--command-config", "client.properties", code=Exit.FAILED)
    err = capsys.readouterr().err
    assert "sasl.jaas.config" in err and "a-secret" not in err


@pytest.mark.parametrize(
    ("complaint", "advice"),
    [
        ("ssl://x: SSL handshake failed: certificate verify failed: broker certificate", "--ca FILE"),
        (
            "certificate verify failed: Hostname mismatch, certificate is not valid for 'x'",
            "moldau certs broker",
        ),
        (
            "SASL authentication error: Authentication failed during authentication",
            "Check the user, the password",
        ),
        ("Disconnected: might be caused by incorrect security.protocol configuration", "--profile NAME"),
        ("Local: Timed out", ""),
    ],
)
def test_a_refusal_says_what_to_do_and_whose_settings_they_were(complaint: str, advice: str) -> None:
    said = advice_on(complaint, Target(origin="the profile prod"))
    assert advice in said
    assert said.endswith("The settings are those of the profile prod.") == bool(advice)
