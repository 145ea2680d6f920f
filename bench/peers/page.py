"""The section of docs/benchmarks.md that `bench.peers` writes, and keeps while `make bench` writes the rest."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from bench.measure import Series
from bench.report import rounded, spread
from bench.runner import machine

BEGIN, END = "<!-- peers -->\n", "<!-- end of peers -->\n"
BEHIND = ("\n## Not measured\n", "\n## Plots\n")
HEAD = """
## Beside other brokers

What a Python program might keep a stream of messages in instead, each with its usual Python client, from Debian's
packages and PyPI: {brokers}. Made by `make bench-peers`, not by hand: messages of 1 KB in one log or stream, in turns;
a number is the median of {runs}, in brackets are the smallest and the largest. CPU is the server's; *thousand* is
thousands of messages a second, all of them confirmed; a read is one of everything, from the beginning.

All make the same promise: what is confirmed is in a file, and the kernel brings it to the disk. So kill -9 loses
nothing, as the first row shows, and a power cut may. Redis: `appendonly yes`, `appendfsync no`; it keeps all of it in
memory as well. NATS: a stream in files. RabbitMQ: a queue of the type *stream* with publisher confirms, made five
seconds before its server is killed (it cannot find a younger one again).

On Python {python}, {cores} cores, {kernel}; other processes took {others:.0%} of the cores meanwhile.
"""


def section(
    names: Sequence[str], clients: Sequence[str], every: Mapping[str, Series], runs: int, others: float
) -> str:
    told = ", ".join(
        f"{name} with {client} {version(client)}" for name, client in zip(names, clients, strict=True)
    )
    head = HEAD.format(brokers=told, runs=runs, others=others, python=platform.python_version(), **machine())
    rows = [f"| | unit | {' | '.join(names)} |", f"|---|---|{'---:|' * len(names)}"]
    for what, series in every.items():
        best = _best(series)
        cells = [_cell(series, name, name in best) for name in names]
        rows.append(f"| {what} | {series.unit} | {' | '.join(cells)} |")
    return "\n".join([f"{BEGIN}{head}", *rows, ""]) + END


def with_section(page: str, text: str) -> str:
    """The page with this in the place of what it had, or before its plots."""
    start = page.find(BEGIN)
    if start >= 0:
        return page[:start] + text + page[page.index(END, start) + len(END) :]
    places = [place for place in map(page.find, BEHIND) if place >= 0]
    place = min(places, default=len(page)) + 1
    return page[:place] + text + "\n" + page[place:]


def section_of(page: str) -> str | None:
    start = page.find(BEGIN)
    return page[start : page.index(END, start) + len(END)] if start >= 0 else None


def _best(series: Series) -> set[str]:
    """All of those that nobody is better than; nobody where all are alike."""
    medians = {name: summary.median for name in series.values if (summary := series.summary(name))}
    best = (max if series.more_is_better else min)(medians.values())
    found = {name for name, median in medians.items() if rounded(median) == rounded(best)}
    return found if len(found) < len(medians) else set()


def _cell(series: Series, name: str, is_best: bool) -> str:
    text = spread(series.summary(name))
    number, space, rest = text.partition(" ")
    return f"**{number}**{space}{rest}" if is_best else text
