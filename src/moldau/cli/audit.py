"""`moldau audit`: the windows of an audit's project, as its pipeline has counted them; no Spark is started.

How far the pipeline has come is asked of the cluster, through the consumer group that its flows commit to, before the
counted tables are read. So a pipeline that is behind, or stopped, is never taken for a loss.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.complete import folders
from moldau.cli.errors import CliError, Exit, not_found, usage
from moldau.cli.help import Command
from moldau.cli.offsets import Kind, parse_position
from moldau.cli.options import Amount, json_option
from moldau.cli.output import Column, bold, count_of, dim, good, note, print_json, print_table, say
from moldau.cli.pipeline import StopSignals, missing, read_project

if TYPE_CHECKING:
    from moldau.audit.comparison import Window
    from moldau.cli.audit_look import Look
    from moldau.spark.pipeline.project import Project

COLUMNS = (
    Column("topic", style="bold"),
    Column("window"),
    Column("produced", right=True),
    Column("in topic", right=True),
    Column("in lake", right=True),
    Column("lost", right=True),
    Column("doubled", right=True),
    Column("state"),
    Column("notes"),
)
COLOURS = {"wrong": "red", "unsure": "yellow"}


@click.command(
    name="audit",
    cls=Command,
    examples="""
# A project that counts; run it, and look from another terminal
moldau pipeline new watch --audit orders=lake/orders
moldau pipeline run watch
moldau audit watch
# Only what is wrong or unsure, of the last hour, for a script
moldau audit watch --since -1h --problems --json
""",
)
@click.argument("folder", default=".", shell_complete=folders)
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="Only this topic; several times for several."
)
@click.option(
    "--since",
    default="-24h",
    metavar="TIME",
    help="Windows from then on: -2h, 2026-07-31T10:00, @MILLISECONDS.  [default: -24h]",
)
@click.option("--problems", is_flag=True, help="Only windows that are wrong or unsure.")
@click.option(
    "--watch", is_flag=True, help="Go on until Ctrl-C, and show each window when it is closed or changes."
)
@click.option(
    "--every",
    type=Amount(least=0.1),
    default=10.0,
    metavar="SECONDS",
    help="How often --watch looks.  [default: 10]",
)
@json_option("Print one JSON document; with --watch one per line for each window.")
def command(
    folder: str,
    topics: tuple[str, ...],
    since: str,
    problems: bool,
    watch: bool,
    every: float,
    as_json: bool,
) -> int:
    """Show what was lost or doubled between producers, topics and the lake.

    A window is closed when its lateness has passed and the pipeline has counted everything until then. The exit code is
    1 where a closed window is wrong.
    """
    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    look = new_look(project, topics)
    if watch:
        return watched(look, since, problems, every, as_json)
    windows = chosen(look.windows(since_ms(since)), problems)
    behind = look.behind
    if as_json:
        from moldau.audit.comparison import document

        print_json({"windows": list(map(document, windows)), "behind": behind})
    else:
        show(windows, problems)
        for topic, records in behind.items():
            note(f"the pipeline is {count_of(records, 'record')} behind in {topic}; their windows are open")
    return exit_code(windows)


def new_look(project: Project, topics: Sequence[str]) -> Look:
    try:
        from moldau.cli.audit_look import Look
        from moldau.spark.audit.settings import NoAudit, read_settings
    except ModuleNotFoundError as error:
        raise missing(error) from None
    try:
        settings = read_settings(project.configuration)
    except NoAudit as reason:
        raise usage(
            f"{project.spec} is not an audit's: {reason}",
            "`moldau pipeline new FOLDER --audit TOPIC` makes a project that audits.",
        ) from None
    if unknown := sorted(set(topics) - set(settings.topics)):
        raise not_found(
            f"The audit does not have the topic '{unknown[0]}'.", f"It has {', '.join(settings.topics)}."
        )
    if project.local_storage is None:
        raise CliError(f"The storage {project.storage} is not a folder of this machine.")
    return Look(settings, str(project.local_storage), frozenset(topics or settings.topics))


def since_ms(text: str) -> int:
    position = parse_position(text)
    if position.kind is not Kind.TIME:
        raise usage(f"--since: '{text}' is no time.", "Write -2h, 2026-07-31T10:00 or @MILLISECONDS.")
    return position.value


def chosen(windows: Sequence[Window], problems: bool) -> list[Window]:
    return [window for window in windows if not problems or window.state.value in COLOURS]


def exit_code(windows: Sequence[Window]) -> int:
    return Exit.FAILED if any(window.state.value == "wrong" for window in windows) else Exit.OK


def watched(look: Look, since: str, problems: bool, every_s: float, as_json: bool) -> int:
    """The exit code tells of all that was shown."""
    from moldau.audit.comparison import document

    shown: dict[tuple[str, int], dict[str, Any]] = {}
    is_wrong = False
    with StopSignals() as signals:
        while True:
            found = chosen(look.windows(since_ms(since)), problems)
            closed = {(window.topic, window.begin_ms): window for window in found if window.state.is_closed}
            documents = {place: document(window) for place, window in closed.items()}
            news = [window for place, window in closed.items() if shown.get(place) != documents[place]]
            shown = documents
            is_wrong = is_wrong or exit_code(news) != Exit.OK
            print_news(news, as_json)
            if signals.stopping.wait(every_s):
                return Exit.FAILED if is_wrong else Exit.OK


def print_news(windows: Sequence[Window], as_json: bool) -> None:
    import json

    from moldau.audit.comparison import document

    for window in windows:
        say(json.dumps(document(window), ensure_ascii=False) if as_json else line(window))


def line(window: Window) -> str:
    """`10:05:00 orders 10:04:00: 120 produced, 119 in the topic, 119 in the lake: wrong, lost 1 in the topic`."""
    parts = [] if window.produced is None else [f"{window.produced:,} produced"]
    parts.append(f"{window.in_topic:,} in the topic")
    parts += [] if window.in_lake is None else [f"{window.in_lake:,} in the lake"]
    verdict = ", ".join([window.state.value, *differences(window), *window.notes])
    colour = COLOURS.get(window.state.value, "green")
    return (
        f"{time.strftime('%H:%M:%S')} {bold(window.topic)} {clock(window.begin_ms)}: {', '.join(parts)}: "
        f"{click.style(verdict, fg=colour)}"
    )


def differences(window: Window) -> list[str]:
    figures = (
        ("lost", window.lost_in_topic, "topic"),
        ("doubled", window.doubled_in_topic, "topic"),
        ("lost", window.lost_in_lake, "lake"),
        ("doubled", window.doubled_in_lake, "lake"),
    )
    return [f"{word} {number:,} in the {where}" for word, number, where in figures if number]


def show(windows: Sequence[Window], problems: bool) -> None:
    if not windows:
        note("No window is wrong or unsure." if problems else "No window has been counted yet.")
        return
    print_table(COLUMNS, [cells(window) for window in windows])
    say(summary(windows))


def cells(window: Window) -> list[str]:
    is_open = not window.state.is_closed
    return [
        window.topic,
        clock(window.begin_ms),
        "-" if window.produced is None else f"{window.produced:,}",
        f"{window.in_topic:,}",
        "-" if window.in_lake is None else f"{window.in_lake:,}",
        "" if is_open else str(window.lost or ""),
        "" if is_open else str(window.doubled or ""),
        "open" if is_open else f"closed, {window.state.value}",
        "; ".join([*([] if is_open else differences(window)), *window.notes]),
    ]


def summary(windows: Sequence[Window]) -> str:
    counts = {
        state: sum(window.state.value == state for window in windows)
        for state in ("right", "wrong", "unsure", "open")
    }
    told = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
    text = f"{count_of(len(windows), 'window')}: {told}."
    if counts["wrong"]:
        return click.style(text, fg="red", bold=True)
    return dim(text) if counts["unsure"] else good(text)


def clock(time_ms: int) -> str:
    """In this machine's time zone, as everywhere on this command line."""
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
