"""What a cluster with `secure=True` is made of: an authority, a certificate and a user of its own, gone with its
folder. Clients are told in the words of their library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.cli.secure import Secured

CLIENTS = ("librdkafka", "java", "kafka-python", "aiokafka")


class Security:
    def __init__(self) -> None:
        self._made: Secured | None = None

    @property
    def made(self) -> Secured:
        if self._made is None:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:` or call start()")
        return self._made

    def make(self, folder: str) -> dict[str, str]:
        """What the brokers are given; made once."""
        from moldau.cli.secure import broker_settings, secured

        self._made = secured(folder)
        return broker_settings(self._made)

    def settings(self, client: str, bootstrap: str, user: str | None, password: str | None) -> dict[str, Any]:
        from moldau.cli.secure import client_settings, java_settings

        if (user is None) != (password is None):
            raise ValueError("a user comes with a password")
        native = client_settings(self.made, bootstrap)
        if user is not None and password is not None:
            native |= {"sasl.username": user, "sasl.password": password}
        match known(client):
            case "librdkafka":
                return dict(native)
            case "java":
                return dict(java_settings(native))
        settings = {
            "bootstrap_servers": bootstrap,
            "security_protocol": native["security.protocol"],
            "sasl_mechanism": native["sasl.mechanism"],
            "sasl_plain_username": native["sasl.username"],
            "sasl_plain_password": native["sasl.password"],
        }
        if client == "kafka-python":
            return settings | {"ssl_cafile": native["ssl.ca.location"]}
        import ssl

        return settings | {"ssl_context": ssl.create_default_context(cafile=native["ssl.ca.location"])}


def plain_settings(client: str, bootstrap: str) -> dict[str, Any]:
    name = "bootstrap.servers" if known(client) in ("librdkafka", "java") else "bootstrap_servers"
    return {name: bootstrap}


def known(client: str) -> str:
    if client not in CLIENTS:
        raise ValueError(f"settings are known for {', '.join(CLIENTS)}, not for {client!r}")
    return client
