"""What a person sees of a pipeline that runs: a table that is drawn anew on a terminal, or a line for each event.

A line is also printed now and then for flows that have done something, so that a log file tells how it goes.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.output import (
    Column,
    bold,
    console,
    count_of,
    dim,
    good,
    human_bytes,
    human_ms,
    plain_table,
    say,
)

if TYPE_CHECKING:
    from moldau.spark.pipeline.progress import FlowProgress

SUMMARY_S = 10.0
REDRAW_S = 0.5
COLUMNS = (
    Column("flow", style="bold"),
    Column("into"),
    Column("state"),
    Column("rows", right=True),
    Column("rows/s", right=True),
    Column("lag", right=True),
    Column("batches", right=True),
    Column("last", right=True),
    Column("keeps", right=True),
    Column("restarts", right=True),
)
COLOURS = {"running": "green", "done": "green", "restarting": "yellow", "failed": "red", "skipped": "red"}


def cells(flow: dict[str, Any]) -> list[str]:
    """One flow as a row of the table, from its document."""
    kept = ""
    if flow["state_rows"]:
        kept = f"{count_of(flow['state_rows'], 'row')}, {human_bytes(flow['state_bytes'])}"
    counts = not flow["kind"].startswith("materialized")
    return [
        flow["flow"],
        flow["target"],
        state_text(flow),
        f"{flow['rows']:,}" if counts else "",
        f"{flow['rows_per_s']:,.0f}" if counts else "",
        "" if flow["lag"] is None else f"{flow['lag']:,}",
        f"{flow['batches']:,}",
        human_ms(flow["batch_ms"]) if flow["batches"] else "",
        kept,
        str(flow["restarts"] or ""),
    ]


def state_text(flow: dict[str, Any]) -> str:
    if flow["state"] == "restarting":
        return f"restarts in {flow['restart_in_s']:.0f} s"
    return str(flow["state"])


def shown(flows: Sequence[dict[str, Any]]) -> tuple[list[Column], list[list[str]]]:
    """The table without the columns that are empty for every flow."""
    rows = [cells(flow) for flow in flows]
    kept = [at for at in range(len(COLUMNS)) if at < 5 or any(row[at] for row in rows)]
    return [COLUMNS[at] for at in kept], [[row[at] for at in kept] for row in rows]


def error_lines(flows: Sequence[dict[str, Any]]) -> list[str]:
    return [f"{flow['flow']} ({flow['place']}): {flow['error']}" for flow in flows if flow["error"]]


class Lines:
    """Events as lines on stdout; for programs, each is a JSON document."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._next = time.monotonic() + SUMMARY_S
        self._rows: dict[str, int] = {}

    def happened(self, flow: FlowProgress, text: str) -> None:
        if self._as_json:
            self._print(json.dumps({"event": text, **flow.document()}, ensure_ascii=False))
        else:
            self._print(f"{clock()} {flow.flow} {text}")

    def look(self, flows: Sequence[FlowProgress]) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + SUMMARY_S
        for flow in flows:
            if self._rows.get(flow.flow, 0) != flow.rows + flow.batches:
                self._rows[flow.flow] = flow.rows + flow.batches
                self.happened(flow, "has gone on") if self._as_json else self._print(
                    f"{clock()} {flow.flow}: {summary(flow.document())}"
                )

    def close(self, flows: Sequence[FlowProgress]) -> None:
        if not self._as_json:
            for line in table_lines([flow.document() for flow in flows]):
                self._print(line)

    def _print(self, line: str) -> None:
        click.echo(line)
        sys.stdout.flush()


def summary(flow: dict[str, Any]) -> str:
    """`1,000 rows in 4 batches, 50 rows/s, lag 0`."""
    if flow["kind"].startswith("materialized"):
        return f"computed {count_of(flow['batches'], 'time')}"
    rows, batches = count_of(flow["rows"], "row"), count_of(flow["batches"], "batch", "batches")
    parts = [f"{rows} in {batches}", f"{flow['rows_per_s']:,.0f} rows/s"]
    if flow["lag"] is not None:
        parts.append(f"lag {flow['lag']:,}")
    if flow["state_rows"]:
        parts.append(f"keeps {count_of(flow['state_rows'], 'row')} in {human_bytes(flow['state_bytes'])}")
    return ", ".join(parts)


def table_lines(flows: Sequence[dict[str, Any]]) -> list[str]:
    columns, rows = shown(flows)
    return [*plain_table(columns, rows), *error_lines(flows)]


class Live:
    """The table on a terminal, drawn anew; events of trouble stay above it."""

    def __init__(self, title: str, footer: str) -> None:
        from rich.live import Live as RichLive

        self._title = title
        self._footer = footer
        self._next = 0.0
        self._live = RichLive(console=console(), auto_refresh=False)
        self._live.start()

    def happened(self, flow: FlowProgress, text: str) -> None:
        if flow.error:
            self._live.console.print(f"{clock()} {flow.flow} {text}", style="yellow", markup=False)

    def look(self, flows: Sequence[FlowProgress]) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REDRAW_S
            self._draw(flows)

    def _draw(self, flows: Sequence[FlowProgress]) -> None:
        self._live.update(
            drawing(self._title, [flow.document() for flow in flows], self._footer), refresh=True
        )

    def close(self, flows: Sequence[FlowProgress]) -> None:
        self._footer = ""
        self._draw(flows)
        self._live.stop()


def drawing(title: str, flows: Sequence[dict[str, Any]], footer: str) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    columns, rows = shown(flows)
    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.title.upper(),
            justify="right" if column.right else "left",
            no_wrap=column.right,
            style=column.style,
        )
    for flow, row in zip(flows, rows, strict=True):
        texts = [Text(cell) for cell in row]
        texts[2].stylize(COLOURS.get(flow["state"], ""))
        table.add_row(*texts)
    errors = [Text(line, style="red") for line in error_lines(flows)]
    return Group(Text(title, style="bold"), table, *errors, *([Text(footer, style="dim")] if footer else []))


def clock() -> str:
    return time.strftime("%H:%M:%S")


@contextlib.contextmanager
def closing(view: Lines | Live, flows: Sequence[FlowProgress]) -> Iterator[None]:
    try:
        yield
    finally:
        view.close(flows)


def print_mistakes(mistakes: Sequence[Any]) -> None:
    for mistake in mistakes:
        say(f"{bold(str(mistake.place))}: {mistake.message}")
        if mistake.hint:
            say(dim(f"  {mistake.hint}"))


def print_flows(flows: Sequence[Any]) -> None:
    """What a check has found to be right."""
    for built in flows:
        reads = [
            *built.reads,
            *(f"{source.format}" for source in built.sources if source.format != "moldau_lake"),
        ]
        say(
            f"{good('ok')} {bold(built.flow.name)} into the {built.output.kind.value} {built.output.name}"
            f"{dim(' from ' + ', '.join(dict.fromkeys(reads))) if reads else ''}"
        )
