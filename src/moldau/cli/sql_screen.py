"""What `moldau sql` prints: aligned tables, JSON by the line, CSV.

Results go to stdout, remarks to stderr. A result may be long or endless: columns are as wide as the first rows need,
and grow where later ones need more.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import Column, count_of, note, print_table, say

if TYPE_CHECKING:
    from moldau.spark.pipeline.progress import FlowProgress

CELL_MAX = 60
"""Characters of a cell on a terminal; in a pipe nothing is cut."""
Cells = Sequence[str | None]
HELP = """\
SELECT .. FROM orders                        what is there now
SELECT .. FROM STREAM orders                 rows as they come, until Ctrl-C
  .. WITH (startingOffsets='earliest')       from the start of the topic
CREATE TABLE orders (id INT, ..)             declare the columns of a topic
CREATE TEMPORARY VIEW v AS SELECT ..         a name for a query
CREATE STREAMING TABLE t AS SELECT ..        runs until STOP t, and writes to the topic t
SHOW TOPICS [LIKE 'o*'], DESCRIBE orders     what there is to read
SHOW STREAMS, STOP t                         what runs
SAVE PIPELINE 'folder'                       what runs, as a project for `moldau pipeline run`
HELP, QUIT

A statement ends with a semicolon. Every row has _key, _partition, _offset, _timestamp, _headers, _topic and
_corrupt, too: name them to see them. Names with a dash or a dot stand in `back-quotes`."""


class Screen:
    def __init__(self, style: str, rows_max: int | None, is_prompt: bool) -> None:
        """`style`: table, json or csv."""
        self.wants_json = style == "json"
        self.rows_max = rows_max
        self._style = style
        self._is_prompt = is_prompt
        self._columns: Sequence[str] = ()
        self._widths: list[int] = []
        self._headed = False

    def begin(self, columns: Sequence[str], again: bool = False) -> None:
        self._columns = columns
        self._headed = again and self._style == "csv"
        if not again:
            self._widths = []
        elif self._style == "table":
            say("")

    def rows(self, rows: Sequence[Cells]) -> None:
        if self._style == "json":
            click.echo("".join(f"{row[0]}\n" for row in rows), nl=False)
        elif self._style == "csv":
            self._write_csv(rows)
        else:
            self._write_table(rows)
        sys.stdout.flush()

    def end(self, count: int, is_cut: bool) -> None:
        if self._is_prompt and self._style == "table":
            if is_cut:
                note(f"the first {count_of(count, 'row')}; LIMIT says how many you want")
            else:
                note(count_of(count, "row"))

    def listing(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self._style == "table":
            print_table([Column(name, right=name == "partitions") for name in columns], rows)
            return
        self.begin([name or "note" for name in columns])
        if self._style == "csv":
            self._write_csv(rows)
            return
        for row in rows:
            print_line({name: cell for name, cell in zip(self._columns, row, strict=True) if cell})

    def streams(self, flows: Sequence[FlowProgress]) -> None:
        from moldau.cli.pipeline_view import error_lines, shown

        documents = [flow.document() for flow in flows]
        if self._style != "table":
            for document in documents:
                print_line(document)
            return
        print_table(*shown(documents))
        for line in error_lines(documents):
            say(click.style(line, fg="red"))

    def say(self, text: str) -> None:
        """About what was done: part of no result."""
        say(text, err=self._style != "table")

    def note(self, text: str) -> None:
        note(text)

    def help(self) -> None:
        say(HELP)

    def _write_csv(self, rows: Sequence[Cells]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not self._headed:
            writer.writerow(self._columns)
            self._headed = True
        writer.writerows([["" if cell is None else cell for cell in row] for row in rows])

    def _write_table(self, rows: Sequence[Cells]) -> None:
        lines = [[self._cell(cell) for cell in row] for row in rows]
        longest = [
            max((len(line[index]) for line in lines), default=0) for index in range(len(self._columns))
        ]
        before = self._widths or [len(name) for name in self._columns]
        self._widths = [max(pair) for pair in zip(before, longest, strict=True)]
        if not self._headed:
            say(self._line([click.style(name, bold=True) for name in self._columns], self._columns))
            say(self._line(["-" * width for width in self._widths]))
            self._headed = True
        for line in lines:
            say(self._line(line))

    def _line(self, cells: Sequence[str], plain: Sequence[str] | None = None) -> str:
        """`plain` are the cells without colours, which have no width."""
        parts = [
            cell + " " * (width - len(bare))
            for cell, bare, width in zip(cells, plain or cells, self._widths, strict=True)
        ]
        return "  ".join(parts).rstrip()

    def _cell(self, cell: str | None) -> str:
        text = "NULL" if cell is None else " ".join(cell.splitlines()) if "\n" in cell else cell
        if len(text) > CELL_MAX and sys.stdout.isatty():
            return text[: CELL_MAX - 3] + "..."
        return text


def print_line(document: Any) -> None:
    import json

    click.echo(json.dumps(document, ensure_ascii=False))
