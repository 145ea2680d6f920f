"""`moldau profile`: named sets of client settings, so that commands on a cluster with TLS and passwords stay short."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from moldau.cli import profiles
from moldau.cli.client import split_bootstrap
from moldau.cli.complete import files, profile_names
from moldau.cli.errors import CliError, file_error, usage
from moldau.cli.help import Group
from moldau.cli.options import json_option, parse_pairs, require_text
from moldau.cli.output import Column, good, note, print_json, print_table, say

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
DEFAULT_MECHANISM = "SCRAM-SHA-512"
STDIN = "-"

name_argument = click.argument("name", shell_complete=profile_names)


@click.group(
    name="profile",
    cls=Group,
    examples="""
# A cluster with TLS and a password, which is asked for
moldau profile add prod -b kafka1:9093 --ca ca.crt --user alice
moldau topic list --profile prod
# For all commands that say nothing else
moldau profile use prod
moldau profile list
""",
)
def command() -> None:
    """Name the settings of a cluster: address, certificates, user."""


@command.command(
    examples="""
# TLS and SCRAM; the password is asked for
moldau profile add prod -b kafka1:9093 --ca ca.crt --user alice
# From a file or a program
moldau profile add prod -b kafka1:9093 --user alice --password-file pw.txt
pass show kafka | moldau profile add prod -b k1:9093 -u me --password-file -
# TLS, and this user's own certificate
moldau profile add prod -b kafka1:9093 --ca ca.crt --certificate alice.pem
# What Kafka's tools and other clients are given
moldau profile add prod --command-config client.properties
"""
)
@click.argument("name")
@click.option(
    "-b", "--bootstrap", metavar="HOST:PORT", help="Any broker of the cluster; several with commas."
)
@click.option("--ca", metavar="FILE", shell_complete=files,
              help="The authorities that brokers are to be signed by, in PEM.  [default: this machine's]")  # fmt: skip
@click.option("--certificate", metavar="FILE", shell_complete=files,
              help="This client's certificate, in PEM, perhaps with its key.")  # fmt: skip
@click.option("--key", metavar="FILE", shell_complete=files, help="Its key, where that is in another file.")
@click.option("-u", "--user", metavar="NAME", help="Who logs in.")
@click.option("--password-file", metavar="FILE", shell_complete=files,
              help=f"The first line of it is the password; {STDIN} is stdin.  [default: it is asked for]")  # fmt: skip
@click.option("--mechanism", type=click.Choice(MECHANISMS),
              help=f"How the user logs in.  [default: {DEFAULT_MECHANISM}]")  # fmt: skip
@click.option("--protocol", type=click.Choice(PROTOCOLS),
              help="[default: with TLS, where there is a user, an authority or a certificate]")  # fmt: skip
@click.option("--command-config", "file", metavar="FILE", shell_complete=files,
              help="Begin with the settings of a Java client or of librdkafka.")  # fmt: skip
@click.option("-X", "properties", multiple=True, metavar="KEY=VALUE", help="Another property of librdkafka.")
@click.option("--use", "is_used", is_flag=True, help="Make it the one that is used where nothing is said.")
@click.option("--force", is_flag=True, help="Replace the profile that is there.")
@json_option()
def add(
    name: str,
    file: str | None,
    properties: tuple[str, ...],
    is_used: bool,
    force: bool,
    as_json: bool,
    **how: Any,
) -> None:
    """Add a profile.

    It is a file in the folder for settings (XDG_CONFIG_HOME, else ~/.config), with the password, for this
    user alone. Paths in it are absolute.
    """
    path = profiles.path_of(name)
    if os.path.exists(path) and not force:
        raise CliError(f"There is a profile '{name}' already.", "--force replaces it.")
    require_text(name, properties, *(value for value in how.values()))
    settings = (from_file(file) if file else {}) | settings_of(**how) | parse_pairs(properties, "-X")
    if profiles.BOOTSTRAP not in settings:
        raise usage("A profile has an address.", "Give it with --bootstrap HOST:PORT.")
    settings = {profiles.BOOTSTRAP: settings.pop(profiles.BOOTSTRAP)} | settings
    split_bootstrap(settings[profiles.BOOTSTRAP])
    check(settings)
    profiles.save(name, settings, replace=force)
    if is_used:
        profiles.use(name)
    if as_json:
        print_json({"name": name, "file": path, "default": is_used, "settings": profiles.shown(settings)})
        return
    say(f"{name}: {good('replaced' if force else 'added')}, {path}")
    note(
        "It is used where nothing else is said."
        if is_used
        else f"--profile {name} uses it, or MOLDAU_PROFILE={name}; `moldau profile use {name}` makes it the default."
    )


@command.command(name="list", examples="moldau profile list")
@json_option()
def list_profiles(as_json: bool) -> None:
    """List the profiles, and which is used where nothing is said."""
    default = profiles.default_name()
    rows = [row(name, name == default) for name in profiles.names()]
    if as_json:
        print_json(rows)
        return
    if not rows:
        note("There is none; `moldau profile add` makes one.")
        return
    columns = [Column("profile", style="bold", fold=False), Column("bootstrap"), Column("protocol"), Column("user"),
               Column("default", style="dim")]  # fmt: skip
    print_table(
        columns, [[*map(str, list(one.values())[:-1]), "yes" if one["default"] else ""] for one in rows]
    )


@command.command(
    examples="""
moldau profile use prod
# Back to localhost:9092
moldau profile use --none
"""
)
@click.argument("name", required=False, shell_complete=profile_names)
@click.option("--none", "nothing", is_flag=True, help="Use none where nothing is said.")
@json_option()
def use(name: str | None, nothing: bool, as_json: bool) -> None:
    """Choose the profile for commands that say neither --profile nor --bootstrap."""
    if (name is None) != nothing:
        raise usage("Name one profile, or say --none.")
    if name is not None:
        profiles.load(name)
    profiles.use(name)
    if as_json:
        print_json({"default": name})
    else:
        say(
            f"{name}: {good('used where nothing is said')}"
            if name
            else good("none is used where nothing is said")
        )


@command.command(
    examples="""
moldau profile show prod
# For another program, without the secrets
moldau profile show prod --json
"""
)
@name_argument
@json_option()
def show(name: str, as_json: bool) -> None:
    """Show the settings of a profile; passwords stay hidden."""
    settings = profiles.shown(profiles.load(name))
    if as_json:
        print_json({"name": name, "file": profiles.path_of(name), "settings": settings})
        return
    print_table(
        [Column("key", style="bold", fold=False), Column("value")], [list(pair) for pair in settings.items()]
    )
    note(profiles.path_of(name))


@command.command(examples="moldau profile remove prod")
@name_argument
@json_option()
def remove(name: str, as_json: bool) -> None:
    """Remove a profile, with the password in it."""
    profiles.remove(name)
    if as_json:
        print_json({"name": name, "status": "removed"})
    else:
        say(f"{name}: {good('removed')}")


def row(name: str, is_default: bool) -> dict[str, Any]:
    settings = profiles.load(name)
    return {
        "name": name,
        "bootstrap": settings.get(profiles.BOOTSTRAP, ""),
        "protocol": settings.get("security.protocol", "plaintext").upper(),
        "user": settings.get("sasl.username", ""),
        "default": is_default,
    }


def settings_of(
    bootstrap: str | None,
    ca: str | None,
    certificate: str | None,
    key: str | None,
    user: str | None,
    password_file: str | None,
    mechanism: str | None,
    protocol: str | None,
) -> dict[str, str]:
    """The options of `add` in librdkafka's names."""
    if user is None and (mechanism or password_file):
        raise usage("--mechanism and --password-file are about a user.", "Name the user with --user.")
    settings = {}
    if bootstrap is not None:
        settings[profiles.BOOTSTRAP] = bootstrap
    if protocol is None and (user or ca or certificate):
        protocol = "SASL_SSL" if user else "SSL"
    if protocol is not None:
        settings["security.protocol"] = protocol.lower()
    if ca is not None:
        settings["ssl.ca.location"] = os.path.abspath(ca)
    if certificate is not None:
        settings["ssl.certificate.location"] = os.path.abspath(certificate)
        settings["ssl.key.location"] = os.path.abspath(key or certificate)
    if user is not None:
        settings |= {
            "sasl.mechanism": (mechanism or DEFAULT_MECHANISM).upper(),
            "sasl.username": user,
            "sasl.password": password_for(user, password_file),
        }
    return settings


def password_for(user: str, file: str | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise usage(
                "There is no terminal to ask for the password.", "Give it with --password-file FILE, or -."
            )
        return str(click.prompt(f"Password of {user}", hide_input=True, err=True))
    try:
        if file == STDIN:
            line = sys.stdin.readline()
        else:
            with open(file, encoding="utf-8") as opened:
                line = opened.readline()
    except UnicodeDecodeError:
        raise usage("The password is not text in UTF-8.") from None
    except OSError as error:
        raise file_error(error, file) from error
    password = line.rstrip("\r\n")
    if not password:
        raise usage("The password is empty.")
    return password


def from_file(file: str) -> dict[str, str]:
    from moldau.cli.client_file import read_client_file

    return {
        name: os.path.abspath(value) if name.endswith(".location") else value
        for name, value in read_client_file(file).items()
    }


def check(settings: dict[str, str]) -> None:
    """Whether librdkafka takes them, and finds what the files should have."""
    from moldau.spark.client_options import check_client_config

    try:
        check_client_config(settings, "admin")
    except ValueError as error:
        raise usage(
            f"The client refuses these settings: {str(error).partition(': ')[2].rstrip('.')}."
        ) from None
