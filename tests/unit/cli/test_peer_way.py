"""The settings of a profile, as the connections of our own take them: TLS by certificates, and who logs in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.cli.cert_files import authority_of, make_authority, make_store
from moldau.cli.errors import CliError, Exit
from moldau.cli.options import Target
from moldau.cli.peer_way import login_of, protocol_of, tls_settings
from moldau.security.certificates import Role, read

PASSWORD = "a-password"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": PASSWORD}


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("certs"))
    make_authority(folder)
    signer = authority_of(folder)
    make_store(folder, signer, Role.CLIENT, "alice", ())
    secret = PASSWORD.encode()
    make_store(folder, signer, Role.CLIENT, "bob", (), password=secret, store_password=secret)
    return folder


def pem(folder: str, name: str) -> str:
    return Path(folder, name).read_text()


def test_authorities_are_taken_from_a_file_or_as_they_are(certs: str) -> None:
    by_file = tls_settings({"ssl.ca.location": os.path.join(certs, "ca.crt")})
    assert by_file == tls_settings({"ssl.ca.pem": pem(certs, "ca.crt")})
    assert by_file.trusted_pem == pem(certs, "ca.crt").encode()
    assert not by_file.is_server and by_file.chain_pem == b""
    assert tls_settings({}).trusted_pem == b"", "those of the machine"


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.certificate.location": "alice.pem", "ssl.key.location": "alice.pem"},
        {"ssl.certificate.location": "bob.pem", "ssl.key.location": "bob.pem", "ssl.key.password": PASSWORD},
        {"ssl.keystore.location": "bob.p12", "ssl.keystore.password": PASSWORD},
    ],
)
def test_every_form_of_an_own_certificate_comes_out_unencrypted(settings: dict[str, str], certs: str) -> None:
    found = tls_settings(
        {
            name: os.path.join(certs, value) if name.endswith("location") else value
            for name, value in settings.items()
        }
    )
    assert found.key_pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    contents = read(found.chain_pem + found.key_pem)
    assert len(contents.certificates) == 2 and contents.key is not None
    assert contents.key.public_key() == contents.certificates[0].public_key()
    assert "PRIVATE" not in repr(found)


def test_a_key_in_a_setting_of_its_own_will_do(certs: str) -> None:
    text = pem(certs, "alice.pem")
    key, _, chain = text.partition("-----END PRIVATE KEY-----\n")
    found = tls_settings({"ssl.certificate.pem": chain, "ssl.key.pem": f"{key}-----END PRIVATE KEY-----\n"})
    assert found.chain_pem and found.key_pem


def test_the_hosts_name_is_checked_unless_that_is_left_out() -> None:
    assert tls_settings({}).checks_host
    assert not tls_settings({"ssl.endpoint.identification.algorithm": "none"}).checks_host


def test_a_certificate_that_is_not_checked_is_refused() -> None:
    with pytest.raises(CliError, match="always checks the brokers' certificates"):
        tls_settings({"enable.ssl.certificate.verification": "false"})


def test_what_cannot_be_read_is_one_sentence_without_the_password(certs: str) -> None:
    store = os.path.join(certs, "bob.p12")
    with pytest.raises(CliError, match="cannot be read") as refused:
        tls_settings({"ssl.keystore.location": store, "ssl.keystore.password": "guessed"})
    assert "guessed" not in refused.value.message
    with pytest.raises(CliError) as missing:
        tls_settings({"ssl.ca.location": "no-such-file"})
    assert missing.value.code is Exit.NOT_FOUND


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_logs_in_by_the_mechanism_of_the_settings(name: str) -> None:
    login = login_of(Target(properties=LOGIN | {name: "scram-sha-512"}))
    assert login is not None
    assert (login.mechanism, login.user, login.password) == ("SCRAM-SHA-512", "alice", PASSWORD)
    assert PASSWORD not in repr(login)
    assert login_of(Target(properties={"security.protocol": "SSL"})) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "does not speak sasl.mechanism=GSSAPI in the profile prod"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "does not speak sasl.mechanism=OAUTHBEARER"),
        ({"sasl.mechanism": "PLAIN", "sasl.password": ""}, "no user and password in the profile prod"),
    ],
)
def test_who_cannot_log_in_hears_why(changes: dict[str, str], said: str) -> None:
    with pytest.raises(CliError) as refused:
        login_of(Target(properties=LOGIN | changes, origin="the profile prod"))
    assert said in refused.value.message and refused.value.code is Exit.USAGE


def test_a_protocol_that_there_is_not_is_refused() -> None:
    assert protocol_of(Target()) == "plaintext"
    with pytest.raises(CliError, match=r"no security\.protocol tls"):
        protocol_of(Target(properties={"security.protocol": "TLS"}))
