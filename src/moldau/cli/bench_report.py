"""What `moldau bench` shows: a bar while it works, then rates, percentiles and plots in the terminal."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Iterator

import click

from moldau.cli.bench_work import Progress, Result
from moldau.cli.measure import Latencies
from moldau.cli.output import bold, console, count_of, dim, human_ms, print_json, say, wants_drawing
from moldau.cli.plot import bar, columns, knows_blocks

TITLES = {"acknowledged": "Time to the acknowledgement", "end_to_end": "Time to the consumer"}
WIDTH_MAX = 100
LABEL_WIDTH = 10
PLOT_HEIGHT = 5
POINTS_MIN = 8  # a run with fewer is too short for a plot to show anything


@contextlib.contextmanager
def progress_bar(title: str, total: int) -> Iterator[Progress]:
    """A bar on stderr where a person looks at it; nothing otherwise."""
    if not wants_drawing(sys.stderr):
        yield lambda _done: None
        return
    import rich.progress as rich

    shown = (
        rich.TextColumn("{task.description:<10}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TextColumn("{task.completed:,}"),
        rich.TimeRemainingColumn(),
    )
    with rich.Progress(*shown, console=console(err=True), transient=True) as drawn:
        task = drawn.add_task(title, total=total)
        yield lambda done: drawn.update(task, completed=done)


def show(result: Result, as_json: bool) -> None:
    if as_json:
        print_json(result.document())
        return
    width = min(shutil.get_terminal_size().columns, WIDTH_MAX)
    if result.kind != "latency":
        show_throughput(result, width)
    for name, latencies in result.latencies.items():
        if latencies.count:
            show_latencies(name, latencies, width)


def show_throughput(result: Result, width: int) -> None:
    seconds = result.seconds or 1e-9
    rate = f"{result.messages / seconds:,.0f} messages/s, {result.bytes / 1e6 / seconds:,.1f} MB/s"
    amount = f"{count_of(result.messages, 'message')}, {result.bytes / 1e6:,.1f} MB, {seconds:.2f} s"
    say(f"{bold(rate)}  {dim(amount)}")
    rates = [rate / 1e6 for rate in result.throughput.rates(width - LABEL_WIDTH - 2)]
    if len(rates) < POINTS_MIN:
        return
    say("")
    for index, line in enumerate(columns(rates, PLOT_HEIGHT, blocks=knows_blocks())):
        label = {0: f"{max(rates):.0f} MB/s", PLOT_HEIGHT - 1: "0"}.get(index, "")
        say(f"{dim(label.rjust(LABEL_WIDTH))} {click.style(line, fg='cyan')}")
    axis = "0 s" + f"{seconds:.1f} s".rjust(max(1, len(rates) - 3))
    say(dim(" " * (LABEL_WIDTH + 1) + axis))


def show_latencies(name: str, latencies: Latencies, width: int) -> None:
    summary = [f"{dim(key)} {human_ms(value)}" for key, value in latencies.as_ms().items()]
    say("")
    say(bold(TITLES[name]))
    say("  ".join(summary))
    classes = latencies.classes()
    largest = max(count for _, _, count in classes)
    for _, stop_s, count in classes:
        label = "< " + human_ms(stop_s * 1000).replace(".0 ", " ")
        drawn = bar(count / largest, width - LABEL_WIDTH - 9, blocks=knows_blocks())
        share = f"{count / latencies.count:.1%}" if count else ""
        say(f"{dim(label.rjust(LABEL_WIDTH))} {click.style(drawn, fg='cyan')} {share}")
