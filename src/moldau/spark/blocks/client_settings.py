"""What of librdkafka's configuration the block reader itself goes by: security, and the few settings that bear on it.

`client_of` gives None where only the client library can do it: mechanisms like OAUTHBEARER and GSSAPI, key stores,
engines and plug-ins of OpenSSL. What else stands in a configuration tunes the inside of the library and changes no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.spark.blocks.errors import ReadFailed, SecurityFailed

CLIENT_ID: Final = "moldau-spark"
FETCH_BYTES: Final = 4 * 1024 * 1024
CONNECT_TIMEOUT_MS: Final = 10_000
ANSWER_TIMEOUT_MS: Final = 30_000
PROTOCOLS: Final = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
OWN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FETCH_BYTES_NAMES: Final = ("max.partition.fetch.bytes", "fetch.message.max.bytes")
FOR_THE_LIBRARY: Final = (
    "plugin.library.paths",
    "ssl.crl.location",
    "ssl.curves.list",
    "ssl.engine.",
    "ssl.keystore.",
    "ssl.providers",
    "ssl.sigalgs.list",
    "ssl.ca.certificate.stores",
)


@dataclass(frozen=True, slots=True)
class Tls:
    """As paths of PEM files, or as the PEM text itself."""

    ca_location: str | None = None
    ca_pem: str | None = None
    certificate_location: str | None = None
    certificate_pem: str | None = None
    key_location: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    ciphers: str | None = None
    is_verified: bool = True
    is_name_checked: bool = True


@dataclass(frozen=True, slots=True)
class Sasl:
    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Two that are equal may share connections."""

    client_id: str = CLIENT_ID
    tls: Tls | None = None
    sasl: Sasl | None = None
    check_crc: bool = True
    fetch_bytes: int = FETCH_BYTES
    connect_timeout_s: float = CONNECT_TIMEOUT_MS / 1000
    answer_timeout_s: float = ANSWER_TIMEOUT_MS / 1000


def client_of(config: Mapping[str, str]) -> ClientSettings | None:
    """None: it takes the client library. ReadFailed for values that mean nothing."""
    protocol = config.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise ReadFailed(f"kafka.security.protocol is one of {', '.join(PROTOCOLS)}, not {protocol!r}")
    mechanism = (config.get("sasl.mechanism") or config.get("sasl.mechanisms") or "GSSAPI").upper()
    with_sasl, with_tls = protocol.startswith("sasl"), protocol.endswith("ssl")
    if any(name.startswith(FOR_THE_LIBRARY) for name in config) or (
        with_sasl and mechanism not in OWN_MECHANISMS
    ):
        return None
    return ClientSettings(
        config.get("client.id", CLIENT_ID),
        _tls(config) if with_tls else None,
        _sasl(config, mechanism) if with_sasl else None,
        _flag(config, "check.crcs", True),
        _number(config, FETCH_BYTES_NAMES, FETCH_BYTES),
        _number(config, ("socket.connection.setup.timeout.ms",), CONNECT_TIMEOUT_MS) / 1000,
        _number(config, ("socket.timeout.ms",), ANSWER_TIMEOUT_MS) / 1000,
    )


def _tls(config: Mapping[str, str]) -> Tls:
    return Tls(
        config.get("ssl.ca.location"),
        config.get("ssl.ca.pem"),
        config.get("ssl.certificate.location"),
        config.get("ssl.certificate.pem"),
        config.get("ssl.key.location"),
        config.get("ssl.key.pem"),
        config.get("ssl.key.password"),
        config.get("ssl.cipher.suites"),
        _flag(config, "enable.ssl.certificate.verification", True),
        config.get("ssl.endpoint.identification.algorithm", "https").lower() != "none",
    )


def _sasl(config: Mapping[str, str], mechanism: str) -> Sasl:
    username, password = config.get("sasl.username"), config.get("sasl.password")
    if username is None or password is None:
        raise SecurityFailed(
            f"{mechanism} needs kafka.sasl.username and kafka.sasl.password, or kafka.sasl.jaas.config"
        )
    return Sasl(mechanism, username, password)


def _flag(config: Mapping[str, str], name: str, usual: bool) -> bool:
    given = config.get(name, str(usual)).lower()
    if given not in ("true", "false"):
        raise ReadFailed(f"kafka.{name} is true or false, not {given!r}")
    return given == "true"


def _number(config: Mapping[str, str], names: tuple[str, ...], usual: int) -> int:
    for name in names:
        if name in config:
            try:
                return max(1, int(config[name]))
            except ValueError:
                raise ReadFailed(f"kafka.{name} is a number, not {config[name]!r}") from None
    return usual
