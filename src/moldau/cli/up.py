"""`moldau up`: a broker on this machine, or several, until Ctrl-C."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import click

from moldau.cli.complete import broker_pairs, folders
from moldau.cli.data_folder import (
    SECURITY_FOLDER,
    STORE_FILE,
    broker_folder,
    only_broker,
    prepare_folder,
    refuse_foreign_cluster,
)
from moldau.cli.errors import Exit, usage
from moldau.cli.first_user import FirstUser
from moldau.cli.help import Command
from moldau.cli.launch import (
    Launch,
    configured_store,
    log_options,
    read_config,
    run_broker,
    store_option,
    store_url,
)
from moldau.cli.logging_setup import set_up_logging
from moldau.cli.min_isr import wanted_of
from moldau.cli.options import Whole, json_option, parse_pairs, set_option
from moldau.cli.reach import listeners_of, remarks_on_reach
from moldau.cli.up_plan import (
    BROKERS_MAX,
    configs_of,
    named,
    new_brokers,
    number_of_brokers,
    settings_for,
)

log = logging.getLogger("moldau.cli")

TEMPORARY = ":temp:"
BROKER_ID = 1
OWN_KEYS = ("log.dirs", "log.dir", "node.id", "broker.id")


@click.command(
    name="up",
    cls=Command,
    examples="""
# On localhost:9092, data in ./moldau-data
moldau up
# On any free port, with data that is thrown away at the end
moldau up --port 0 --data :temp:
# For other machines too: on all addresses of this one, without a password
moldau up --open
# With Kafka's settings
moldau up --set num.partitions=3 --set message.max.bytes=10485760
# With metrics and health on http://127.0.0.1:9100
moldau up --set moldau.http.port=9100
# With TLS and a password, made at the first start; other commands use them
moldau up --secure
# A cluster: three brokers on 9092, 9093 and 9094, a process each
moldau up --brokers 3
""",
)
@click.option(
    "-n",
    "--brokers",
    type=Whole(1, BROKERS_MAX),
    metavar="N",
    help="How many brokers, each a process of its own if there are several.  "
    "[default: as many as the data folder has, or 1]",
)
@click.option(
    "-p",
    "--port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Where the broker listens, the next ones on the ports behind it; 0 takes free ones.  "
    "[default: 9092]",
)
@click.option(
    "--open",
    "is_open",
    is_flag=True,
    help="Listen on all addresses of this machine: for everybody who reaches it, or with --secure for who "
    "has the password.  [default: for this machine only]",
)
@click.option(
    "-d",
    "--data",
    default="moldau-data",
    show_default=True,
    metavar="DIR",
    shell_complete=folders,
    help=f"The data folder; {TEMPORARY} is thrown away at the end.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="With TLS and a password: makes both, prints the clients' settings, and keeps them as a profile.",
)
@store_option
@click.option("--no-restart", is_flag=True, help="Leave a broker dead that ends; else it is started again.")
@set_option(
    "-s", "--set", text="A config of the brokers, by Kafka's name; may be repeated.", complete=broker_pairs
)
@log_options
@json_option("Print the ready line and the logs as JSON.")
def command(
    brokers: int | None,
    port: int | None,
    is_open: bool,
    data: str,
    secure: bool,
    store: str | None,
    no_restart: bool,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
    as_json: bool,
) -> int:
    """Run a broker, or several, on this machine until Ctrl-C.

    It prints one line `ready: bootstrap.servers=...` on stdout when clients can work; logs go to stderr.
    Only programs on this machine reach it, unless --open or --set listeners=... lets others in. It ends with
    its terminal, cleanly (`moldau broker` does not).

    With --brokers N topics have copies on other brokers: default.replication.factor and those of the
    cluster's own topics are 3, or N if that is less; from 3 brokers on min.insync.replicas is 2, so that a
    write with acks=all outlives any one broker. A broker that ends is started again; Ctrl-C stops one after
    the other, Ctrl-C twice ends them at once. Broker I has its data and its pid in DIR/broker-I.

    --secure makes an authority, a certificate and a user with a password in DIR/security, for this user of
    the machine alone, and keeps them. Clients come in by SASL_SSL; the profile `local` has their settings,
    and is used by `moldau` while the broker runs where no other is.
    """
    options = parse_pairs(settings, "--set")
    refuse_own(options)
    if port is not None or is_open or secure:
        if "listeners" in options:
            option = "--secure" if secure else "--open" if is_open else "--port"
            raise usage(f"{option} and --set listeners=... exclude each other.", "Leave one of them out.")
        options["listeners"] = listeners_of(port, is_open=is_open, is_secure=secure)
    with data_folder(data) as given:
        folder = os.path.abspath(given)
        refuse_foreign_cluster(folder, "--data")
        number = number_of_brokers(folder, brokers)
        how = How(as_json, log_level, log_format, thrown_away=folder if data == TEMPORARY else "")
        with (
            security_of(folder, options, how, is_open=is_open)
            if secure
            else contextlib.nullcontext() as security
        ):
            if number == 1:
                run_one(folder, store, options, how, security)
                return Exit.OK
            return run_several(folder, number, store, options, how, security, restarts=not no_restart)


def refuse_own(options: Mapping[str, str]) -> None:
    """Where its data are, and which broker is which, follows from --data alone: of options and of variables."""
    from moldau.config.sources import variable_of

    for name in OWN_KEYS:
        if name in options:
            raise usage(f"`moldau up` sets {name} itself.", "Use --data for the folder, or `moldau broker`.")
        if (variable := variable_of(name)) in os.environ:
            raise usage(
                f"`moldau up` sets {name} itself, and there is a variable {variable}.",
                f"Unset {variable}, and use --data for the folder, or `moldau broker`.",
            )


class How(NamedTuple):
    """How it speaks, and which folder is removed at the end: fields of a `Launch`."""

    as_json: bool
    log_level: str
    log_format: str
    thrown_away: str


class Security(NamedTuple):
    """With `--secure`: who is to be there, and what is told when clients can work."""

    user: FirstUser
    tell: Callable[[str], object]


@contextlib.contextmanager
def security_of(folder: str, options: dict[str, str], how: How, *, is_open: bool) -> Iterator[Security]:
    """What `--secure` adds to the options, and what it keeps and tells while brokers run."""
    from moldau.cli.secure import broker_settings, hosts_named, hosts_of, secured
    from moldau.cli.secure_profile import kept

    made = secured(folder, hosts_of(hosts_named(options), is_open=is_open))
    for name, value in broker_settings(made).items():
        options.setdefault(name, value)
    with kept(made, as_json=how.as_json, is_thrown_away=bool(how.thrown_away)) as tell:
        yield Security(FirstUser(made.user, made.password_file), tell)


def run_one(
    folder: str, store: str | None, options: dict[str, str], how: How, security: Security | None
) -> None:
    """One broker, in this process."""
    broker_id = only_broker(folder, default=BROKER_ID)
    defaults = settings_for(1) | {"node.id": str(broker_id), "log.dirs": broker_folder(folder, broker_id)}
    config, remarks = read_config(defaults, None, options)
    prepare_folder(folder, "--data")
    prepare_folder(broker_folder(folder, broker_id), "--data")
    url = store_url(store or configured_store(config), os.path.join(folder, STORE_FILE))
    wanted = wanted_of(options, before=1, brokers=1)
    remarks = (*remarks, *remarks_on_reach(config, url), *remarks_on_security(folder, security))
    user, tell = security or (None, None)
    run_broker(
        Launch(
            config,
            url,
            **how._asdict(),
            min_isr=wanted,
            remarks=remarks,
            first_user=user,
            on_ready=tell,
        )
    )


def run_several(
    folder: str,
    number: int,
    store: str | None,
    options: dict[str, str],
    how: How,
    security: Security | None,
    *,
    restarts: bool,
) -> int:
    """A process for each broker, and this one to look after them."""
    from moldau.cli.supervised import Order
    from moldau.cli.supervisor import supervise
    from moldau.runtime.real.free_ports import FreePorts

    defaults = settings_for(number) | {"node.id": "1", "log.dirs": folder}
    base, remarks = read_config(defaults, None, options)
    url = store_url(store or configured_store(base), os.path.join(folder, STORE_FILE))
    log_format = "json" if how.as_json else how.log_format
    user, tell = security or (None, None)
    ports = FreePorts()
    try:
        configs = configs_of(base, folder, number, ports.take)
        ports.let_servers_have_them()
        new = new_brokers(folder, number)
        wanted = wanted_of(options, before=number - len(new), brokers=number)
        prepare_folder(folder, "--data")
        for config in configs:
            prepare_folder(config.log_dir, "--data")
        set_up_logging(how.log_level, log_format)
        for remark in (*remarks, *remarks_on_reach(base, url), *remarks_on_security(folder, security)):
            log.warning(remark)
        if new:
            log.info(
                "%s new here: what is there stays where it is until `moldau cluster reassign` moves it",
                f"{named(new)} {'is' if len(new) == 1 else 'are'}",
            )
        orders = [
            Order(
                f"broker-{config.node_id}",
                dict(config.static),
                url,
                how.log_level,
                log_format,
                os.getpid(),
                number,
                how.thrown_away,
                user or (),
            )
            for config in configs
        ]
        return supervise(
            orders, restarts=restarts, as_json=how.as_json, data=folder, min_isr=wanted, then=tell
        )
    finally:
        ports.close()


def remarks_on_security(folder: str, security: Security | None) -> Iterator[str]:
    """Who had TLS and a password before may think that they have them still."""
    made = os.path.join(folder, SECURITY_FOLDER)
    if security is None and os.path.isdir(made):
        yield f"this was started with --secure before ({made}), and is not now: nobody is asked for a password"


@contextlib.contextmanager
def data_folder(data: str) -> Iterator[str]:
    if data != TEMPORARY:
        yield data
        return
    folder = tempfile.mkdtemp(prefix="moldau-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
