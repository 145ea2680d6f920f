"""`moldau log`: look into the files of a data folder, without a cluster and without changing anything."""

from __future__ import annotations

import click

from moldau.cli.help import Group
from moldau.cli.log_du import du
from moldau.cli.log_dump import dump
from moldau.cli.log_verify import verify


@click.group(
    name="log",
    cls=Group,
    examples="""
# What takes how much room
moldau log du ./moldau-data
# Is every byte as it should be?
moldau log verify ./moldau-data
# The batches of a partition, from an offset on
moldau log dump ./moldau-data --topic orders --partition 0 --from 1500
""",
)
def command() -> None:
    """Dump, verify and measure the files of a data folder."""


command.add_command(dump)
command.add_command(verify)
command.add_command(du)
