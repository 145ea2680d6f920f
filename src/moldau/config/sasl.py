"""What the settings say of SASL on one listener, checked at the start: a mistake here would let people in, or lock all
of them out.

As in Kafka, a mechanism's JAAS line is `listener.name.LISTENER.MECHANISM.sasl.jaas.config`, and one without these
prefixes is no listener's. SCRAM needs none, since its users are the cluster's; PLAIN has its users in it. OAUTHBEARER
checks signed tokens where it has an address of keys. Unsigned ones, for development, it takes only where that is
written down: by Kafka's class for them, or by an option of theirs in the JAAS line. (Kafka takes them by default.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moldau.config.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas
from moldau.config.key import ConfigError
from moldau.config.listener_settings import PREFIX, settings_of

if TYPE_CHECKING:
    from moldau.config.broker import BrokerConfig

MODULES: Final = {
    "PLAIN": PLAIN_MODULE,
    "SCRAM-SHA-256": SCRAM_MODULE,
    "SCRAM-SHA-512": SCRAM_MODULE,
    "OAUTHBEARER": OAUTHBEARER_MODULE,
}
BROKER_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SIGNED = ".OAuthBearerValidatorCallbackHandler"
_UNSIGNED = ".OAuthBearerUnsecuredValidatorCallbackHandler"
_HANDLERS: Final = {
    "PLAIN": (".PlainServerCallbackHandler",),
    "SCRAM-SHA-256": (".ScramServerCallbackHandler",),
    "SCRAM-SHA-512": (".ScramServerCallbackHandler",),
    "OAUTHBEARER": (_SIGNED, _UNSIGNED),
}
HANDLER = "sasl.server.callback.handler.class"
_UNSIGNED_OPTION = "unsecuredValidator"
_USER_OPTION = "user_"
_ADDRESSES = ("https://", "http://", "file://")


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Of OAUTHBEARER."""

    keys_url: str | None
    """None: tokens are not signed."""
    refresh_ms: int
    backoff_ms: int
    backoff_ms_max: int
    audience: tuple[str, ...]
    issuer: str | None
    skew_ms: int
    name_claim: str
    scope_claim: str
    scopes: tuple[str, ...] = ()
    """That an unsigned token must have."""


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Of one listener."""

    mechanisms: tuple[str, ...]
    lines: Mapping[str, LoginModule] = field(repr=False)
    reauth_ms: Mapping[str, int]
    receive_bytes_max: int
    failure_delay_s: float
    tokens: TokenSettings | None


def sasl_settings(config: BrokerConfig, listener: str) -> SaslSettings:
    """ConfigError says what is missing, and where to put it."""
    own = settings_of(config, listener)
    mechanisms = tuple(own["sasl.enabled.mechanisms"])
    if not mechanisms:
        raise ConfigError(f"sasl.enabled.mechanisms: the listener '{listener}' needs one")
    for mechanism in mechanisms:
        if mechanism not in MODULES:
            what = "Kerberos is not served" if mechanism == "GSSAPI" else f"there is no '{mechanism}'"
            raise ConfigError(f"sasl.enabled.mechanisms: {what}; there are {', '.join(MODULES)}")
    lines: dict[str, LoginModule] = {}
    for mechanism in mechanisms:
        if (line := jaas_line(config, listener, mechanism)) is not None:
            lines[mechanism] = line
    handlers = {mechanism: _handler(config, listener, mechanism) for mechanism in mechanisms}
    if "PLAIN" in mechanisms:
        _check_plain(listener, lines)
    return SaslSettings(
        mechanisms,
        lines,
        {m: own.of_mechanism(m)["connections.max.reauth.ms"] for m in mechanisms},
        own["sasl.server.max.receive.size"],
        own["connection.failed.authentication.delay.ms"] / 1000,
        _tokens(config, listener, lines, handlers["OAUTHBEARER"]) if "OAUTHBEARER" in mechanisms else None,
    )


def jaas_key(listener: str, mechanism: str) -> str:
    return f"{PREFIX}{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"


def jaas_line(config: BrokerConfig, listener: str, mechanism: str) -> LoginModule | None:
    """None where there is none for them."""
    name = jaas_key(listener, mechanism)
    if not config.is_set(name):
        return None
    try:
        line = parse_jaas(config[name].reveal())
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None
    if line.name.rpartition(".")[2] != MODULES[mechanism].rpartition(".")[2]:
        raise ConfigError(f"{name}: the login module of {mechanism} is {MODULES[mechanism]}")
    return line


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """Who a broker is to the others."""

    mechanism: str
    user: str
    password: str = field(repr=False)


def broker_login(config: BrokerConfig) -> BrokerLogin:
    """Where the brokers' listener has SASL. ConfigError where that is not said."""
    listener = config.inter_broker_listener.name
    mechanism: str = settings_of(config, listener)["sasl.mechanism.inter.broker.protocol"]
    if mechanism not in BROKER_MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol: {mechanism} is not served between brokers; "
            f"{', '.join(BROKER_MECHANISMS)} are"
        )
    if mechanism not in settings_of(config, listener)["sasl.enabled.mechanisms"]:
        raise ConfigError(
            "requirement failed: sasl.mechanism.inter.broker.protocol must be included in "
            "sasl.enabled.mechanisms when SASL is used for inter-broker communication"
        )
    line = jaas_line(config, listener, mechanism)
    options = {} if line is None else line.options
    user, password = options.get("username", ""), options.get("password", "")
    if not user or not password:
        raise ConfigError(
            f"{jaas_key(listener, mechanism)}: who this broker is to the others is missing, like "
            f'{MODULES[mechanism]} required username="admin" password="...";'
        )
    return BrokerLogin(mechanism, user, password)


def _check_plain(listener: str, lines: Mapping[str, LoginModule]) -> None:
    line = lines.get("PLAIN")
    if line is None or not any(name.startswith(_USER_OPTION) for name in line.options):
        raise ConfigError(
            f"{jaas_key(listener, 'PLAIN')}: the users of PLAIN are missing, like "
            f'{PLAIN_MODULE} required user_alice="her password";'
        )


def _handler(config: BrokerConfig, listener: str, mechanism: str) -> str:
    """The class of Java that decides in Kafka who comes in, as far as it is one of Kafka's own, whose part is done
    here. Another one may keep people out who would come in here: ConfigError."""
    name = f"{PREFIX}{listener.lower()}.{mechanism.lower()}.{HANDLER}"
    handler: str = (config[name] if config.is_set(name) else None) or ""
    if handler and not handler.endswith(_HANDLERS[mechanism]):
        raise ConfigError(f"{name}: {handler} is a class of Java, which is not run")
    return handler


def _tokens(
    config: BrokerConfig, listener: str, lines: Mapping[str, LoginModule], handler: str
) -> TokenSettings:
    own = settings_of(config, listener).of_mechanism("OAUTHBEARER")
    url: str | None = own["sasl.oauthbearer.jwks.endpoint.url"]
    options = lines["OAUTHBEARER"].options if "OAUTHBEARER" in lines else {}
    is_unsigned = handler.endswith(_UNSIGNED) or any(n.startswith(_UNSIGNED_OPTION) for n in options)
    if is_unsigned and (url or handler.endswith(_SIGNED)):
        raise ConfigError(
            f"listener '{listener}': OAUTHBEARER is to take unsigned tokens, and has keys for signed ones as well"
        )
    if not is_unsigned and (url is None or not url.startswith(_ADDRESSES)):
        raise ConfigError(
            "sasl.oauthbearer.jwks.endpoint.url: the keys of tokens are missing: "
            "an address that begins with https://, http:// or file://"
        )
    skew_ms = own["sasl.oauthbearer.clock.skew.seconds"] * 1000
    return TokenSettings(
        keys_url=None if is_unsigned else url,
        refresh_ms=own["sasl.oauthbearer.jwks.endpoint.refresh.ms"],
        backoff_ms=own["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"],
        backoff_ms_max=own["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"],
        audience=tuple(own["sasl.oauthbearer.expected.audience"] or ()),
        issuer=own["sasl.oauthbearer.expected.issuer"],
        skew_ms=_number(options, "AllowableClockSkewMs") if is_unsigned else skew_ms,
        name_claim=_option(options, "PrincipalClaimName") or own["sasl.oauthbearer.sub.claim.name"],
        scope_claim=_option(options, "ScopeClaimName") or own["sasl.oauthbearer.scope.claim.name"],
        scopes=tuple(_option(options, "RequiredScope").split()),
    )


def _option(options: Mapping[str, str], name: str) -> str:
    return options.get(_UNSIGNED_OPTION + name, "")


def _number(options: Mapping[str, str], name: str) -> int:
    text = _option(options, name) or "0"
    if not text.isdecimal() or len(text) > 12:
        raise ConfigError(f"{_UNSIGNED_OPTION}{name} is not a number of milliseconds")
    return int(text)
