"""The broker keys of SASL: who clients are (`config.sasl` puts them together for a listener).

All are read when the broker starts: Kafka changes some of them while it runs, and would keep the passwords of
`sasl.jaas.config` in the cluster's metadata for that.
"""

from __future__ import annotations

from typing import Any

from moldau.config.key import Check, Key, Range, Type


def _key(name: str, type_: Type, default: str | None, check: Check | None, doc: str, **more: Any) -> Key:
    return Key(name, type_, default, doc, check, **more)


SASL = (
    _key(
        "sasl.enabled.mechanisms",
        Type.LIST,
        "GSSAPI",
        None,
        "How clients may say who they are, on listeners with SASL: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. "
        "Kafka's default, GSSAPI, is not served: set it.",
    ),
    _key(
        "sasl.jaas.config",
        Type.PASSWORD,
        None,
        None,
        "A line of JAAS. Each listener and mechanism has its own: "
        "`listener.name.LISTENER.MECHANISM.sasl.jaas.config`, in lower case.",
    ),
    _key(
        "sasl.mechanism.inter.broker.protocol",
        Type.STRING,
        "GSSAPI",
        None,
        "How brokers say to each other who they are, where their listener has SASL: PLAIN, SCRAM-SHA-256 or "
        "SCRAM-SHA-512, with the name and password of the listener's JAAS line.",
    ),
    _key(
        "sasl.server.max.receive.size",
        Type.INT,
        "524288",
        Range(8),
        "The largest request of a client that has not said who it is.",
    ),
    _key(
        "connections.max.reauth.ms",
        Type.LONG,
        "0",
        None,
        "How long a client may go on before it has to say again who it is (KIP-368); 0: for ever.",
    ),
    _key(
        "connection.failed.authentication.delay.ms",
        Type.INT,
        "100",
        Range(0),
        "How long a client waits for the answer that it is not who it says, before its connection is closed. It "
        "grows for an address from which many fail.",
        importance="low",
    ),
    _key(
        "sasl.server.callback.handler.class",
        Type.CLASS,
        None,
        None,
        "With the prefixes of a listener and a mechanism: one of Kafka's own classes. Of OAUTHBEARER that is the one "
        "which checks signed tokens, or the one that takes unsigned ones. Others are refused.",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.url",
        Type.STRING,
        None,
        None,
        "Where the keys are that tokens are signed with: `https://`, `http://` or `file://`.",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        Type.LONG,
        "3600000",
        Range(1),
        "How often these keys are fetched anew.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        Type.LONG,
        "100",
        Range(1),
        "The first pause after they could not be fetched.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Type.LONG,
        "10000",
        Range(1),
        "The longest such pause.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.expected.audience",
        Type.LIST,
        "",
        None,
        "Whom tokens are to be for: one of these. Without it, tokens that name an audience are refused.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.expected.issuer",
        Type.STRING,
        None,
        None,
        "Who is to have issued a token; any, where it is not set.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.clock.skew.seconds",
        Type.INT,
        "30",
        Range(0),
        "By how much the clocks of the issuer and the broker may differ.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.sub.claim.name",
        Type.STRING,
        "sub",
        None,
        "The claim that has the user's name.",
        importance="low",
    ),
    _key(
        "sasl.oauthbearer.scope.claim.name",
        Type.STRING,
        "scope",
        None,
        "The claim that has the scopes.",
        importance="low",
    ),
)
