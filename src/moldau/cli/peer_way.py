"""The settings of a client, for connections of `peers`: the requests that confluent-kafka has no calls for go the same
way as all others.

A user logs in with PLAIN or SCRAM. TLS goes by the authorities, the certificate and the key that librdkafka's settings
name. A server's certificate is always checked; `enable.ssl.certificate.verification=false` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError, file_error, usage
from moldau.cli.options import Target

if TYPE_CHECKING:
    from moldau.runtime.ports import Runtime
    from moldau.runtime.tls import TlsSettings
    from moldau.security.sasl.client import Login

PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def protocol_of(target: Target) -> str:
    protocol = target.properties.get("security.protocol", "plaintext").lower()
    if protocol not in PROTOCOLS:
        raise usage(f"There is no security.protocol {protocol}.", f"There are: {', '.join(PROTOCOLS)}.")
    return protocol


def login_of(target: Target) -> Login | None:
    """Who the command is to brokers; None where they do not ask."""
    if not protocol_of(target).startswith("sasl_"):
        return None
    from moldau.security.sasl.client import Login

    settings = target.properties
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", "GSSAPI")).upper()
    whose = f" in {target.origin}" if target.origin else ""
    if mechanism not in MECHANISMS:
        raise usage(
            f"This command does not speak sasl.mechanism={mechanism}{whose}.",
            f"It logs in with {', '.join(MECHANISMS)}.",
        )
    user, password = settings.get("sasl.username", ""), settings.get("sasl.password", "")
    if not user or not password:
        raise usage(
            f"There is no user and password{whose}.", "sasl.username and sasl.password say who logs in."
        )
    return Login(mechanism, user, password)


def on_the_way(runtime: Runtime, target: Target) -> Runtime:
    """The same world, whose network connects as the target's settings say."""
    if not protocol_of(target).endswith("ssl"):
        return runtime
    from moldau.runtime.secured_net import SecuredNet
    from moldau.runtime.tls import TlsSettingsError

    try:
        context = runtime.net.tls_context(tls_settings(target.properties))
    except TlsSettingsError as error:
        raise usage(f"The settings of TLS are not usable: {error}.") from error
    return replace(runtime, net=SecuredNet(runtime.net, lambda: context))


def tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    from moldau.runtime.tls import TlsSettings

    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        raise usage(
            "This command always checks the brokers' certificates.", "Name their authority with --ca."
        )
    chain, key = own_certificate(properties)
    return TlsSettings(
        is_server=False,
        chain_pem=chain,
        key_pem=key,
        trusted_pem=given(properties, "ssl.ca.pem", "ssl.ca.location"),
        checks_host=properties.get("ssl.endpoint.identification.algorithm", "https") == "https",
    )


def own_certificate(properties: Mapping[str, str]) -> tuple[bytes, bytes]:
    """Chain and key in PEM, the key not encrypted; nothing where there is none."""
    from moldau.security.certificates import CertificateError, certificate_pem, key_pem, read

    if store := properties.get("ssl.keystore.location"):
        data, password = read_file(store), properties.get("ssl.keystore.password")
    else:
        chain = given(properties, "ssl.certificate.pem", "ssl.certificate.location")
        key = given(properties, "ssl.key.pem", "ssl.key.location")
        data = chain if key == chain else chain + b"\n" + key
        password = properties.get("ssl.key.password")
    if not data.strip():
        return b"", b""
    try:
        found = read(data, password.encode() if password else None)
    except CertificateError as error:
        raise CliError(f"This client's certificate cannot be read. {error}") from error
    if found.key is None:
        raise CliError(
            "This client's certificate has no key that can be read.", "Check ssl.key.location and password."
        )
    return b"".join(map(certificate_pem, found.certificates)), key_pem(found.key)


def given(properties: Mapping[str, str], text: str, location: str) -> bytes:
    if pem := properties.get(text):
        return pem.encode()
    path = properties.get(location)
    return read_file(path) if path else b""


def read_file(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise file_error(error, path) from error
