"""`moldau up`: a broker on this machine, until Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator

import click

from moldau.cli.complete import broker_pairs, folders
from moldau.cli.data_folder import (
    STORE_FILE,
    broker_folder,
    only_broker,
    prepare_folder,
    refuse_foreign_cluster,
)
from moldau.cli.errors import usage
from moldau.cli.help import Command
from moldau.cli.launch import Launch, log_options, read_config, run_broker, store_option, store_path
from moldau.cli.options import Whole, json_option, parse_pairs, set_option

TEMPORARY = ":temp:"
BROKER_ID = 1
DEFAULTS = {
    # On one machine, for one person: nobody else is about to join a group, and no other broker can hold a copy.
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
"""Where `moldau up` starts from something else than Kafka's default."""


@click.command(
    name="up",
    cls=Command,
    examples="""
# On localhost:9092, data in ./moldau-data
moldau up
# On any free port, with data that is thrown away at the end
moldau up --port 0 --data :temp:
# For this machine only (else it listens on all addresses, without passwords)
moldau up --set listeners=PLAINTEXT://127.0.0.1:9092
# With Kafka's settings
moldau up --set num.partitions=3 --set message.max.bytes=10485760
# With metrics and health on http://127.0.0.1:9100
moldau up --set moldau.http.port=9100
""",
)
@click.option(
    "-p",
    "--port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Where the broker listens; 0 takes a free one.  [default: 9092]",
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
@store_option
@set_option(
    "-s", "--set", text="A config of the broker, by Kafka's name; may be repeated.", complete=broker_pairs
)
@log_options
@json_option("Print the ready line and the logs as JSON.")
def command(
    port: int | None,
    data: str,
    store: str | None,
    settings: tuple[str, ...],
    log_level: str,
    log_format: str,
    as_json: bool,
) -> None:
    """Run a broker on this machine until Ctrl-C.

    It prints one line `ready: bootstrap.servers=...` on stdout when clients can work; logs go to stderr.
    """
    options = parse_pairs(settings, "--set")
    for name in ("log.dirs", "log.dir", "node.id", "broker.id"):
        if name in options:
            raise usage(f"`moldau up` sets {name} itself.", "Use --data for the folder, or `moldau broker`.")
    if port is not None:
        if "listeners" in options:
            raise usage("--port and --set listeners=... exclude each other.", "Leave one of them out.")
        options["listeners"] = f"PLAINTEXT://:{port}"
    with data_folder(data) as given:
        folder = os.path.abspath(given)
        broker_id = only_broker(folder, default=BROKER_ID)
        defaults = DEFAULTS | {"node.id": str(broker_id), "log.dirs": broker_folder(folder, broker_id)}
        config = read_config(defaults, None, options)
        refuse_foreign_cluster(folder, "--data")
        prepare_folder(folder, "--data")
        prepare_folder(broker_folder(folder, broker_id), "--data")
        default_store = os.path.join(folder, STORE_FILE)
        path = store_path(store or config["moldau.store"], default_store)
        run_broker(Launch(config, path, as_json, log_level, log_format))


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
