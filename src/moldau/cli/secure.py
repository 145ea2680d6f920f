"""TLS and a password on this machine, made by one command: what `moldau up --secure` keeps, and what it tells.

A folder `security` beside the data has an authority, one certificate for all brokers here and the password of the first
user, each for this user of the machine alone. They stay over restarts; the certificate is renewed with its key when it
is about to end, or when the machine has other names.

Clients come in by SASL_SSL with SCRAM. The brokers meet on a listener of their own on this machine, where each shows
its certificate: no password is needed between them.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from moldau.cli.cert_files import (
    AUTHORITY_CERTIFICATE,
    authority_of,
    contents_of,
    current_time,
    make_authority,
    make_store,
)
from moldau.cli.data_folder import SECURITY_FOLDER, cannot_start
from moldau.cli.errors import CliError
from moldau.cli.private_files import make_private_folder, write_file
from moldau.cli.reach import BROKERS

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

CERTIFIED = "brokers"
"""The name in the brokers' certificate."""
USER = "admin"
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
PASSWORD_BYTES = 18
RENEWED_BEFORE = timedelta(days=60)
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
ELSEWHERE = ("192.0.2.1", 9)
"""An address that nobody has (RFC 5737): asked for the way to it, the system names its own address."""


@dataclass(frozen=True, slots=True)
class Secured:
    """What brokers and clients on this machine need."""

    folder: str
    user: str
    password: str = field(repr=False)

    @property
    def authority(self) -> str:
        return os.path.join(self.folder, AUTHORITY_CERTIFICATE)

    @property
    def store(self) -> str:
        return os.path.join(self.folder, f"{CERTIFIED}.pem")

    @property
    def password_file(self) -> str:
        return password_file(self.folder)


def secured(data: str, hosts: Iterable[str] = LOCAL_NAMES) -> Secured:
    """What the folder of that data has, made where it is missing."""
    folder = os.path.join(data, SECURITY_FOLDER)
    try:
        make_private_folder(data)
        make_private_folder(folder)
        if not os.path.exists(os.path.join(folder, AUTHORITY_CERTIFICATE)):
            make_authority(folder, "Moldau on this machine")
        keep_store(folder, list(dict.fromkeys(hosts)))
        if not os.path.exists(password_file(folder)):
            write_file(password_file(folder), secrets.token_urlsafe(PASSWORD_BYTES).encode() + b"\n")
        with open(password_file(folder), encoding="utf-8") as file:
            password = file.readline().rstrip("\n")
    except OSError as error:
        raise cannot_start(
            f"{folder} cannot be used: {(error.strerror or str(error)).lower()}.",
            "Make it readable and writable for this user, or name another folder with --data.",
        ) from error
    except CliError as error:
        raise cannot_start(error.message, f"Remove {folder}, and it is made anew.") from error
    return Secured(folder, USER, password)


def password_file(folder: str) -> str:
    return os.path.join(folder, f"{USER}.password")


def keep_store(folder: str, hosts: list[str]) -> None:
    """One certificate for the brokers, good for these hosts and for some time."""
    from moldau.security.certificates import Role

    path = os.path.join(folder, f"{CERTIFIED}.pem")
    if os.path.exists(path):
        found = contents_of(path, None).certificates
        if found and found[0].not_valid_after_utc > current_time() + RENEWED_BEFORE:
            known = names_of(found[0])
            if set(hosts) <= set(known):
                return
            hosts = [*known, *(host for host in hosts if host not in known)]
    make_store(folder, authority_of(folder), Role.BROKER, CERTIFIED, hosts, replace=True)


def names_of(certificate: Certificate) -> tuple[str, ...]:
    from moldau.security.certificates import describe

    return describe(certificate).names


def hosts_of(listening: Iterable[str], *, is_open: bool) -> list[str]:
    """The names and addresses by which clients may come here; `listening`: those that settings name."""
    from moldau.security.certificates import HOST_NAME, address_of

    found = [*LOCAL_NAMES, *listening]
    if is_open:
        found += [socket.gethostname(), socket.getfqdn(), own_address()]
    known = dict.fromkeys(host.lower() for host in found if host not in ("", "0.0.0.0", "::"))
    return [host for host in known if address_of(host) is not None or HOST_NAME.fullmatch(host)]


def hosts_named(options: Mapping[str, str]) -> list[str]:
    """Those of advertised.listeners, which is checked elsewhere."""
    addresses = [item.rpartition("://")[2] for item in options.get("advertised.listeners", "").split(",")]
    return [address.strip().rpartition(":")[0].strip("[]") for address in addresses if address.strip()]


def own_address() -> str:
    """By which this machine sends to others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(ELSEWHERE)
            return str(asked.getsockname()[0])
        except OSError:
            return ""


# Settings


def broker_settings(made: Secured) -> dict[str, str]:
    own = f"listener.name.{BROKERS.lower()}"
    return {
        "listener.security.protocol.map": f"SASL_SSL:SASL_SSL,{BROKERS}:SSL",
        "inter.broker.listener.name": BROKERS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": made.store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": made.authority,
        f"{own}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "super.users": f"User:{made.user};User:CN={CERTIFIED}",  # where an authorizer is asked for
    }


def client_settings(made: Secured, bootstrap: str) -> dict[str, str]:
    """In librdkafka's names."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": made.authority,
        "sasl.mechanism": MECHANISMS[0],
        "sasl.username": made.user,
        "sasl.password": made.password,
    }


def java_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Of Java's client, from librdkafka's."""
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return {
        "bootstrap.servers": settings["bootstrap.servers"],
        "security.protocol": settings["security.protocol"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": settings["ssl.ca.location"],
        "sasl.mechanism": settings["sasl.mechanism"],
        "sasl.jaas.config": f"{login} required "
        f"username={quoted(settings['sasl.username'])} password={quoted(settings['sasl.password'])};",
    }


def quoted(text: str) -> str:
    """A value of a JAAS line."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def texts(settings: Mapping[str, str]) -> dict[str, str]:
    """What to paste, for each kind of client."""

    def lines(pairs: Mapping[str, str]) -> str:
        return "\n".join(f"{name}={value}" for name, value in pairs.items())

    python = "\n".join(f'    "{name}": "{value}",' for name, value in settings.items())
    return {
        "librdkafka, kcat -F": lines(settings),
        "Java: client.properties": lines(java_settings(settings)),
        "Python: confluent_kafka.Producer(settings)": f"settings = {{\n{python}\n}}",
    }
