"""A broker with SASL, and whoever hands out tokens for it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from bench.server import MoldauServer
from interop.clients.security import LOGIN_MODULES, Security
from moldau.runtime.real.free_ports import free_port

USER, PASSWORD = "alice", "alice's secret, = ; // and more"
AUDIENCE, ISSUER = "brokers", "https://issuer.example"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Tokens:
    """An issuer: its keys, and an address that gives a token to whoever asks (RFC 6749, client credentials)."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        public: dict[str, Any] = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        self.jwks = {"keys": [public | {"kid": "one", "use": "sig", "alg": "RS256"}]}
        self.address = ""

    def token(self, lifetime_s: float = 600, algorithm: str = "RS256", **claims: Any) -> str:
        now_s = int(time.time())
        said = {"sub": USER, "iat": now_s, "exp": now_s + lifetime_s, "iss": ISSUER, "aud": AUDIENCE} | claims
        given = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(given, self.key, algorithm=algorithm, headers={"kid": "one"})

    @contextmanager
    def served(self) -> Iterator[None]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(issuer.jwks)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                token = issuer.token()
                self._answer(
                    {"access_token": token, "token_type": "Bearer", "expires_in": 600, "scope": "all"}
                )

            def _answer(self, document: object) -> None:
                body = json.dumps(document).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{server.server_port}/token"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class SaslBroker(MoldauServer):
    """`moldau broker` with a file of settings, and a SCRAM user from before its first start."""

    mechanisms: ClassVar[Sequence[str]] = MECHANISMS

    def __init__(self, folder: Path, tokens: Tokens, **settings: str) -> None:
        super().__init__(folder)
        jwks = folder / "jwks.json"
        jwks.write_text(json.dumps(tokens.jwks))
        self.tokens = tokens
        self.open_port = free_port()
        """Of a listener without SASL."""
        plain = f'{LOGIN_MODULES["PLAIN"]} required user_{USER}="{PASSWORD}" user_bob="b";'
        own = {
            "node.id": "1",
            "log.dirs": str(self.data),
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.port},PLAINTEXT://127.0.0.1:{self.open_port}",
            "inter.broker.listener.name": "PLAINTEXT",
            "moldau.http.port": "-1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "sasl.enabled.mechanisms": ",".join(self.mechanisms),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
            "sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
        }
        given = own | settings
        escaped = {name: value.replace("\\", "\\\\") for name, value in given.items()}
        self.file = folder / "server.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
        run_moldau("user", "create", USER, "--data", str(self.data), "--password-file", "-", stdin=PASSWORD)

    def command(self) -> Sequence[str]:
        return [str(Path(sys.executable).with_name("moldau")), "broker", "--config", str(self.file)]

    def security(self, mechanism: str, *, password: str = PASSWORD, token: str | None = None) -> Security:
        return Security(
            "SASL_PLAINTEXT",
            mechanism=mechanism,
            user=USER,
            password=password,
            token_address=self.tokens.address if mechanism == "OAUTHBEARER" else "",
            token=self.tokens.token() if token is None else token,
        )


def run_moldau(*arguments: str, stdin: str = "") -> str:
    command = [str(Path(sys.executable).with_name("moldau")), *arguments]
    done = subprocess.run(command, check=False, input=stdin, capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout
