"""How a client proves who it is, and whom it trusts, in the words of each client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
MECHANISMS = tuple(LOGIN_MODULES)
TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@dataclass(frozen=True)
class Security:
    """What a client is given. `user` and `password` are the client's id and secret where it gets tokens."""

    protocol: str = "PLAINTEXT"
    ca: Path | None = None
    certificate: Path | None = None
    """The client's own chain; its key is beside it, `both` has one after the other."""
    key: Path | None = None
    both: Path | None = None
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    token_address: str = ""
    """Where a client gets its token."""
    token: str = ""
    """The same, for clients that want to be given one."""

    def librdkafka(self) -> dict[str, str]:
        if self.protocol == "PLAINTEXT":
            return {}
        settings = {"security.protocol": self.protocol}
        if self.ca is not None:
            settings["ssl.ca.location"] = str(self.ca)
        if self.certificate is not None:
            settings["ssl.certificate.location"] = str(self.certificate)
            settings["ssl.key.location"] = str(self.key)
        if self.mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": self.user,
                "sasl.oauthbearer.client.secret": self.password,
                "sasl.oauthbearer.token.endpoint.url": self.token_address,
            }
        elif self.mechanism is not None:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return settings

    def java(self) -> dict[str, str]:
        if self.protocol == "PLAINTEXT":
            return {}
        settings = {"security.protocol": self.protocol}
        if self.ca is not None:
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.ca)}
        if self.both is not None:
            settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.both)}
        if self.mechanism is not None:
            is_token = self.mechanism == "OAUTHBEARER"
            names = ("clientId", "clientSecret") if is_token else ("username", "password")
            options = f'{names[0]}="{self.user}" {names[1]}="{self.password}"'
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.jaas.config": f"{LOGIN_MODULES[self.mechanism]} required {options};",
            }
            if is_token:
                settings |= {
                    "sasl.login.callback.handler.class": TOKEN_HANDLER,
                    "sasl.oauthbearer.token.endpoint.url": self.token_address,
                }
        return settings

    def java_flags(self) -> list[str]:
        """Of the JVM: where tokens may come from."""
        if not self.token_address:
            return []
        return [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.token_address}"]

    def kafka_python(self) -> dict[str, Any]:
        if self.protocol == "PLAINTEXT":
            return {}
        settings: dict[str, Any] = {"security_protocol": self.protocol, **self._sasl()}
        if self.ca is not None:
            settings["ssl_cafile"] = str(self.ca)
        if self.certificate is not None:
            settings |= {"ssl_certfile": str(self.certificate), "ssl_keyfile": str(self.key)}
        if self.mechanism == "OAUTHBEARER":
            from kafka.net.sasl.oauth import AbstractTokenProvider

            class Provider(AbstractTokenProvider):  # type: ignore[misc]
                def token(_self) -> str:
                    return self.token

            settings["sasl_oauth_token_provider"] = Provider()
        return settings

    def aiokafka(self) -> dict[str, Any]:
        if self.protocol == "PLAINTEXT":
            return {}
        settings: dict[str, Any] = {"security_protocol": self.protocol, **self._sasl()}
        if self.ca is not None:
            context = ssl.create_default_context(cafile=str(self.ca))
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
            settings["ssl_context"] = context
        if self.mechanism == "OAUTHBEARER":
            from aiokafka.abc import AbstractTokenProvider

            class Provider(AbstractTokenProvider):  # type: ignore[misc]
                async def token(_self) -> str:
                    return self.token

            settings["sasl_oauth_token_provider"] = Provider()
        return settings

    def _sasl(self) -> dict[str, str]:
        """What both clients in Python call it."""
        if self.mechanism is None:
            return {}
        settings = {"sasl_mechanism": self.mechanism}
        if self.mechanism != "OAUTHBEARER":
            settings |= {"sasl_plain_username": self.user, "sasl_plain_password": self.password}
        return settings


OPEN = Security()
