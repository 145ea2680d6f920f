"""`moldau certs`: an authority of one's own, and certificates that it signs for brokers and clients.

All lie in one folder: `ca.crt` for everybody, `ca.key` for whoever signs, and `NAME.pem` with key and chain for each
broker and client. Files with a key are for this user alone from their first byte on, and nothing is replaced unless
asked to be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.cert_files import (
    AUTHORITY_CERTIFICATE,
    AUTHORITY_DAYS,
    AUTHORITY_KEY,
    AUTHORITY_NAME,
    DAYS,
    FOLDER,
    PASSWORD_BYTES_MIN,
    authority_of,
    contents_of,
    current_time,
    file_name,
    in_folder,
    make_authority,
    make_store,
    new_serial,
    password_of,
    write_all,
)
from moldau.cli.complete import files, folders
from moldau.cli.errors import CliError, Exit, not_found, usage
from moldau.cli.help import Group
from moldau.cli.options import Whole, json_option
from moldau.cli.output import Column, dim, note, print_json, print_table, say
from moldau.cli.private_files import PRIVATE_FILE, PUBLIC_FILE

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from moldau.security.certificates import Contents, Description, Role

Function = TypeVar("Function", bound=Callable[..., Any])
DAYS_MAX = 36500
STORE_ENDINGS = (".p12", ".pfx")
ENDINGS = (".crt", ".pem", *STORE_ENDINGS)


def folder_option(function: Function) -> Function:
    return click.option(
        "-d",
        "--dir",
        "folder",
        default=FOLDER,
        show_default=True,
        metavar="DIR",
        shell_complete=folders,
        help="The folder of the authority and its certificates.",
    )(function)


def key_type_option(function: Function) -> Function:
    return click.option(
        "--key-type",
        type=click.Choice(["ecdsa", "rsa"]),
        default="ecdsa",
        show_default=True,
        help="ECDSA on P-256, or RSA with 3072 bits.",
    )(function)


def days_option(default: int) -> Callable[[Function], Function]:
    return click.option(
        "--days",
        type=Whole(1, DAYS_MAX),
        default=default,
        show_default=True,
        metavar="N",
        help="How long it is good.",
    )


def force_option(function: Function) -> Function:
    return click.option("--force", is_flag=True, help="Replace files that are there.")(function)


def store_options(function: Function) -> Function:
    """What certificates of brokers and clients have in common."""
    function = click.option(
        "--password-file",
        metavar="FILE",
        shell_complete=files,
        help="Encrypt the key with the password in this file (ssl.key.password). Java 17 reads no such key in PEM: "
        "there is --pkcs12 for it.",
    )(function)
    function = click.option(
        "--pkcs12", is_flag=True, help="Also a PKCS#12 store, NAME.p12, for programs that want one."
    )(function)
    return folder_option(key_type_option(days_option(DAYS)(force_option(function))))


@click.group(
    name="certs",
    cls=Group,
    examples="""
moldau certs authority
# A broker, with every name and address that clients and brokers use
moldau certs broker kafka1.example.com 10.0.0.5
# A user, for ssl.client.auth=required
moldau certs client alice
moldau certs show
""",
)
def command() -> None:
    """Make an authority, and certificates for brokers and clients."""


@command.command(
    examples="""
moldau certs authority
moldau certs authority --name 'Example Inc. Kafka' --dir /etc/moldau/certs
"""
)
@click.option("--name", default=AUTHORITY_NAME, show_default=True, metavar="NAME", help="What it is called.")
@days_option(AUTHORITY_DAYS)
@key_type_option
@folder_option
@force_option
@json_option()
def authority(name: str, days: int, key_type: str, folder: str, force: bool, as_json: bool) -> None:
    """Make an authority: ca.crt for everybody, ca.key for you.

    Clients and brokers that are given ca.crt trust every certificate that is signed with ca.key. No broker
    needs that key: keep it where certificates are made.
    """
    made = make_authority(folder, name, days=days, key_type=key_type, replace=force)
    certificate = os.path.join(folder, AUTHORITY_CERTIFICATE)
    key = os.path.join(folder, AUTHORITY_KEY)
    if as_json:
        print_json({"certificate": certificate, "key": key, **document(describe(made.certificate))})
        return
    say(
        f"{certificate}: {name}, until {day(made.certificate.not_valid_after_utc)}; for every broker and client"
    )
    say(f"{key}: its key; whoever has it is trusted by all of them")
    note(f"Next: `moldau certs broker HOST...{in_folder(folder)}`.")


@command.command(
    examples="""
moldau certs broker localhost 127.0.0.1
moldau certs broker kafka1.example.com 10.0.0.5 --name broker-1
# For three brokers alike
moldau certs broker '*.kafka.example.com' --name brokers
"""
)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option(
    "--name", metavar="NAME", help="What the broker and its file are called.  [default: the first HOST]"
)
@store_options
@json_option()
def broker(hosts: tuple[str, ...], name: str | None, as_json: bool, **how: Any) -> None:
    """Make a broker's certificate, good for these host names and addresses.

    HOST is what stands in advertised.listeners: clients compare it with the certificate. The broker uses
    the same certificate as a client of other brokers.
    """
    from moldau.security.certificates import COMMON_NAME_MAX, Role

    called = name or (hosts[0] if len(hosts[0]) <= COMMON_NAME_MAX else "broker")
    issue(Role.BROKER, called, hosts, as_json=as_json, **how)


@command.command(
    examples="""
moldau certs client alice
# For Java programs before Kafka 2.7
moldau certs client alice --pkcs12
"""
)
@click.argument("user")
@store_options
@json_option()
def client(user: str, as_json: bool, **how: Any) -> None:
    """Make a client's certificate: its user is User:CN=USER.

    Where brokers have `ssl.client.auth=required`, it is who the client is. Rules such as
    ssl.principal.mapping.rules=RULE:^CN=([^,]+)$/$1/ make User:USER of it.
    """
    from moldau.security.certificates import Role

    issue(Role.CLIENT, user, (), as_json=as_json, **how)


@command.command(
    examples="""
moldau certs renew certs/kafka1.example.com.pem
# The authority itself: what it has signed stays good
moldau certs renew certs/ca.crt
"""
)
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", shell_complete=files)
@click.option(
    "--days", type=Whole(1, DAYS_MAX), metavar="N", help="How long it is good.  [default: as at first]"
)
@click.option(
    "-d",
    "--dir",
    "folder",
    metavar="DIR",
    shell_complete=folders,
    help="The folder of the authority.  [default: that of FILE]",
)
@click.option(
    "--password-file", metavar="FILE", shell_complete=files, help="The password of an encrypted key."
)
@json_option()
def renew(
    paths: tuple[str, ...], days: int | None, folder: str | None, password_file: str | None, as_json: bool
) -> None:
    """Make certificates anew, for the same keys and names.

    FILE is replaced at once as a whole, so that brokers which look at it take up the new certificate.
    """
    password = password_of(password_file)
    done = [(path, renewed(path, folder or os.path.dirname(path) or ".", days, password)) for path in paths]
    if as_json:
        print_json([{"file": path, **document(describe(made))} for path, made in done])
        return
    for path, made in done:
        say(f"{path}: {describe(made).subject}, until {day(made.not_valid_after_utc)}")
        store = os.path.splitext(path)[0] + ".p12"
        if os.path.exists(store):
            note(f"{store} still has the old one: make it anew with openssl pkcs12, or use {path}.")


@command.command(
    examples="""
# All in ./certs
moldau certs show
moldau certs show /etc/moldau/certs/kafka1.example.com.pem
# What a listener shows to its clients
moldau certs show localhost:9093
"""
)
@click.argument("paths", nargs=-1, metavar="[FILE|HOST:PORT...]", shell_complete=files)
@folder_option
@click.option(
    "--password-file", metavar="FILE", shell_complete=files, help="The password of a PKCS#12 store."
)
@json_option()
def show(paths: tuple[str, ...], folder: str, password_file: str | None, as_json: bool) -> None:
    """Show who certificates are for, under which names, and until when.

    With HOST:PORT it is the certificate of a listener with TLS, which is looked at and trusted with nothing.
    """
    password = password_of(password_file)
    found = [(path, contents_at(path, password)) for path in paths or in_the(folder)]
    if as_json:
        print_json(
            [
                {
                    "file": path,
                    "has_key": contents.key is not None,
                    "certificates": [document(describe(one)) for one in contents.certificates],
                }
                for path, contents in found
            ]
        )
        return
    now = current_time()
    rows = []
    for path, contents in found:
        for one in contents.certificates[:1]:  # behind it is the authority
            told = describe(one)
            rows.append(
                [
                    path,
                    told.subject,
                    ", ".join(told.names) or "-",
                    ", ".join(told.usages) or "anything",
                    until(told.not_after, now),
                    told.issuer,
                ]
            )
    columns = [
        Column("file", style="bold", fold=False),
        Column("who"),
        Column("names"),
        Column("for"),
        Column("until", fold=False),
        Column("signed by", style="dim"),
    ]
    print_table(columns, rows)


# Making them


def issue(
    role: Role,
    name: str,
    hosts: Sequence[str],
    *,
    folder: str,
    days: int,
    key_type: str,
    force: bool,
    pkcs12: bool,
    password_file: str | None,
    as_json: bool,
) -> None:
    signer = authority_of(folder)
    password = password_of(password_file)
    store_password = (password or asked_password(f"{file_name(name)}.p12")) if pkcs12 else None
    made, written = make_store(
        folder,
        signer,
        role,
        name,
        hosts,
        days=days,
        key_type=key_type,
        password=password,
        store_password=store_password,
        replace=force,
    )
    told = describe(made)
    settings = settings_of(folder, written[0], role.value == "broker", is_encrypted=password is not None)
    if as_json:
        print_json({"files": written, "settings": settings, **document(told)})
        return
    say(f"{', '.join(written)}: key and certificate of {told.subject}, until {day(told.not_after)}")
    if told.names:
        say(f"good for {', '.join(told.names)}")
    for title, lines in settings.items():
        say("")
        say(dim(f"# {title}"))
        for key, value in lines.items():
            say(f"{key}={value}")


def settings_of(folder: str, store: str, is_broker: bool, *, is_encrypted: bool) -> dict[str, dict[str, str]]:
    """What to write into whose settings."""
    store, authority = os.path.abspath(store), os.path.abspath(os.path.join(folder, AUTHORITY_CERTIFICATE))
    java = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
    }
    native = {"ssl.ca.location": authority, "ssl.certificate.location": store, "ssl.key.location": store}
    if is_encrypted:
        java["ssl.key.password"] = native["ssl.key.password"] = "..."
    if is_broker:
        return {"the broker's settings": java}
    protocol = {"security.protocol": "SSL"}
    return {"Java": protocol | java, "librdkafka, and confluent-kafka for Python": protocol | native}


def renewed(path: str, folder: str, days: int | None, password: bytes | None) -> Certificate:
    from moldau.security import certificates

    if path.endswith(STORE_ENDINGS):
        raise usage(f"{path} is a PKCS#12 store.", "Renew the .pem file that was made with it.")
    contents = contents_of(path, password)
    if not contents.certificates:
        raise CliError(f"{path} has no certificate.")
    old = contents.certificates[0]
    is_ca = certificates.is_authority(old)
    key = authority_of(os.path.dirname(path) or ".", os.path.basename(path)).key if is_ca else contents.key
    if key is None:
        raise CliError(
            f"{path} has no key that can be read.", "A store with an encrypted key needs --password-file."
        )
    signer = None if is_ca else authority_of(folder)
    if signer is not None and old.issuer != signer.certificate.subject:
        raise CliError(
            f"{path} was not signed by the authority in {folder}.",
            "Name the folder of its authority with --dir.",
        )
    span = days or (old.not_valid_after_utc - old.not_valid_before_utc).days
    try:
        made = certificates.renewed(
            certificates.Pair(old, key), signer, current_time(), new_serial(), days=span
        )
    except certificates.CertificateError as error:
        raise CliError(str(error)) from error
    if signer is None:
        data, mode = certificates.certificate_pem(made.certificate), PUBLIC_FILE
    else:
        data, mode = certificates.store_pem(made, signer.certificate, password), PRIVATE_FILE
    write_all(os.path.dirname(path) or ".", {os.path.basename(path): (data, mode)}, replace=True)
    return made.certificate


# Reading them


def in_the(folder: str) -> list[str]:
    if not os.path.isdir(folder):
        raise not_found(f"There is no folder {folder}.", "Name files, or a folder with --dir.")
    found = [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(ENDINGS)]
    # A store of the same name has the same certificate, and may have a password.
    return [
        path
        for path in found
        if path.endswith((".crt", ".pem")) or os.path.splitext(path)[0] + ".pem" not in found
    ]


def contents_at(place: str, password: bytes | None) -> Contents:
    """Of a file, or of a listener where there is no such file."""
    host, colon, port = place.rpartition(":")
    if os.path.exists(place) or not (host and colon and port.isdigit()):
        return contents_of(place, password)
    from moldau.cli.client import reason_of
    from moldau.cli.doctor_security import certificate_of
    from moldau.security.certificates import Contents

    try:
        found = certificate_of(host.strip("[]"), int(port))
    except (OSError, OverflowError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else "there is no such port"
        raise CliError(f"{place} cannot be reached: {reason}.", code=Exit.UNREACHABLE) from error
    if found is None:
        raise CliError(f"{place} does not speak TLS.")
    return Contents((found,), None)


def asked_password(what: str) -> bytes:
    password = str(
        click.prompt(f"Password of {what}", hide_input=True, confirmation_prompt=True, err=True)
    ).encode()
    if len(password) < PASSWORD_BYTES_MIN:
        raise usage(f"A password has at least {PASSWORD_BYTES_MIN} characters.")
    return password


# Words


def describe(certificate: Certificate) -> Description:
    from moldau.security.certificates import describe as described

    return described(certificate)


def document(told: Description) -> dict[str, Any]:
    return told._asdict() | {
        "not_before": told.not_before.isoformat(),
        "not_after": told.not_after.isoformat(),
    }


def day(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d")


def until(end: datetime, now: datetime) -> str:
    left = (end - now).days
    return f"{day(end)} (expired)" if end <= now else f"{day(end)} ({left} d)"
