"""What commands print: tables, JSON documents, sizes and times that people can read.

On a terminal a table has colours and fits its width; in a pipe it is plain aligned columns, uncut, so that
`grep` and `awk` work on it. Results go to stdout, remarks about them to stderr.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
from collections.abc import Callable, Sequence
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
    style: str = ""  # one of STYLES
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


STYLES: dict[str, Callable[[str], str]] = {"": str, "bold": bold, "dim": dim}


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
    """A table as wide as the terminal at most: titles break between words, then texts that may be folded.

    On a terminal that is too narrow even so, a line goes on in the next.
    """
    import shutil

    widths = fitted_widths(columns, rows, shutil.get_terminal_size().columns)
    titles = [column.title.upper() for column in columns]
    header = functools.partial(click.style, fg="cyan", bold=True)
    draw_row(columns, widths, titles, [header] * len(columns))
    styles = [STYLES[column.style] for column in columns]
    for row in rows:
        draw_row(columns, widths, row, styles)


def fitted_widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """What each column needs, taken from the roomiest where it is more than there is."""
    cells = [max((len(row[index]) for row in rows), default=0) for index in range(len(columns))]
    widths = [max(len(column.title), cell) for column, cell in zip(columns, cells, strict=True)]
    least = [least_width(column, cell) for column, cell in zip(columns, cells, strict=True)]
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    for index in sorted(range(len(widths)), key=lambda index: least[index] - widths[index]):
        taken = max(0, min(excess, widths[index] - least[index]))
        widths[index] -= taken
        excess -= taken
    return widths


def least_width(column: Column, cell: int) -> int:
    """How narrow a column may get: no title is broken within a word, and no number at all."""
    word = max(map(len, column.title.split()), default=0)
    return max(word, min(cell, FOLD_WIDTH_LEAST) if column.fold and not column.right else cell)


def draw_row(
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[str],
    styles: Sequence[Callable[[str], str]],
) -> None:
    import textwrap

    folded = [
        textwrap.wrap(cell, width, break_on_hyphens=False) if len(cell) > width else [cell]
        for cell, width in zip(cells, widths, strict=True)
    ]
    for line in itertools.zip_longest(*folded, fillvalue=""):
        texts = [
            style(text.rjust(width) if column.right else text.ljust(width))
            for text, width, column, style in zip(line, widths, columns, styles, strict=True)
        ]
        say((" " * GAP).join(texts))


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
