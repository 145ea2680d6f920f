"""`moldau message`: produce from stdin, consume to stdout."""

from __future__ import annotations

import click

from moldau.cli.help import Group
from moldau.cli.message_consume import consume
from moldau.cli.message_produce import produce


@click.group(
    name="message",
    cls=Group,
    examples="""
echo 'hello' | moldau message produce orders
moldau message consume orders --follow
# Copy a topic with keys, headers and timestamps
moldau message consume orders --json |
  moldau message produce copy --json-input
""",
)
def command() -> None:
    """Produce messages from stdin, consume to stdout."""


command.add_command(produce)
command.add_command(consume)
