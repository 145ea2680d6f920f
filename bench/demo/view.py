"""What a person sees of the demo: a drawing on a terminal, made anew each second, or a line now and then elsewhere."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

from bench.demo.facts import PAGES_SHOWN, Facts
from bench.demo.parts import TOPICS
from moldau.cli.output import console, count_of
from moldau.cli.pipeline_view import COLOURS, shown

LINE_S = 5.0
PAGE_WIDTH, MINUTE_WIDTH = 24, 12
"""Of the longest bars."""
RESULTS_HEIGHT = PAGES_SHOWN + 3
PICTURE_WIDTH = 112


class Drawn:
    """On a terminal."""

    def __init__(self, title: str, footer: str) -> None:
        from rich.live import Live

        self._title = title
        self._footer = footer
        self._last: Any = None
        self._live = Live(console=console(), auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def say(self, text: str) -> None:
        self._live.console.print(text, style="dim", markup=False)

    def show(self, facts: Facts) -> None:
        self._last = drawing(facts, self._title, self._footer)
        self._live.update(self._last, refresh=True)

    def close(self) -> None:
        self._live.stop()

    def save(self, path: Path) -> None:
        """The last drawing as a picture, with no font fetched from elsewhere."""
        if self._last is not None:
            path.write_text(picture(self._last), encoding="utf-8")


class Lines:
    """In a pipe or a log file."""

    def __init__(self, title: str, footer: str) -> None:
        self._next = 0.0
        self.say(title)
        self.say(footer)

    def say(self, text: str) -> None:
        print(text, flush=True)

    def show(self, facts: Facts) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_S
            self.say(f"{time.strftime('%H:%M:%S')} {line(facts)}")

    def close(self) -> None:
        """Nothing is open."""


def line(facts: Facts) -> str:
    parts = [f"{count_of(facts.brokers, 'broker')}"]
    parts += [f"{topic} {facts.records[topic]:,} ({facts.rates[topic]:,.0f}/s)" for topic in facts.records]
    if not facts.flows:
        return ", ".join([*parts, "Spark is starting"])
    running = sum(flow["state"] == "running" for flow in facts.flows)
    parts.append(f"{running} of {count_of(len(facts.flows), 'flow')} running")
    if facts.lag is not None:
        parts.append(f"lag {facts.lag:,}")
    parts.append(f"sessions {facts.sessions:,}")
    if facts.pages:
        parts.append("top pages " + " ".join(f"{page} {views:,}" for page, views in facts.pages[:3]))
    return ", ".join(parts)


def drawing(facts: Facts, title: str, footer: str) -> Any:
    from rich.console import Group
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    def panel(title: str, content: Any, colour: str, height: int | None = None) -> Panel:
        return Panel(content, title=title, title_align="left", border_style=colour, height=height)

    panels = [
        panel(count_of(facts.brokers, "broker"), topics(facts), "blue"),
        panel("pipeline", flows(facts), "blue"),
    ]
    results = [
        panel("top pages (lake)", pages(facts), "green", RESULTS_HEIGHT),
        panel("sessions (lake)", sessions(facts), "green", RESULTS_HEIGHT),
        panel("views per minute (topic)", minutes(facts), "green", RESULTS_HEIGHT),
    ]
    side_by_side = Table.grid(expand=True)
    for _ in results:
        side_by_side.add_column()
    side_by_side.add_row(*results)
    return Group(Text(title, style="bold"), *panels, side_by_side, Text(footer, style="dim"))


def topics(facts: Facts) -> Any:
    table = new_table("topic", "records", "records/s")
    for topic in TOPICS:
        if topic in facts.records:
            table.add_row(topic, f"{facts.records[topic]:,}", f"{facts.rates[topic]:,.1f}")
    return table


def flows(facts: Facts) -> Any:
    from rich.text import Text

    if not facts.flows:
        return Text("Spark is starting", style="dim")
    columns, rows = shown(facts.flows)
    table = new_table(*(column.title for column in columns), left=3)
    for flow, row in zip(facts.flows, rows, strict=True):
        texts = [Text(cell) for cell in row]
        texts[2].stylize(COLOURS.get(flow["state"], ""))
        table.add_row(*texts)
    return table


def pages(facts: Facts) -> Any:
    table = new_table("page", "views", "")
    most = facts.pages[0][1] if facts.pages else 0
    for page, views in facts.pages:
        table.add_row(page, f"{views:,}", bar(views, most, PAGE_WIDTH))
    return table


def sessions(facts: Facts) -> Any:
    table = new_table("", "")
    table.show_header = False
    table.add_row("ended", f"{facts.sessions:,}")
    if facts.sessions:
        table.add_row("views each", f"{facts.views_in_sessions / facts.sessions:.1f}")
        table.add_row("minutes each", f"{facts.seconds_in_sessions / facts.sessions / 60:.1f}")
    table.add_row("views kept", f"{facts.kept:,}")
    return table


def minutes(facts: Facts) -> Any:
    table = new_table("minute", "views", "")
    recent = facts.minutes[-PAGES_SHOWN:]
    most = max((views for _, views in recent), default=0)
    for minute, views in reversed(recent):
        table.add_row(f"{minute:%H:%M}", f"{views:,}", bar(views, most, MINUTE_WIDTH))
    return table


def bar(number: int, most: int, width: int) -> Any:
    from rich.text import Text

    return Text("█" * max(1, round(width * number / most)), style="green")


def new_table(*titles: str, left: int = 1) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold cyan", padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        is_number = number >= left and title != ""
        table.add_column(title.upper(), justify="right" if is_number else "left", no_wrap=True)
    return table


def picture(drawn: Any) -> str:
    from rich.console import Console

    recorder = Console(record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True)
    recorder.print(drawn)
    svg = recorder.export_svg(title="make demo")
    return re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL).replace(
        "Fira Code, monospace", "monospace"
    )
