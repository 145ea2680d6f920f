"""`moldau broker`: one broker from a configuration file."""

from __future__ import annotations

import os

import click

from moldau.cli.complete import broker_pairs, files
from moldau.cli.data_folder import STORE_FILE, prepare_folder, refuse_foreign_broker
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
from moldau.cli.options import json_option, parse_pairs, set_option


@click.command(
    name="broker",
    cls=Command,
    examples="""
moldau broker --config broker.toml
moldau broker --config server.properties --set log.dirs=/var/lib/moldau
# One of several, on machines that share a ZooKeeper ensemble
moldau broker -c broker.toml --store zookeeper:zk1:2181,zk2:2181/moldau
# A minimal broker.toml
#   node.id = 1
#   listeners = ["PLAINTEXT://:9092"]
#   log.dirs = "/var/lib/moldau"
# and, where it is the only broker: Kafka's defaults ask for three
#   offsets.topic.replication.factor = 1
#   transaction.state.log.replication.factor = 1
#   transaction.state.log.min.isr = 1
""",
)
@click.option(
    "-c",
    "--config",
    "path",
    required=True,
    metavar="FILE",
    shell_complete=files,
    help="A .toml or .properties file with Kafka's keys.",
)
@store_option
@set_option("-s", "--set", text="A config that wins over the file; may be repeated.", complete=broker_pairs)
@log_options
@json_option("Print the ready line and the logs as JSON.")
def command(
    path: str, store: str | None, settings: tuple[str, ...], log_level: str, log_format: str, as_json: bool
) -> None:
    """Run one broker from a configuration file.

    Values come from the file, from variables such as MOLDAU_NUM_PARTITIONS, and from --set; the latter win.
    SIGTERM and Ctrl-C stop it cleanly. It outlives its terminal: SIGHUP is noted in the log, and changes nothing.
    """
    config, remarks = read_config({}, path, parse_pairs(settings, "--set"))
    option = "log.dirs"
    default_store = os.path.join(config.log_dir, STORE_FILE)
    url = store_url(store or configured_store(config), default_store)
    refuse_foreign_broker(config.log_dir, option)
    if url == store_url("", default_store) or len(config.log_dirs) == 1:
        prepare_folder(config.log_dir, option)  # else the broker can do without one of its folders
    run_broker(Launch(config, url, as_json, log_level, log_format, is_daemon=True, remarks=remarks))
