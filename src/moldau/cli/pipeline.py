"""`moldau pipeline`: Spark Declarative Pipelines projects, made, checked, run for ever, watched, stopped, replayed.

Everything that needs Spark is imported within the commands, so that the help is there without it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.complete import folders
from moldau.cli.errors import CliError, Exit, file_error, not_found, usage
from moldau.cli.help import Group
from moldau.cli.options import DEFAULT_BOOTSTRAP, Amount, Whole, json_option, parse_pairs, require_text
from moldau.cli.output import count_of, good, note, print_json, print_table, say

if TYPE_CHECKING:
    from moldau.spark.pipeline.declared import Mistake
    from moldau.spark.pipeline.project import Project

STOP_LOOK_S = 0.1

folder_argument = click.argument("folder", default=".", shell_complete=folders)
master_option = click.option(
    "--master",
    metavar="URL",
    help="Where Spark runs it: local[N], spark://HOST:PORT, yarn, k8s://...  [default: all cores of this machine]",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of Spark; it wins over the project's own.",
)


@click.group(
    name="pipeline",
    cls=Group,
    examples="""
# A project that reads the topic orders; look into it, then run it
moldau pipeline new shop
moldau pipeline check shop
moldau pipeline run shop
# From another terminal
moldau pipeline status shop
moldau pipeline stop shop
""",
)
def command() -> None:
    """Run Spark Declarative Pipelines projects for ever."""


@command.command(
    name="new",
    examples="""
moldau pipeline new shop
# On another cluster and topic
moldau pipeline new shop --bootstrap broker1:9092 --topic sales
# An audit of two topics; one of them is kept in a table of the lake
moldau pipeline new watch --audit orders=lake/orders --audit payments
""",
)
@click.argument("folder", shell_complete=folders)
@click.option("--topic", default="orders", show_default=True, metavar="NAME", help="What it reads.")
@click.option(
    "-b",
    "--bootstrap",
    envvar="MOLDAU_BOOTSTRAP",
    default=DEFAULT_BOOTSTRAP,
    show_default=True,
    metavar="HOST:PORT",
    help="The cluster that it reads and writes.",
)
@click.option(
    "--audit",
    "audited",
    multiple=True,
    metavar="TOPIC[=TABLE]",
    help="Make an audit of this topic, and of the Delta table that keeps it; several times for several.",
)
@json_option()
def new(folder: str, topic: str, bootstrap: str, audited: tuple[str, ...], as_json: bool) -> None:
    """Make a project that runs.

    It reads JSON messages from a topic, keeps them in a table of the lake, and counts them by minute into another
    topic. Its files say what each part is for. With --audit it counts topics and tables instead, for `moldau audit`.
    """
    require_text(folder, topic, bootstrap, audited)
    try:
        written = written_project(Path(folder), topic, bootstrap, audited)
    except FileExistsError as error:
        raise usage(f"{folder} is not empty.", "Name a folder that does not exist yet.") from error
    except OSError as error:
        raise file_error(error, folder) from error
    if as_json:
        print_json({"folder": folder, "files": [str(path) for path in written]})
        return
    for path in written:
        say(str(path))
    note(f"`moldau pipeline check {folder}` looks at it, `moldau pipeline run {folder}` runs it.")


def written_project(folder: Path, topic: str, bootstrap: str, audited: tuple[str, ...]) -> list[Path]:
    if not audited:
        from moldau.spark.pipeline.template import write_project

        return write_project(folder, topic, bootstrap)
    from moldau.spark.audit.project import write_audit

    tables: dict[str, list[str]] = {}
    for each in audited:
        name, equals, table = each.partition("=")
        if not name or (equals and not table):
            raise usage(f"--audit takes TOPIC or TOPIC=TABLE, not '{each}'.")
        tables.setdefault(name, []).extend([os.path.abspath(table)] if table else [])
    return write_audit(
        folder, list(tables), {name: paths for name, paths in tables.items() if paths}, bootstrap
    )


@command.command(
    name="check",
    examples="""
moldau pipeline check
moldau pipeline check shop
# Without asking the cluster for its topics
moldau pipeline check shop --offline
""",
)
@folder_argument
@click.option("--offline", is_flag=True, help="Do not ask the cluster whether the topics exist.")
@set_option
@json_option()
def check(folder: str, offline: bool, settings: tuple[str, ...], as_json: bool) -> int:
    """Find mistakes before anything is written.

    Every query is built and analysed by Spark, but none is started. Mistakes are shown with file and line, and the
    exit code is 1 where there is one.
    """
    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    from moldau.cli.pipeline_run import checked

    return checked(project, parse_pairs(settings, "--set"), offline, as_json)


@command.command(
    name="run",
    examples="""
moldau pipeline run shop
# Until it has caught up
moldau pipeline run shop --once
# On a Spark cluster, with metrics for Prometheus
moldau pipeline run shop --master spark://spark1:7077 --metrics-port 9400
# A table emptied, and computed anew from what its sources hold now
moldau pipeline run shop --once --full-refresh orders_kept
""",
)
@folder_argument
@click.option("--once", is_flag=True, help="Until all flows have caught up, then end.")
@click.option(
    "--full-refresh",
    multiple=True,
    metavar="TABLE,...",
    help="Empty these tables first, and compute them anew from what their sources hold.",
)
@click.option("--full-refresh-all", is_flag=True, help="Empty all tables, and begin anew.")
@master_option
@set_option
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    metavar="PORT",
    help="Serve metrics for Prometheus at /metrics there; 0 takes a free port.",
)
@json_option("Print a JSON document per line for each event.")
def run(
    folder: str,
    once: bool,
    full_refresh: tuple[str, ...],
    full_refresh_all: bool,
    master: str | None,
    settings: tuple[str, ...],
    metrics_port: int | None,
    as_json: bool,
) -> int:
    """Run a project until Ctrl-C, or until it has caught up.

    A flow that fails is started again after a pause that grows up to a minute, while the others go on. Ctrl-C lets the
    current batches end; a second one does not. The exit code is 0 only where every flow ended well.
    """
    if full_refresh and full_refresh_all:
        raise usage("--full-refresh and --full-refresh-all exclude each other.")
    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    from moldau.cli.pipeline_run import RunOptions, run_project

    refreshed = tuple(name.strip() for names in full_refresh for name in names.split(",") if name.strip())
    spark_settings = parse_pairs(settings, "--set")
    return run_project(
        project,
        RunOptions(once, master, spark_settings, metrics_port, as_json, refreshed, full_refresh_all),
    )


@command.command(
    name="status",
    examples="""
moldau pipeline status
moldau pipeline status shop --json
""",
)
@folder_argument
@json_option()
def status(folder: str, as_json: bool) -> int:
    """Show what a run is doing.

    The exit code is 0 only where the project is running, or ended by itself, and all flows are well.
    """
    from moldau.cli.pipeline_view import error_lines, shown
    from moldau.spark.pipeline.state import RunNote

    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    run_note = RunNote(project)
    is_running, document = run_note.is_held(), run_note.read()
    if document is None:
        raise not_found(f"{project.name} has not been run.", f"`moldau pipeline run {folder}` runs it.")
    condition = condition_of(document, is_running)
    if as_json:
        print_json({**document, "state": condition})
    else:
        say(f"{project.name} {sentence_of(condition, document)}")
        print_table(*shown(document["flows"]))
        for line in error_lines(document["flows"]):
            say(click.style(line, fg="red"))
    return Exit.OK if condition in ("running", "ended") and is_well(document) else Exit.FAILED


def condition_of(document: dict[str, Any], is_running: bool) -> str:
    """A note of a run that nobody holds the lock of, and that does not say how it ended, was left by a killed one."""
    if is_running:
        return "running"
    return "ended" if document.get("ended") else "killed"


def sentence_of(condition: str, document: dict[str, Any]) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document["started"]))
    if condition == "running":
        metrics = document.get("metrics")
        return f"is running since {since} as process {document['pid']}" + (
            f", metrics at {metrics}" if metrics else ""
        )
    if condition == "killed":
        return f"is not running: process {document['pid']}, which began at {since}, was killed"
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document["updated"]))
    return f"is not running: it ended at {until}"


def is_well(document: dict[str, Any]) -> bool:
    return all(
        flow["state"] in ("running", "waiting", "done", "stopped") and not flow["error"]
        for flow in document["flows"]
    )


@command.command(
    name="stop",
    examples="""
moldau pipeline stop
moldau pipeline stop shop --timeout 120
""",
)
@folder_argument
@click.option(
    "--timeout",
    type=Amount(least=0.1),
    default=60.0,
    metavar="SECONDS",
    help="How long to wait for it to end.  [default: 60]",
)
@json_option()
def stop(folder: str, timeout: float, as_json: bool) -> int:
    """Stop a run from another terminal: its current batches end first."""
    from moldau.spark.pipeline.state import RunNote

    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    run_note = RunNote(project)
    document = run_note.read()
    if not run_note.is_held() or document is None:
        raise not_found(f"{project.name} is not running.", "Nothing was stopped.")
    signal_run(project, document)
    deadline = time.monotonic() + timeout
    while run_note.is_held():
        if time.monotonic() > deadline:
            raise CliError(
                f"{project.name} has not ended within {timeout:g} s.", f"Its process is {document['pid']}."
            )
        time.sleep(STOP_LOOK_S)
    ended = run_note.read() or {}
    if as_json:
        print_json(ended)
    else:
        say(good(f"{project.name} is stopped."))
    return Exit.OK if ended.get("well") else Exit.FAILED


def signal_run(project: Project, document: dict[str, Any]) -> None:
    import socket

    if document["host"] != socket.gethostname():
        raise CliError(f"{project.name} runs on {document['host']}.", "Stop it there.")
    try:
        os.kill(document["pid"], signal.SIGTERM)
    except ProcessLookupError:
        raise not_found(f"{project.name} has just ended.") from None
    except PermissionError:
        raise CliError(
            f"{project.name} is process {document['pid']} of another user.", "Stop it as that user."
        ) from None


@command.command(
    name="replay",
    examples="""
# A table once more from the start of its topics, beside the old one
moldau pipeline replay shop --output orders_kept --into orders_kept_2
# A sink's topic once more, from a time on
moldau pipeline replay shop --output counts --into new --from-time -2h
""",
)
@folder_argument
@click.option("--output", required=True, metavar="NAME", help="The streaming table or sink to fill anew.")
@click.option("--into", required=True, metavar="NAME", help="The new table, topic or folder.")
@click.option(
    "--from-offset",
    metavar="OFFSET",
    help="Where to begin in each partition: beginning, 1500, or -10 for ten before the end.  [default: beginning]",
)
@click.option(
    "--from-time",
    metavar="TIME",
    help="The time to begin at: 2026-07-31T10:00, @MILLISECONDS, or -2h for two hours ago.",
)
@master_option
@set_option
@json_option("Print a JSON document per line for each event.")
def replay(
    folder: str,
    output: str,
    into: str,
    from_offset: str | None,
    from_time: str | None,
    master: str | None,
    settings: tuple[str, ...],
    as_json: bool,
) -> int:
    """Re-read topics from an offset or a time into a new output.

    The flows of one output run until they have caught up, into a new table, topic or folder. The old output and where
    the project stands are not touched; the project may be running meanwhile.
    """
    if from_offset is not None and from_time is not None:
        raise usage("--from-offset and --from-time exclude each other.")
    position = read_position(from_offset, from_time)
    project = read_project(folder, as_json)
    if project is None:
        return Exit.FAILED
    from moldau.cli.pipeline_run import RunOptions, replay_output

    options = RunOptions(True, master, parse_pairs(settings, "--set"), None, as_json)
    return replay_output(project, options, output, into, position)


def read_position(from_offset: str | None, from_time: str | None) -> Any:
    from moldau.cli.offsets import Kind, parse_position

    position = parse_position(from_time or from_offset or "beginning")
    if from_time is not None and position.kind is not Kind.TIME:
        raise usage(
            f"--from-time: '{from_time}' is no time.", "Write 2026-07-31T10:00, @MILLISECONDS or -2h."
        )
    return position


def read_project(folder: str, as_json: bool) -> Project | None:
    """The project in a folder; None where its mistakes have been shown."""
    require_text(folder)
    try:
        from moldau.spark.pipeline.declared import Mistake
        from moldau.spark.pipeline.opening import syntax_mistakes
        from moldau.spark.pipeline.project import load_project

        path = Path(folder)
        if not path.exists():
            raise not_found(
                f"There is no folder {folder}.", f"`moldau pipeline new {folder}` makes a project there."
            )
        try:
            project = load_project(path)
            mistakes = syntax_mistakes(project)
        except Mistake as mistake:
            mistakes = [mistake]
    except ModuleNotFoundError as error:
        raise missing(error) from None
    if mistakes:
        show_mistakes(mistakes, as_json)
        return None
    return project


def missing(error: ModuleNotFoundError) -> CliError:
    """PyYAML, deltalake and pyspark come with one extra."""
    return CliError(
        f"Pipelines need Spark, and {error.name} is not installed.",
        "`pip install '.[spark]'` in a clone of Moldau installs it.",
        Exit.CANNOT_START,
    )


def show_mistakes(mistakes: Iterable[Mistake], as_json: bool) -> None:
    from moldau.cli.pipeline_view import print_mistakes

    found = list(mistakes)
    if as_json:
        print_json({"mistakes": [mistake_document(mistake) for mistake in found], "flows": []})
        return
    print_mistakes(found)
    say(click.style(f"{count_of(len(found), 'mistake')}.", fg="red", bold=True))


def mistake_document(mistake: Mistake) -> dict[str, Any]:
    return {
        "file": mistake.place.file,
        "line": mistake.place.line,
        "message": mistake.message,
        "hint": mistake.hint or None,
    }


def already_running(project: Project, document: Mapping[str, Any] | None) -> CliError:
    who = f" as process {document['pid']}" if document else ""
    return CliError(
        f"{project.name} is running already{who}.",
        "`moldau pipeline status` shows it, `moldau pipeline stop` stops it.",
        Exit.CANNOT_START,
    )


class StopSignals:
    """Within its `with`, the first Ctrl-C or SIGTERM asks for a clean stop, the second for one at once."""

    numbers: tuple[signal.Signals, ...] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.at_once = threading.Event()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in self.numbers:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, *_args: object) -> None:
        (self.at_once if self.stopping.is_set() else self.stopping).set()
