"""What commands print: tables, JSON documents, sizes and times that people can read.

On a terminal a table is drawn by rich, which is imported only then; in a pipe it is plain aligned columns,
uncut, so that `grep` and `awk` work on it. Results go to stdout, remarks about them to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from moldau.cli.help import colour_setting

GAP = 2  # between the columns of a table
FOLD_WIDTH_LEAST = 16  # of a column whose texts may be folded


@dataclass(frozen=True)
class Column:
    title: str
    right: bool = False
    style: str = ""
    fold: bool = True


def print_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def say(text: str, *, err: bool = False) -> None:
    click.echo(text, err=err, color=colour_setting())


def good(text: str) -> str:
    return click.style(text, fg="green")


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def note(text: str) -> None:
    """A remark for the person at the terminal; never part of the result."""
    say(dim(text), err=True)


def wants_drawing(stream: Any = None) -> bool:
    """Whether rich may draw: a terminal, or colours asked for."""
    if colour_setting() is True:
        return True
    return bool((stream or sys.stdout).isatty())


def console(*, err: bool = False) -> Any:
    """Rich's console with our colour rule."""
    from rich.console import Console

    setting = colour_setting()
    return Console(
        stderr=err,
        color_system=None if setting is False else "auto",
        force_terminal=True if setting else None,
        highlight=False,
    )


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    if wants_drawing():
        draw_table(columns, rows)
    else:
        for line in plain_table(columns, rows):
            click.echo(line)


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [[column.title.upper() for column in columns], *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return [
        "  ".join(
            cell.rjust(width) if column.right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def draw_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold cyan")
    least = [least_width(column, [row[index] for row in rows]) for index, column in enumerate(columns)]
    for column, width in zip(columns, least, strict=True):
        table.add_column(
            column.title.upper(),
            justify="right" if column.right else "left",
            style=column.style,
            overflow="fold",
            no_wrap=not column.fold,
            min_width=width,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    drawn = console()
    # On a terminal too narrow for it a line goes on in the next: that can be read, letters in a column cannot.
    drawn.width = max(drawn.width, sum(least) + GAP * len(columns))
    drawn.print(table)


def least_width(column: Column, cells: Sequence[str]) -> int:
    """How narrow a column may get: no title is broken within a word, and no number at all."""
    word = max(map(len, column.title.split()), default=0)
    cell = max(map(len, cells), default=0)
    return max(word, min(cell, FOLD_WIDTH_LEAST) if column.fold and not column.right else cell)


def count_of(number: int, noun: str, plural: str = "") -> str:
    """`1 message`, `2,000 messages`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def wrapped(text: str, indent: int, *, err: bool = False) -> str:
    """Text that goes on under itself on a terminal; one line where nobody looks."""
    if not (sys.stderr if err else sys.stdout).isatty():
        return text
    import shutil  # brings the compression modules with it: not for a command that prints no paragraph

    width = max(indent + 30, min(shutil.get_terminal_size().columns, 100))
    blank = " " * indent
    return click.wrap_text(text, width, blank, blank).strip()


def human_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_ms(milliseconds: float) -> str:
    """A duration as people say it: `850 us`, `4.2 ms`, `7 d`."""
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} us"
    if milliseconds < 1000:
        return f"{milliseconds:.1f} ms" if milliseconds < 100 else f"{milliseconds:.0f} ms"
    seconds = milliseconds / 1000
    for limit, unit_s, unit in ((60, 1, "s"), (3600, 60, "min"), (86400, 3600, "h")):
        if seconds < limit:
            return f"{seconds / unit_s:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"
