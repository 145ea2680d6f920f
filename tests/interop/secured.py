"""A broker with a listener for each security protocol, Moldau's or Apache Kafka's by one and the same configuration.

Certificates are made for the run; tokens are signed with a key whose public half the broker reads from a file, and
handed out by a small HTTP server, as an identity provider does.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.apache_kafka import KafkaServer
from bench.server import HOST, MoldauServer
from interop.clients.security import LOGIN_MODULES, MECHANISMS, Security
from moldau.runtime.real.free_ports import free_port
from moldau.security.certificates import (
    SERIAL_BYTES,
    KeyKind,
    Pair,
    Role,
    certificate_pem,
    issue,
    key_pem,
    new_authority,
    new_key,
    serial_of,
    store_pem,
)

USER, PASSWORD = "alice", "alice-secret"
AUDIENCE, ISSUER = "moldau", "the-tests"
KEY_ID = "one"
LISTENERS = {
    "OPEN": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
TOKEN_LIFE_S = 3600


class Papers:
    """Certificates and keys in a folder, and who signs tokens."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = new_authority("authority of the tests", new_key(KeyKind.ECDSA), _now(), _serial())
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(certificate_pem(self.authority.certificate))
        self.broker = self.write("broker", self.sign(Role.BROKER, "broker", hosts=(HOST, "localhost")))
        self.client = self.write("client", self.sign(Role.CLIENT, USER))
        self._token_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.jwks = folder / "jwks.json"
        public: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self._token_key.public_key()))
        self.jwks.write_text(json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig", "alg": "RS256"}]}))

    def sign(self, role: Role, name: str, *, hosts: Sequence[str] = (), days: int = 30) -> Pair:
        return issue(
            self.authority, role, name, new_key(KeyKind.ECDSA), _now(), _serial(), hosts=hosts, days=days
        )

    def write(self, name: str, pair: Pair) -> Path:
        """The key with its chain, and each of them alone; returns the path of the first."""
        self.certificate_of(name).write_bytes(
            certificate_pem(pair.certificate) + certificate_pem(self.authority.certificate)
        )
        self.key_of(name).write_bytes(key_pem(pair.key))
        both = self.folder / f"{name}.pem"
        both.write_bytes(store_pem(pair, self.authority.certificate))
        return both

    def certificate_of(self, name: str) -> Path:
        return self.folder / f"{name}.crt"

    def key_of(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def token(self, user: str = USER, **claims: object) -> str:
        now = int(time.time())
        usual = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + TOKEN_LIFE_S}
        key = self._token_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return jwt.encode({**usual, **claims}, key, "RS256", headers={"kid": KEY_ID})


class TokenServer:
    """Gives whoever asks a token for alice: what an identity provider's token endpoint does, as far as clients see."""

    def __init__(self, papers: Papers) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                answer = {"access_token": papers.token(), "token_type": "Bearer", "expires_in": TOKEN_LIFE_S}
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self._server.server_address[1]}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass(frozen=True)
class Doors:
    """The ports of the listeners, and the broker's settings for them."""

    papers: Papers
    ports: Mapping[str, int]

    @classmethod
    def of(cls, papers: Papers, open_port: int) -> Doors:
        return cls(papers, {name: open_port if name == "OPEN" else free_port() for name in LISTENERS})

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def settings(self) -> dict[str, object]:
        listeners = [f"{name}://{self.address(name)}" for name in LISTENERS]
        protocols = [f"{name}:{protocol}" for name, protocol in LISTENERS.items()]
        settings: dict[str, object] = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": ",".join(protocols),
            "inter.broker.listener.name": "OPEN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.papers.broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.papers.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{self.papers.jwks}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            for mechanism, module in LOGIN_MODULES.items():
                options = f' user_{USER}="{PASSWORD}"' if mechanism == "PLAIN" else ""
                prefix = f"listener.name.{name}.{mechanism.lower()}"
                settings[f"{prefix}.sasl.jaas.config"] = f"{module} required{options};"
            settings[f"listener.name.{name}.oauthbearer.sasl.server.callback.handler.class"] = VALIDATOR
        return settings

    def security(
        self, listener: str, mechanism: str | None = None, tokens: TokenServer | None = None
    ) -> Security:
        """What a client of this listener is given."""
        protocol = LISTENERS[listener]
        has_tls, is_mutual = protocol.endswith("SSL"), listener == "MUTUAL"
        is_token = mechanism == "OAUTHBEARER"
        return Security(
            protocol,
            ca=self.papers.ca if has_tls else None,
            certificate=self.papers.certificate_of("client") if is_mutual else None,
            key=self.papers.key_of("client") if is_mutual else None,
            both=self.papers.client if is_mutual else None,
            mechanism=mechanism,
            user=USER,
            password=PASSWORD,
            token_address=tokens.address if is_token and tokens is not None else "",
            token=self.papers.token() if is_token else "",
        )


class SecuredMoldau(MoldauServer):
    def __init__(self, folder: Path, papers: Papers) -> None:
        super().__init__(folder)
        self.doors = Doors.of(papers, self.port)

    def command(self) -> Sequence[str]:
        config = self.folder / "server.properties"
        config.write_text(_properties({**_ONE_BROKER, "log.dirs": self.data, **self.doors.settings()}))
        return [super().command()[0], "broker", "--config", str(config)]


class SecuredKafka(KafkaServer):
    def __init__(self, folder: Path, papers: Papers) -> None:
        super().__init__(folder)
        self.doors = Doors.of(papers, self.port)

    def command(self) -> Sequence[str]:
        first, *rest = super().command()
        return [
            first,
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{self.doors.papers.jwks}",
            *rest,
        ]

    def _node_settings(self) -> dict[str, object]:
        settings = super()._node_settings()
        controller = settings["controller.quorum.bootstrap.servers"]
        ours = self.doors.settings()
        ours["listeners"] = f"{ours['listeners']},CONTROLLER://{controller}"
        ours["listener.security.protocol.map"] = (
            f"{ours['listener.security.protocol.map']},CONTROLLER:PLAINTEXT"
        )
        return {**settings, **ours}


SecuredServer = SecuredMoldau | SecuredKafka

_ONE_BROKER: dict[str, object] = {
    "node.id": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
}


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _now() -> datetime:
    return datetime.now(UTC)


def _serial() -> int:
    return serial_of(secrets.token_bytes(SERIAL_BYTES))
