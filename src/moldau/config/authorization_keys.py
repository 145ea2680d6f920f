"""The keys of the authorizer: whether ACLs are asked, and who needs none.

`super.users` and `allow.everyone.if.no.acl.found` belong to Kafka's authorizer and not to its broker, which tells them
only where they are set.
"""

from __future__ import annotations

from typing import Any

from moldau.config.key import ConfigError, Key, Type, Update

AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""What `authorizer.class.name` may say; the second is what it was called before KRaft."""


class _AnAuthorizer:
    """One that Moldau has: what another would decide is not known here."""

    allowed = ", ".join(f"`{name}`" for name in ("", *AUTHORIZERS) if name)

    def __call__(self, name: str, value: Any) -> None:
        given = value.strip()
        if given and given not in AUTHORIZERS:
            raise ConfigError(
                f"{name}: {given} is none of Moldau's; it has what Kafka calls {AUTHORIZERS[0]}"
            )


PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"


class _ThePrincipalBuilder:
    """Another one would give clients other names, and so other rights."""

    allowed = f"`{PRINCIPAL_BUILDER}`"

    def __call__(self, name: str, value: Any) -> None:
        if value is not None and value.strip() != PRINCIPAL_BUILDER:
            raise ConfigError(
                f"{name}: {value} is none of Moldau's; it has what Kafka calls {PRINCIPAL_BUILDER}"
            )


class _Principals:
    """Kafka's SecurityUtils.parseKafkaPrincipal."""

    allowed = "`User:NAME;User:NAME`"

    def __call__(self, name: str, value: Any) -> None:
        for principal in principals(value):
            type_, _, of_type = principal.partition(":")
            if not type_ or not of_type:
                raise ConfigError(
                    f"{name}: expected a string in format principalType:principalName but got {principal}"
                )


def principals(text: str) -> list[str]:
    """Those of `super.users`, which semicolons part: the name in a certificate has commas."""
    return [one.strip() for one in text.split(";") if one.strip()]


AUTHORIZATION = (
    Key(
        "authorizer.class.name",
        Type.STRING,
        "",
        "With an authorizer, what the cluster's ACLs do not allow is denied. Without it everyone may do anything.",
        _AnAuthorizer(),
        importance="low",
    ),
    Key(
        "principal.builder.class",
        Type.CLASS,
        PRINCIPAL_BUILDER,
        "How clients get their names: from a certificate by `ssl.principal.mapping.rules`, or as they log in.",
        _ThePrincipalBuilder(),
        update=Update.PER_BROKER,
        importance="low",
    ),
    Key(
        "super.users",
        Type.STRING,
        "",
        "Who may do everything without an ACL, parted by semicolons. The brokers' own principal must be one of them.",
        _Principals(),
        told_if_set=True,
    ),
    Key(
        "allow.everyone.if.no.acl.found",
        Type.BOOLEAN,
        "false",
        "Whether everyone may do what they like to a resource that no ACL is for.",
        told_if_set=True,
    ),
)
