"""A client's settings from a file, in librdkafka's names: what says how to reach a cluster, and nothing else of it.

Two kinds are read: files for Java's clients and tools (`client.properties`, as in Kafka's `--command-config`), and
librdkafka's own (as in `kcat -F`), told apart by names that only librdkafka has. Stores are taken by what is in them:
PEM, PKCS#12, and a JKS store is refused with the line that converts it. Logins are those of `client_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError, file_error, usage

if TYPE_CHECKING:
    from moldau.security.certificates import Contents

HOW_TO_CONNECT = (
    "bootstrap.servers",
    "broker.address.",
    "client.id",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "sasl.",
    "security.protocol",
    "socket.",
    "ssl.",
)
"""How the names begin that are taken; the rest tunes producers and consumers."""
NATIVE = frozenset(
    {
        "enable.ssl.certificate.verification",
        "metadata.broker.list",
        "sasl.mechanisms",
        "sasl.password",
        "sasl.username",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
    }
)
"""Names that librdkafka has, and Java's client has not."""
STORES = ("ssl.truststore.", "ssl.keystore.")
HEADER = "# A profile of the moldau command: librdkafka's names in Java's format of properties."


def read_client_file(path: str) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except UnicodeDecodeError:
        raise usage(f"{path} is not a text in UTF-8.") from None
    except OSError as error:
        raise file_error(error, path) from error
    try:
        return client_settings(text)
    except ValueError as error:
        raise CliError(f"{path}: {str(error).rstrip('.')}.") from error


def client_settings(text: str) -> dict[str, str]:
    """ValueError: one sentence that repeats no secret."""
    settings = raw_lines(text)
    # Imported where it is needed, here and below: every command with a profile comes by.
    from moldau.config.sources import parse_properties

    if text.startswith(HEADER) or NATIVE.isdisjoint(settings):
        settings = parse_properties(text)
    if "metadata.broker.list" in settings:
        settings.setdefault("bootstrap.servers", settings.pop("metadata.broker.list"))
    taken = {name: value for name, value in settings.items() if name.startswith(HOW_TO_CONNECT)}
    return translated(taken) if NATIVE.isdisjoint(taken) else taken


def raw_lines(text: str) -> dict[str, str]:
    """librdkafka's examples and kcat know no escapes."""
    pairs = (
        line.partition("=") for line in map(str.strip, text.splitlines()) if line and line[0] not in "#!"
    )
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def translated(java: Mapping[str, str]) -> dict[str, str]:
    """The settings of Java's client as librdkafka's."""
    from moldau.spark.client_options import JAVA_CLASSES, NO_COUNTERPART, client_config

    options = {name: value.strip() for name, value in java.items()}
    rest = {
        name: value
        for name, value in options.items()
        if not name.startswith(STORES)
        and name not in NO_COUNTERPART
        and name != "ssl.cipher.suites"  # by other names
        and (value or name not in JAVA_CLASSES)
    }
    return trusted(options) | own_certificate(options) | client_config(rest, "admin")


def trusted(options: Mapping[str, str]) -> dict[str, str]:
    if pem := options.get("ssl.truststore.certificates"):
        return {"ssl.ca.pem": pem}
    path = options.get("ssl.truststore.location")
    if not path:
        return {}
    data = contents(path)
    if is_pem(data):
        return {"ssl.ca.location": path}
    from moldau.security.certificates import certificate_pem

    found = parsed(path, data, options.get("ssl.truststore.password"))
    return {"ssl.ca.pem": b"".join(certificate_pem(one) for one in found.certificates).decode()}


def own_certificate(options: Mapping[str, str]) -> dict[str, str]:
    if (key := options.get("ssl.keystore.key")) and (chain := options.get("ssl.keystore.certificate.chain")):
        return {"ssl.key.pem": key, "ssl.certificate.pem": chain}
    path = options.get("ssl.keystore.location")
    if not path:
        return {}
    data = contents(path)
    if is_pem(data):
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    password = options.get("ssl.keystore.password")
    parsed(path, data, password)
    return {"ssl.keystore.location": path} | ({"ssl.keystore.password": password} if password else {})


def contents(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise file_error(error, path) from error


def is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def parsed(path: str, data: bytes, password: str | None) -> Contents:
    from moldau.security.certificates import CertificateError, read

    try:
        return read(data, password.encode() if password else None)
    except CertificateError as error:
        raise ValueError(f"{path} cannot be read. {error}") from error
