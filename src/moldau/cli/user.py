"""`moldau user`: create, list and delete SCRAM users, of a cluster or, before it is started, of its store.

A password comes from a prompt, a file or stdin: never from the command line, which others can read. What goes to the
cluster, and what it keeps, is salted.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from moldau.cli.client import Connection
from moldau.cli.errors import CliError, Exit, file_error, usage
from moldau.cli.help import Group
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.outcomes import Outcome, report
from moldau.cli.output import Column, note, print_json, print_table

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS, ITERATIONS_MAX = 4096, 16384
PASSWORD_BYTES_MAX = 4096
STDIN = "-"

_mechanism = click.option(
    "-m",
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="For this mechanism alone; may be repeated.  [default: both]",
)
_data = click.option(
    "--data", metavar="FOLDER", help="Of the broker with this data folder, which does not run now."
)
_store = click.option(
    "--store", metavar="URL", help="Of the cluster with this store, none of whose brokers runs now."
)


@click.group(
    name="user",
    cls=Group,
    examples="""
moldau user create alice
moldau user list
moldau user delete alice
""",
)
def command() -> None:
    """Create, list and delete users with passwords (SCRAM)."""


@command.command(
    examples="""
# Asks for the password
moldau user create alice
# In scripts; - is stdin
moldau user create alice --password-file alice.txt
# Before the first start
moldau user create admin --data ./moldau-data
"""
)
@click.argument("name", metavar="USER")
@click.option("--password-file", metavar="FILE", help="The password is this file's first line; - is stdin's.")
@_mechanism
@click.option(
    "--iterations",
    type=Whole(ITERATIONS, ITERATIONS_MAX),
    default=ITERATIONS,
    metavar="N",
    help=f"How dear trying a password is, {ITERATIONS} to {ITERATIONS_MAX}.  [default: {ITERATIONS}]",
)
@_data
@_store
@cluster_options
@json_option()
def create(
    name: str,
    password_file: str | None,
    mechanisms: tuple[str, ...],
    iterations: int,
    data: str | None,
    store: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Create a user, or give one a new password."""
    url = store_of(data, store)
    connection = Connection(target) if url is None else None
    password = read_password(name, password_file)
    chosen = chosen_of(mechanisms)
    if url is not None:
        from moldau.cli.user_store import set_password

        report("user", {name: set_password(url, name, password, chosen, iterations)}, as_json)
        return
    from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    assert connection is not None
    for mechanism in chosen:  # a request can name a user once
        info = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], iterations)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        alter(connection, name, change)
    report("user", {name: "created"}, as_json)


@command.command(
    name="list",
    examples="""
moldau user list
moldau user list --json | jq -r '.[].user'
""",
)
@_data
@_store
@cluster_options
@json_option()
def list_users(data: str | None, store: str | None, target: Target, as_json: bool) -> None:
    """List users, and by which mechanisms they can log in."""
    url = store_of(data, store)
    users = users_of_cluster(Connection(target)) if url is None else users_of_store(url)
    if as_json:
        print_json([{"user": name, "mechanisms": own} for name, own in sorted(users.items())])
    elif not users:
        note("No users.")
    else:
        columns = [Column("user", style="bold"), Column("mechanisms")]
        print_table(columns, [[name, ", ".join(own)] for name, own in sorted(users.items())])


@command.command(
    examples="""
moldau user delete alice
moldau user delete alice --mechanism SCRAM-SHA-256
"""
)
@click.argument("names", metavar="USER...", nargs=-1, required=True)
@_mechanism
@_data
@_store
@cluster_options
@json_option()
def delete(
    names: tuple[str, ...],
    mechanisms: tuple[str, ...],
    data: str | None,
    store: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """Delete users. Connections that they have stay until they end."""
    url = store_of(data, store)
    wanted = dict.fromkeys(names)
    if url is not None:
        from moldau.cli.user_store import delete_users

        outcomes = delete_users(url, list(wanted), chosen_of(mechanisms))
    else:
        connection = Connection(target)
        known = users_of_cluster(connection)
        chosen = chosen_of(mechanisms)
        outcomes = {name: delete_one(connection, name, known.get(name, []), chosen) for name in wanted}
    report("user", outcomes, as_json)


def delete_one(connection: Connection, name: str, known: list[str], chosen: list[str]) -> Outcome:
    from confluent_kafka.admin import ScramMechanism, UserScramCredentialDeletion

    own = [mechanism for mechanism in chosen if mechanism in known]
    if not own:
        return no_user(name)
    try:
        for mechanism in own:
            kind = ScramMechanism[mechanism.replace("-", "_")]
            alter(connection, name, UserScramCredentialDeletion(name, kind))
    except CliError as error:
        if error.code is Exit.UNREACHABLE:
            raise
        return error
    return "deleted"


def no_user(name: str) -> CliError:
    return CliError(
        f"There is no such user '{name}'.", "`moldau user list` shows who is there.", Exit.NOT_FOUND
    )


def alter(connection: Connection, name: str, change: Any) -> None:
    timeout_s = connection.target.timeout_s
    futures = connection.admin.alter_user_scram_credentials([change], request_timeout=timeout_s)
    connection.result(futures[name], subject=name)


def users_of_cluster(connection: Connection) -> dict[str, list[str]]:
    future: Any = connection.admin.describe_user_scram_credentials(
        request_timeout=connection.target.timeout_s
    )
    return {
        name: [info.mechanism.name.replace("_", "-") for info in found.scram_credential_infos]
        for name, found in connection.result(future).items()
    }


def users_of_store(url: str) -> dict[str, list[str]]:
    from moldau.cli.user_store import users

    return users(url)


def chosen_of(mechanisms: tuple[str, ...]) -> list[str]:
    return list(dict.fromkeys(mechanisms)) or list(MECHANISMS)


def store_of(data: str | None, store: str | None) -> str | None:
    """The store to work on where no broker runs; None for a cluster that does."""
    if data is None and store is None:
        return None
    if data is not None and store is not None:
        raise usage("Name the store by either --data or --store.")
    from moldau.cli.user_store import url_of

    return url_of(data, store)


def read_password(name: str, file: str | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise usage(
                "There is no terminal to ask for the password.", "Write --password-file FILE, or - for stdin."
            )
        password: str = click.prompt(
            f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True
        )
        return password
    try:
        if file == STDIN:
            raw = sys.stdin.buffer.readline(PASSWORD_BYTES_MAX + 2)
        else:
            with open(file, "rb") as opened:
                raw = opened.readline(PASSWORD_BYTES_MAX + 2)
        password = raw.rstrip(b"\r\n").decode()
    except OSError as error:
        raise file_error(error, file) from error
    except UnicodeDecodeError:
        raise usage("The password is not text in UTF-8.") from None
    if not password:
        raise usage("The password is empty.")
    if len(raw) > PASSWORD_BYTES_MAX:
        raise usage(f"The password has more than {PASSWORD_BYTES_MAX} bytes.")
    return password
