"""The keys of TLS: `ssl.*` as in Kafka, and the protocol between brokers.

Each may be set for one listener alone, as `listener.name.NAME.KEY` (`listener_settings`).
"""

from __future__ import annotations

from moldau.config.key import Check, Key, ListOf, OneOf, Type, Update

PROTOCOLS = ("TLSv1.2", "TLSv1.3")
PROTOCOLS_KNOWN = (*PROTOCOLS, "TLSv1.1", "TLSv1")
STORE_TYPES = ("JKS", "PKCS12", "PEM")


class StoreType:
    """A format of key stores, in any case as Java takes it. JKS is told how to convert it where a store is opened."""

    allowed = ", ".join(STORE_TYPES)

    def __call__(self, name: str, value: object) -> None:
        OneOf(STORE_TYPES)(name, str(value).upper())


def _key(
    name: str,
    type_: Type,
    default: str | None,
    check: Check | None,
    doc: str,
    importance: str = "medium",
    update: Update = Update.PER_BROKER,
) -> Key:
    return Key(name, type_, default, doc, check, update=update, importance=importance)


SSL = (
    _key(
        "security.inter.broker.protocol",
        Type.STRING,
        "PLAINTEXT",
        OneOf(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        "The protocol between brokers: they use the listener of this name. Set it, or `inter.broker.listener.name`.",
        update=Update.READ_ONLY,
    ),
    _key(
        "ssl.keystore.location",
        Type.STRING,
        None,
        None,
        "The file with the broker's private key and certificates.",
    ),
    _key(
        "ssl.keystore.type",
        Type.STRING,
        "JKS",
        StoreType(),
        "PEM or PKCS12. The default is Kafka's, and such a file is refused with the line that converts it.",
    ),
    _key(
        "ssl.keystore.password",
        Type.PASSWORD,
        None,
        None,
        "The password of a PKCS12 key store.",
    ),
    _key(
        "ssl.key.password",
        Type.PASSWORD,
        None,
        None,
        "The password of an encrypted private key in PEM.",
    ),
    _key(
        "ssl.keystore.key",
        Type.PASSWORD,
        None,
        None,
        "The private key itself, as PEM in PKCS#8, instead of a file.",
    ),
    _key(
        "ssl.keystore.certificate.chain",
        Type.PASSWORD,
        None,
        None,
        "The certificates themselves, as PEM, the broker's first.",
    ),
    _key(
        "ssl.truststore.location",
        Type.STRING,
        None,
        None,
        "The file with the certificates of the authorities that sign those of clients and other brokers.",
    ),
    _key(
        "ssl.truststore.type",
        Type.STRING,
        "JKS",
        StoreType(),
        "PEM or PKCS12, as `ssl.keystore.type`.",
    ),
    _key(
        "ssl.truststore.password",
        Type.PASSWORD,
        None,
        None,
        "The password of a PKCS12 trust store.",
    ),
    _key(
        "ssl.truststore.certificates",
        Type.PASSWORD,
        None,
        None,
        "The authorities' certificates themselves, as PEM, instead of a file.",
    ),
    _key(
        "ssl.client.auth",
        Type.STRING,
        "none",
        OneOf(("required", "requested", "none")),
        "Whether clients show a certificate: `required`, `requested` (whoever has none is User:ANONYMOUS), `none`.",
    ),
    _key(
        "ssl.enabled.protocols",
        Type.LIST,
        ",".join(PROTOCOLS),
        ListOf(PROTOCOLS_KNOWN, empty_allowed=False),
        "The versions of TLS that may be spoken. Older ones than TLSv1.2 never are.",
    ),
    _key(
        "ssl.protocol",
        Type.STRING,
        "TLSv1.3",
        None,
        "The newest version of TLS that may be spoken, of those in `ssl.enabled.protocols`.",
    ),
    _key(
        "ssl.cipher.suites",
        Type.LIST,
        "",
        None,
        "The cipher suites that may be used, by the names that Java and Kafka have for them; empty: those that are "
        "good today.",
    ),
    _key(
        "ssl.endpoint.identification.algorithm",
        Type.STRING,
        "https",
        None,
        "Whether a broker that connects to another looks for its host name in the certificate: `https`, or empty.",
        importance="low",
    ),
    _key(
        "ssl.principal.mapping.rules",
        Type.STRING,
        "DEFAULT",
        None,
        "How a client's name is made from its certificate's: `RULE:pattern/replacement/[LU]`, ..., or DEFAULT, the "
        "whole distinguished name. The first rule that matches counts.",
        importance="low",
        update=Update.READ_ONLY,
    ),
    _key(
        "ssl.allow.dn.changes",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a new certificate may have another distinguished name than the one before it.",
        importance="low",
        update=Update.READ_ONLY,
    ),
    _key(
        "ssl.allow.san.changes",
        Type.BOOLEAN,
        "false",
        None,
        "Whether a new certificate may lack a host name that the one before it had.",
        importance="low",
        update=Update.READ_ONLY,
    ),
)

STORE_KEYS = frozenset(
    key.name for key in SSL if key.name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key."))
)

HTTP_PREFIX = "moldau.http."


def _http_key(name: str, doc: str, default: str | None = None) -> Key:
    key = next(key for key in SSL if key.name == name)
    return key._replace(name=HTTP_PREFIX + name, doc=doc, default=default, update=Update.READ_ONLY)


HTTP_SSL = (
    _http_key(
        "ssl.keystore.location",
        "The file with private key and certificates of /metrics and /health, PEM or PKCS12. Set, they are served by "
        "HTTPS alone.",
    ),
    _http_key("ssl.keystore.password", "The password of that key store, where it is PKCS12."),
    _http_key("ssl.key.password", "The password of an encrypted private key in it, where it is PEM."),
    _http_key(
        "ssl.truststore.location",
        "The file with the authorities' certificates for `moldau.http.ssl.client.auth`.",
    ),
    _http_key("ssl.truststore.password", "The password of that trust store, where it is PKCS12."),
    _http_key("ssl.client.auth", "Whether who asks for /metrics and /health shows a certificate.", "none"),
)
