"""What a page of the documentation shows: its blocks, the `moldau ...` commands in them and in its sentences."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from moldau.cli.app import root

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


class Page:
    def __init__(self, name: str) -> None:
        self.text = (ROOT / name).read_text(encoding="utf-8")
        self.blocks: list[tuple[str, str]] = BLOCK.findall(self.text)

    def lines(self) -> Iterator[str]:
        """What a person types, without the remarks behind it."""
        for kind, block in self.blocks:
            for line in block.splitlines() if not kind else ():
                yield re.sub(r"  +#.*$", "", line)

    def commands(self) -> Iterator[str]:
        """Every `moldau ...`: in its blocks, and with arguments in its sentences."""
        for line in self.lines():
            if found := re.search(r"(?:^|\| )(moldau .*)$", line):
                yield found[1]
        yield from re.findall(r"`(moldau [^`\s]+ [^`]*)`", BLOCK.sub("", self.text))


def parse(line: str) -> None:
    """As far as a command line goes without doing anything."""
    words = shlex.split(line)[1:]
    command: click.Command | None = root
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), words.pop(0))
    assert command is not None
    command.make_context(command.name, words)
