"""What keeps others out: who may read secrets and data, until when certificates are good, and which listeners let
everyone in. Nothing is changed, and no secret is shown.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from moldau.cli.cert_files import current_time
from moldau.cli.data_folder import SECURITY_FOLDER
from moldau.cli.errors import CliError
from moldau.cli.findings import Finding, ok, problem, remark, warning
from moldau.cli.private_files import read_by_others
from moldau.cli.reach import is_local

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from moldau.config.listeners import Endpoint

SOON_DAYS = 30
HANDSHAKE_TIMEOUT_S = 3.0
CERTIFICATE_ENDINGS = (".crt", ".pem")
KEY_ENDINGS = (".key", ".pem", ".p12", ".pfx", ".jks", ".password", ".properties")
STORES = ("ssl.keystore.location", "ssl.truststore.location")
IN_FILES = ("ssl.keystore.key", "password", "jaas.config", "secret")
"""Parts of the names of keys whose values are secrets."""


# Files


def examine_profiles() -> Iterator[Finding]:
    """The profiles of this user; nothing where there are none."""
    from moldau.cli import profiles

    for name in profiles.names():
        yield from open_to_others("profile", profiles.path_of(name), "It has a password.")


def examine_folder(folder: str) -> Iterator[Finding]:
    """Who may read a data folder, and what `moldau up --secure` keeps in it."""
    if not os.path.isdir(folder):
        return
    yield from open_to_others(
        "folder", folder, "Everyone on this machine can read the messages: `chmod 700` it, or set UMask=0077."
    )
    secrets = os.path.join(folder, SECURITY_FOLDER)
    if os.path.isdir(secrets):
        paths = [os.path.join(secrets, name) for name in sorted(os.listdir(secrets))]
        for path in paths:
            if path.endswith(KEY_ENDINGS):
                yield from open_to_others("key file", path, "It has a key or a password: `chmod 600` it.")
        yield from certificates_in(path for path in paths if path.endswith(CERTIFICATE_ENDINGS))


def open_to_others(subject: str, path: str, advice: str) -> Iterator[Finding]:
    try:
        if read_by_others(path):
            yield warning(subject, f"{path} can be read by every user of this machine", advice)
    except OSError as error:
        yield remark(subject, f"{path}: {error.strerror}")


def certificates_in(paths: Iterable[str]) -> Iterator[Finding]:
    from moldau.cli.cert_files import contents_of

    for path in paths:
        try:
            found = contents_of(path, None)
        except CliError as error:
            yield problem("certificate", error.message, error.hint)
            continue
        for certificate in found.certificates[:1]:
            yield until_when("certificate", path, certificate, current_time())


def until_when(subject: str, where: str, certificate: Certificate, now: datetime) -> Finding:
    end = certificate.not_valid_after_utc
    left, day = (end - now).days, end.strftime("%Y-%m-%d")
    if end <= now:
        return problem(subject, f"{where} has expired on {day}", "`moldau certs renew` makes it anew.")
    if certificate.not_valid_before_utc > now:
        begin = certificate.not_valid_before_utc.strftime("%Y-%m-%d")
        return problem(subject, f"{where} is good from {begin} on only", "Check the clock of this machine.")
    if left < SOON_DAYS:
        advice = "`moldau certs renew` makes it good for longer, with the same key."
        return warning(subject, f"{where} expires on {day}, in {left} days", advice)
    return ok(subject, f"{where}, until {day}")


# A broker's configuration


def examine_config(path: str) -> Iterator[Finding]:
    """What a broker would be started with; whether it is right is for the broker to say."""
    from moldau.cli.launch import read_file

    try:
        settings = read_file(path)
    except CliError as error:
        yield problem("config", error.message, error.hint)
        return
    has_secrets = any(part in name for name in settings for part in IN_FILES)
    if has_secrets:
        yield from open_to_others("config", path, "It has a password or a key: `chmod 600` it.")
    for name in ("log.dirs", "log.dir"):
        for folder in filter(None, map(str.strip, settings.get(name, "").split(","))):
            if os.path.isdir(folder):
                yield from open_to_others(
                    "folder", folder, "`chmod 700` it, or set UMask=0077 for the broker."
                )
    for store in sorted({value for name, value in settings.items() if name.endswith(STORES) and value}):
        yield from examine_store_file(store)
    yield from open_listeners("config", settings)


def examine_store_file(path: str) -> Iterator[Finding]:
    if not os.path.exists(path):
        yield problem("certificate", f"there is no file {path}", "The broker would not start.")
        return
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        yield problem("certificate", f"{path}: {error.strerror}", "The broker must be able to read it.")
        return
    from moldau.security.certificates import has_key

    is_pem = b"-----BEGIN " in data
    if has_key(data) or not is_pem:
        yield from open_to_others("key file", path, "It has a key: `chmod 600` it.")
    if is_pem:
        yield from certificates_in([path])


def open_listeners(subject: str, settings: Mapping[str, str]) -> Iterator[Finding]:
    """Listeners that other machines reach, and that ask nobody who they are."""
    from moldau.config.key import ConfigError

    try:
        endpoints = endpoints_of(settings)
    except ConfigError as error:
        yield problem(subject, f"its listeners cannot be read: {error}")
        return
    for endpoint in endpoints:
        if is_local(endpoint.host):
            continue
        if not asks_who(endpoint, settings):
            yield warning(
                subject,
                f"the listener {endpoint} is open without authentication: whoever reaches it may do everything",
                "Use SASL_SSL, or SSL with ssl.client.auth=required; or keep others from the port.",
            )
        elif not endpoint.is_tls:
            yield warning(
                subject,
                f"the listener {endpoint} has passwords without TLS: whoever is on the way can read all messages",
                "Use SASL_SSL.",
            )


def endpoints_of(settings: Mapping[str, str]) -> Sequence[Endpoint]:
    from moldau.config.listeners import parse_endpoints, protocol_map

    items = [item.strip() for item in settings.get("listeners", "PLAINTEXT://:9092").split(",")]
    known = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    known |= protocol_map(settings.get("listener.security.protocol.map", ""))
    skipped = {name.strip() for name in settings.get("controller.listener.names", "").split(",")}
    return [
        endpoint._replace(protocol=known.get(endpoint.name, endpoint.protocol))
        for endpoint in parse_endpoints("listeners", list(filter(None, items)))
        if endpoint.name not in skipped
    ]


def asks_who(endpoint: Endpoint, settings: Mapping[str, str]) -> bool:
    """Whether nobody is served on a listener who has not said who they are, and shown it."""
    if not endpoint.is_tls or endpoint.is_sasl:
        return endpoint.is_sasl
    own = settings.get(f"listener.name.{endpoint.name.lower()}.ssl.client.auth")
    return (own or settings.get("ssl.client.auth", "none")).lower() == "required"


# A running broker


def certificate_of(host: str, port: int) -> Certificate | None:
    """What a listener with TLS shows to anybody; None where it does not speak TLS. OSError where it is not reached."""
    from cryptography.x509 import load_der_x509_certificate

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # it is looked at, and trusted with nothing
    context.verify_mode = ssl.CERT_NONE
    with socket.create_connection((host, port), timeout=HANDSHAKE_TIMEOUT_S) as connection:
        try:
            with context.wrap_socket(connection, server_hostname=host) as stream:
                data = stream.getpeercert(binary_form=True)
        except ssl.SSLError:
            return None
    return load_der_x509_certificate(data) if data else None


def shown_certificate(subject: str, host: str, port: int) -> Iterator[Finding]:
    try:
        certificate = certificate_of(host, port)
    except OSError:
        return  # that it cannot be reached is said elsewhere
    if certificate is not None:
        yield until_when(subject, "its certificate", certificate, current_time())
