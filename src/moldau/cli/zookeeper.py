"""`moldau zookeeper`: a ZooKeeper ensemble on this machine, for trials and tests, until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli.complete import folders
from moldau.cli.data_folder import cannot_start, prepare_folder
from moldau.cli.errors import CliError, usage
from moldau.cli.help import Group
from moldau.cli.options import Whole, json_option
from moldau.cli.output import note

if TYPE_CHECKING:
    from moldau.cli.zookeeper_ensemble import Ensemble

TEMPORARY = ":temp:"
NODES_MAX = 9
DEFAULT_PORT = 2181
LOOK_S = 0.5


@click.group(
    name="zookeeper",
    cls=Group,
    examples="""
# Three nodes on localhost:2181 to 2183, data in ./zookeeper-data
moldau zookeeper up
# In another terminal: a broker that keeps the cluster's state there
moldau up --store zookeeper:localhost:2181,localhost:2182,localhost:2183
""",
)
def command() -> None:
    """Run a ZooKeeper ensemble on this machine, for trials and tests."""


@command.command(
    name="up",
    examples="""
moldau zookeeper up
# One node on another port, with data that is thrown away at the end
moldau zookeeper up --nodes 1 --port 12181 --data :temp:
# On any free ports: the ready line tells them
moldau zookeeper up --port 0
""",
)
@click.option(
    "-n",
    "--nodes",
    type=Whole(1, NODES_MAX),
    default=3,
    show_default=True,
    metavar="N",
    help="How many. More than half must live: three survive the loss of one, five of two.",
)
@click.option(
    "-p",
    "--port",
    type=Whole(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="PORT",
    help="Where clients find the first node, the others on the ports after it; 0 takes free ones.",
)
@click.option(
    "-d",
    "--data",
    default="zookeeper-data",
    show_default=True,
    metavar="DIR",
    shell_complete=folders,
    help=f"The data folder; {TEMPORARY} is thrown away at the end.",
)
@json_option("Print the ready line as JSON.")
def up(nodes: int, port: int, data: str, as_json: bool) -> None:
    """Run an ensemble on this machine until Ctrl-C.

    It prints one line `ready: zookeeper:...` on stdout when clients can work: what `--store` takes. It needs Java
    17, and takes ZooKeeper's jars from pyspark where that is installed, else from Maven. For production run ZooKeeper
    itself, one node on each of three machines or five.
    """
    from moldau.cli.zookeeper_ensemble import Ensemble, StartFailed
    from moldau.runtime.real.java import Unavailable

    if port + nodes - 1 > 65535:
        raise usage(f"There are no {nodes} ports from {port} on.", "Take a smaller --port.")
    with data_folder(data) as folder:
        ensemble = Ensemble(Path(folder), choose_ports(port, nodes))
        asked_to_end = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: asked_to_end.set())
        try:
            ensemble.start()
            announce(ensemble, as_json)
            watch(ensemble, asked_to_end)
        except Unavailable as reason:
            raise cannot_start(
                str(reason), "`apt-get install openjdk-17-jre-headless maven`, or the like."
            ) from None
        except StartFailed as reason:
            raise cannot_start(str(reason), f"Look into {ensemble.nodes[0].log} and the others.") from None
        finally:
            ensemble.stop()


def choose_ports(first: int, nodes: int) -> list[int]:
    from moldau.runtime.real.free_ports import HOST, free_port

    if first == 0:
        return list(dict.fromkeys(free_port() for _ in range(10 * nodes)))[:nodes]
    ports = list(range(first, first + nodes))
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                is_taken = error.errno == errno.EADDRINUSE
                why = "is taken" if is_taken else f"cannot be used: {os.strerror(error.errno or 0)}"
                raise cannot_start(
                    f"Port {port} {why}.", "Name other ones with --port; 0 takes free ones."
                ) from None
    return ports


def announce(ensemble: Ensemble, as_json: bool) -> None:
    for node in ensemble.nodes:
        note(f"node {node.number}: port {node.port}, process {node.pid}, log {node.log}")
    line = json.dumps({"ready": True, "store": ensemble.url}) if as_json else f"ready: {ensemble.url}"
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def watch(ensemble: Ensemble, asked_to_end: threading.Event) -> None:
    """Until Ctrl-C, or until the last node has ended."""
    living = list(ensemble.nodes)
    while not asked_to_end.wait(LOOK_S):
        for node in [node for node in living if node.has_ended]:
            note(f"node {node.number} has ended; its log is {node.log}")
            living.remove(node)
        if not living:
            raise CliError("All nodes have ended.", f"Look into {ensemble.nodes[0].log} and the others.")


@contextlib.contextmanager
def data_folder(data: str) -> Iterator[str]:
    if data != TEMPORARY:
        prepare_folder(data, "--data")
        yield data
        return
    folder = tempfile.mkdtemp(prefix="moldau-zookeeper-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
