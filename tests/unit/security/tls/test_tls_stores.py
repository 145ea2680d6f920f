"""Key and trust stores: where they may be, in which form, and what is refused with which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from certificates import CLIENT, HERE, Authority, Issued
from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.listener_settings import ListenerSettings, settings_of
from moldau.runtime.tls import ClientAuth
from moldau.security.tls.settings import sides_of
from moldau.security.tls.stores import key_store, trust_store

SECRET = "open sesame"
LISTENERS = {"listeners": "SSL://:0"}


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.issue("CN=broker,O=Acme")


def settings(**given: str) -> ListenerSettings:
    return settings_of(BrokerConfig.parse({**LISTENERS, **given}), "SSL")


def files(**data: bytes) -> Callable[[str], bytes]:
    def read(path: str) -> bytes:
        if path not in data:
            raise FileNotFoundError(2, "No such file or directory", path)
        return data[path]

    return read


def nothing(path: str) -> bytes:
    raise AssertionError(f"{path} is read")


def keys(location: str, **more: str) -> dict[str, str]:
    return {"ssl.keystore.location": location, **more}


def one_line(pem: bytes) -> str:
    return pem.decode().replace("\n", " ")


def test_a_pem_file_has_key_and_chain_in_any_order(authority: Authority, issued: Issued) -> None:
    for data in (issued.pem + authority.pem, issued.chain_pem + authority.pem + issued.key_pem):
        store = key_store(settings(**keys("own")), files(own=data))
        assert store is not None
        assert store.chain_pem.count(b"BEGIN CERTIFICATE") == 2
        assert store.key_pem == issued.key_pem
        assert store.own.subject == "CN=broker,O=Acme"
        assert store.own.hosts == set(HERE)
        assert "BEGIN PRIVATE" not in repr(store)


def test_keys_and_certificates_may_stand_in_the_settings_themselves(
    authority: Authority, issued: Issued
) -> None:
    given = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": one_line(issued.key_pem),
        "ssl.keystore.certificate.chain": one_line(issued.chain_pem + authority.pem),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": one_line(authority.pem),
    }
    store = key_store(settings(**given), nothing)
    assert store is not None
    assert (store.key_pem, store.chain_pem.count(b"BEGIN")) == (issued.key_pem, 2)
    assert trust_store(settings(**given), nothing) == authority.pem


def test_an_encrypted_key_is_opened_by_its_password(issued: Issued) -> None:
    data = issued.encrypted_key_pem(SECRET) + issued.chain_pem
    store = key_store(settings(**keys("own"), **{"ssl.key.password": SECRET}), files(own=data))
    assert store is not None
    assert store.key_pem == issued.key_pem


@pytest.mark.parametrize("type_", [{}, {"ssl.keystore.type": "PKCS12"}, {"ssl.keystore.type": "jks"}])
def test_pkcs12_is_read_whatever_java_calls_it(
    authority: Authority, issued: Issued, type_: Mapping[str, str]
) -> None:
    data = issued.pkcs12(SECRET, [authority.certificate])
    store = key_store(settings(**keys("own"), **type_, **{"ssl.keystore.password": SECRET}), files(own=data))
    assert store is not None
    assert store.key_pem == issued.key_pem
    assert store.chain_pem == issued.chain_pem + authority.pem


def test_a_pkcs12_trust_store_is_read(authority: Authority, issued: Issued) -> None:
    data = issued.pkcs12(SECRET, [authority.certificate])
    given = {"ssl.truststore.location": "trust", "ssl.truststore.password": SECRET}
    assert trust_store(settings(**given), files(trust=data)) == authority.pem


def test_a_jks_store_is_refused_with_the_line_that_converts_it() -> None:
    line = "keytool -importkeystore -srckeystore own.jks -destkeystore own.p12 -deststoretype PKCS12"
    with pytest.raises(ConfigError, match=line):
        key_store(settings(**keys("own.jks")), lambda path: b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        trust_store(settings(**{"ssl.truststore.location": "t"}), lambda path: b"\xfe\xed\xfe\xed\0\0\0\2")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "set ssl.keystore.location"),
        (keys("missing"), "missing cannot be read: No such file"),
        (keys("empty"), "cannot be read as PKCS12: no password is set"),
        (keys("p12", **{"ssl.keystore.password": "wrong"}), "the password is wrong, or it is damaged"),
        (keys("p12", **{"ssl.keystore.type": "PEM"}), "ssl.keystore.type is PEM, and p12 is not PEM"),
        (keys("own", **{"ssl.keystore.type": "PKCS12"}), "ssl.keystore.type is PKCS12, and own is PEM"),
        (keys("locked"), "the private key is encrypted, and ssl.key.password is not set"),
        (keys("locked", **{"ssl.key.password": "wrong"}), "the password is wrong, or it is damaged"),
        (keys("damaged"), "the private key cannot be read: it is damaged"),
        (keys("trusted"), "has no private key"),
        (keys("key"), "has no certificates"),
        ({"ssl.keystore.certificate.chain": "x"}, "private key is not specified"),
        ({"ssl.keystore.key": "x"}, "certificate chain is not specified"),
        (
            keys("own", **{"ssl.keystore.key": "x", "ssl.keystore.certificate.chain": "x"}),
            "Both SSL key store",
        ),
        (keys("own", **{"ssl.client.auth": "required"}), "whose certificates are good"),
        (keys("own", **{"ssl.client.auth": "requested"}), "whose certificates are good"),
        (keys("own", **{"ssl.truststore.location": "key"}), "key has no certificates in PEM"),
        (keys("own", **{"ssl.protocol": "SSL"}), "ssl.protocol: SSL is no version of TLS"),
        (keys("own", **{"ssl.enabled.protocols": "TLSv1.1,TLSv1"}), "neither TLSv1.2 nor TLSv1.3 is left"),
        (keys("own", **{"ssl.cipher.suites": "SSL_RSA_WITH_RC4_128_MD5"}), "not known, or not safe: SSL_RSA"),
        (
            keys(
                "own",
                **{"ssl.enabled.protocols": "TLSv1.3", "ssl.cipher.suites": "TLS_RSA_WITH_AES_128_CBC_SHA"},
            ),
            "no version in ssl.enabled.protocols has a suite",
        ),
    ],
)
def test_what_cannot_serve_is_refused_and_nothing_of_it_told(
    authority: Authority, issued: Issued, given: dict[str, str], words: str
) -> None:
    read = files(
        own=issued.pem,
        empty=b"",
        p12=issued.pkcs12(SECRET),
        locked=issued.encrypted_key_pem(SECRET) + issued.chain_pem,
        damaged=issued.chain_pem + b"-----BEGIN PRIVATE KEY-----\nc2VzYW1l\n-----END PRIVATE KEY-----\n",
        trusted=authority.pem,
        key=issued.key_pem,
    )
    with pytest.raises(ConfigError) as refused:
        sides_of(settings(**given), read)
    assert words in str(refused.value)
    assert "wrong'" not in str(refused.value)
    assert "c2VzYW1l" not in str(refused.value)


def test_a_listener_and_its_broker_go_by_the_same_settings(authority: Authority, issued: Issued) -> None:
    given = keys(
        "own",
        **{
            "ssl.truststore.location": "trust",
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.enabled.protocols": "TLSv1.3,TLSv1.2,TLSv1.1",
            "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ssl.endpoint.identification.algorithm": "",
        },
    )
    sides = sides_of(settings(**given), files(own=issued.pem, trust=authority.pem))
    assert sides.server.is_server
    assert not sides.client.is_server
    assert sides.server.client_auth is ClientAuth.REQUIRED
    for side in (sides.server, sides.client):
        assert side.versions == ("TLSv1.2", "TLSv1.3")
        assert side.ciphers == ("ECDHE-RSA-AES128-GCM-SHA256",)
        assert side.suites == ("TLS_AES_256_GCM_SHA384",)
        assert not side.checks_host
        assert side.trusted_pem == authority.pem
        assert "PRIVATE" not in repr(side)


def test_a_version_that_no_suite_is_for_is_not_spoken(issued: Issued) -> None:
    given = keys("own", **{"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"})
    assert sides_of(settings(**given), files(own=issued.pem)).server.versions == ("TLSv1.2",)


def test_ssl_protocol_is_the_newest_version(issued: Issued) -> None:
    for newest, versions in (
        ("TLSv1.2", ("TLSv1.2",)),
        ("TLSv1.3", ("TLSv1.2", "TLSv1.3")),
        ("TLS", ("TLSv1.2", "TLSv1.3")),
    ):
        given = keys("own", **{"ssl.protocol": newest})
        assert sides_of(settings(**given), files(own=issued.pem)).server.versions == versions


def test_a_certificate_without_host_names_has_none(authority: Authority) -> None:
    issued = authority.issue("CN=client", hosts=(), usages=(CLIENT,))
    store = key_store(settings(**keys("own")), files(own=issued.pem))
    assert store is not None
    assert store.own.hosts == frozenset()


def test_with_sasl_a_certificate_is_asked_for_where_that_is_said_for_the_listener(
    authority: Authority, issued: Issued
) -> None:
    trusting = {"ssl.truststore.location": "trust"}
    for key, auth in (
        ("ssl.client.auth", ClientAuth.NONE),
        ("listener.name.ssl.ssl.client.auth", ClientAuth.REQUIRED),
    ):
        given = settings(**keys("own"), **trusting, **{key: "required"})
        sides = sides_of(given, files(own=issued.pem, trust=authority.pem), is_sasl=True)
        assert sides.server.client_auth is auth
