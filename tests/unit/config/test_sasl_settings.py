"""What the settings say of SASL: mistakes are refused at the start, and nothing is taken on trust."""

from __future__ import annotations

import pytest

from moldau.config.broker import BrokerConfig
from moldau.config.key import ConfigError
from moldau.config.sasl import broker_login

PLAIN = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="p" user_a="p";'
)
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="p";'
TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer"
LISTENERS = {
    "listeners": "CLIENTS://:9092,BROKERS://:9093",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


def parsed(**settings: str) -> BrokerConfig:
    return BrokerConfig.parse(
        LISTENERS | {name.replace("__", "."): value for name, value in settings.items()}
    )


def jaas(mechanism: str, line: str) -> dict[str, str]:
    return {f"listener.name.clients.{mechanism}.sasl.jaas.config": line}


def handler(mechanism: str, name: str) -> dict[str, str]:
    return {f"listener.name.clients.{mechanism}.sasl.server.callback.handler.class": name}


def refusal(mechanisms: str, more: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.parse(LISTENERS | {"sasl.enabled.mechanisms": mechanisms} | (more or {}))
    assert "secret" not in str(refused.value)
    return str(refused.value)


def test_kafkas_default_is_kerberos_which_is_said_not_to_be_served() -> None:
    with pytest.raises(ConfigError, match="Kerberos is not served; there are PLAIN, SCRAM-SHA-256"):
        parsed()


def test_a_mechanism_that_is_not_known_is_refused() -> None:
    assert "there is no 'CRAM-MD5'" in refusal("CRAM-MD5")
    assert "needs one" in refusal("")


def test_plain_needs_users() -> None:
    assert "the users of PLAIN are missing" in refusal("PLAIN")
    none = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="secret";'
    assert "the users of PLAIN are missing" in refusal("PLAIN", jaas("plain", none))


def test_a_line_without_the_mechanisms_prefix_is_no_listeners() -> None:
    """As in Kafka, so that users are not let in on listeners that they were not meant for."""
    for name in ("sasl.jaas.config", "listener.name.clients.sasl.jaas.config"):
        assert "the users of PLAIN are missing" in refusal("PLAIN", {name: PLAIN})


def test_a_line_of_another_module_is_refused() -> None:
    assert "the login module of PLAIN is" in refusal("PLAIN", jaas("plain", SCRAM))
    assert "Krb5" not in refusal(
        "PLAIN", jaas("plain", "com.sun.security.auth.module.Krb5LoginModule required;")
    )


def test_scram_needs_no_line() -> None:
    assert parsed(sasl__enabled__mechanisms="SCRAM-SHA-512").sasl["CLIENTS"].mechanisms == ("SCRAM-SHA-512",)


def test_listeners_and_mechanisms_have_settings_of_their_own() -> None:
    config = parsed(
        sasl__enabled__mechanisms="PLAIN",
        connections__max__reauth__ms="1000",
        listener__name__clients__sasl__enabled__mechanisms="SCRAM-SHA-256,SCRAM-SHA-512",
        **{"listener.name.clients.scram-sha-256.connections.max.reauth.ms": "2000"},
    )
    assert config.sasl["CLIENTS"].mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert config.sasl["CLIENTS"].reauth_ms == {"SCRAM-SHA-256": 2000, "SCRAM-SHA-512": 1000}


def test_tokens_need_keys_or_the_word_that_they_are_not_signed() -> None:
    assert "the keys of tokens are missing" in refusal("OAUTHBEARER")
    url = "sasl.oauthbearer.jwks.endpoint.url"
    assert "the keys of tokens are missing" in refusal("OAUTHBEARER", {url: "ftp://x/keys"})
    assert "the keys of tokens are missing" in refusal("OAUTHBEARER", jaas("oauthbearer", f"{TOKENS};"))
    signed = parsed(sasl__enabled__mechanisms="OAUTHBEARER", **{url: "https://x/keys"}).sasl["CLIENTS"].tokens
    assert signed is not None and signed.keys_url == "https://x/keys"


@pytest.mark.parametrize(
    "asked",
    [
        jaas("oauthbearer", f'{TOKENS} unsecuredValidatorAllowableClockSkewMs="3000";'),
        handler("oauthbearer", f"{HANDLER}.OAuthBearerUnsecuredValidatorCallbackHandler"),
    ],
)
def test_unsigned_tokens_are_taken_where_that_is_written_down(asked: dict[str, str]) -> None:
    tokens = parsed(sasl__enabled__mechanisms="OAUTHBEARER", **asked).sasl["CLIENTS"].tokens
    assert tokens is not None and tokens.keys_url is None
    both = asked | {"sasl.oauthbearer.jwks.endpoint.url": "https://x/keys"}
    assert "and has keys for signed ones as well" in refusal("OAUTHBEARER", both)


def test_a_class_of_ones_own_cannot_be_run() -> None:
    """It may keep people out: so nobody is let in without it, by whichever mechanism."""
    for mechanism in ("OAUTHBEARER", "SCRAM-SHA-512", "PLAIN"):
        own = handler(mechanism.lower(), "com.example.Handler") | jaas("plain", PLAIN)
        assert "a class of Java, which is not run" in refusal(mechanism, own)
    signed = handler("oauthbearer", f"{HANDLER}.OAuthBearerValidatorCallbackHandler")
    url = {"sasl.oauthbearer.jwks.endpoint.url": "https://x/keys"}
    assert parsed(sasl__enabled__mechanisms="OAUTHBEARER", **signed, **url).sasl


def test_a_class_without_the_mechanisms_prefix_is_no_listeners() -> None:
    unsigned = {
        "sasl.server.callback.handler.class": f"{HANDLER}.OAuthBearerUnsecuredValidatorCallbackHandler"
    }
    assert "the keys of tokens are missing" in refusal("OAUTHBEARER", unsigned)


BROKERS = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
}


def test_brokers_say_to_each_other_who_they_are() -> None:
    login = broker_login(BrokerConfig.parse(BROKERS | {"sasl.mechanism.inter.broker.protocol": "PLAIN"}))
    assert (login.mechanism, login.user) == ("PLAIN", "a")
    assert "p" not in repr(login).replace("BrokerLogin(mechanism='PLAIN', user='a')", "")


@pytest.mark.parametrize(
    ("mechanism", "what"),
    [
        ("GSSAPI", "GSSAPI is not served between brokers"),
        ("SCRAM-SHA-512", "must be included in sasl.enabled.mechanisms"),
        ("SCRAM-SHA-256", "who this broker is to the others is missing"),
    ],
)
def test_where_that_is_not_said_the_start_is_refused(mechanism: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        BrokerConfig.parse(BROKERS | {"sasl.mechanism.inter.broker.protocol": mechanism})
