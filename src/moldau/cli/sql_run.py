"""`moldau sql` at work: Spark is started, then statements come from scripts or from the prompt.

A script ends at its first mistake. Streaming tables that it has started go on until Ctrl-C or SIGTERM, as in
`moldau pipeline run`. The prompt shows a mistake and goes on; what it has started ends with it.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.cli.app import report
from moldau.cli.client import Connection
from moldau.cli.data_folder import cannot_start
from moldau.cli.errors import CliError, Exit, debugging, unexpected
from moldau.cli.options import Target
from moldau.cli.output import note, say
from moldau.cli.pipeline import StopSignals
from moldau.cli.pipeline_run import session as spark_session
from moldau.cli.sql_prompt import History, Prompt, history_file
from moldau.cli.sql_screen import Screen
from moldau.spark.pipeline.opening import LOCAL
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.state import AlreadyRunning, RunNote
from moldau.spark.pipeline.tables import OWN_FOLDER
from moldau.spark.sql.cluster import Brokers, Unreachable
from moldau.spark.sql.mistakes import Mistake, NotFound
from moldau.spark.sql.session import Session
from moldau.spark.sql.texts import split

PROMPT_ROWS = 1000
NEWS_S = 0.2
Script = tuple[str, str]
"""A file's name, empty for the command line, and its text."""


@dataclass(frozen=True)
class SqlOptions:
    begin: Sequence[Script]
    scripts: Sequence[Script]
    """None: the prompt."""
    style: str
    max_rows: int | None
    storage: str | None
    master: str | None
    settings: Mapping[str, str]


def run(target: Target, options: SqlOptions) -> int:
    Connection(target).metadata()  # where nobody answers, that is said before Spark is started
    is_prompt = not options.scripts
    screen = Screen(options.style, options.max_rows or (PROMPT_ROWS if is_prompt else None), is_prompt)
    kafka = {"bootstrap.servers": target.bootstrap, **target.properties}
    with storage(options.storage) as (project, keeps), opened(project, options) as spark:
        session = Session(spark, Brokers(kafka, target.timeout_s), kafka, project, keeps, screen)
        with contextlib.closing(session):
            for script in options.begin:
                run_script(session, script)
            if is_prompt:
                return converse(session)
            for script in options.scripts:
                if not run_script(session, script):
                    break
            return wait_for_streams(session)


@contextlib.contextmanager
def storage(folder: str | None) -> Iterator[tuple[Project, bool]]:
    """Where checkpoints and tables are kept, and whether that outlives the session."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="moldau-sql-", ignore_cleanup_errors=True) as temporary:
            yield project_in(temporary), False
        return
    project = project_in(str(Path(folder).resolve()))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(RunNote(project).held())
        except AlreadyRunning:
            raise cannot_start(
                f"The storage {folder} is in use by another run.", "Name another with --storage."
            ) from None
        except OSError as error:
            raise cannot_start(
                f"The storage {folder} cannot be used: {(error.strerror or str(error)).lower()}.",
                "Name another with --storage.",
            ) from error
        yield project, True


def project_in(folder: str) -> Project:
    return Project(Path.cwd(), "sql", "sql", folder)


@contextlib.contextmanager
def opened(project: Project, options: SqlOptions) -> Iterator[object]:
    """Spark's session; its own answer to Ctrl-C, which cancels every job, is not ours."""
    logs = Path(project.inside(OWN_FOLDER))
    master = options.master or LOCAL
    if sys.stderr.isatty():
        note(f"starting Spark on {master}")
    before = signal.getsignal(signal.SIGINT)
    with spark_session(project, logs, master, options.settings) as spark:
        signal.signal(signal.SIGINT, before)
        yield spark


def run_script(session: Session, script: Script) -> bool:
    """Its statements, up to the first mistake; whether more may follow."""
    name, text = script
    for statement in split(text):
        try:
            if not session.execute(statement):
                return False
        except (Mistake, Unreachable) as error:
            raise failure(error, name) from error
    return True


def failure(error: Mistake | Unreachable, file: str = "") -> CliError:
    if isinstance(error, Unreachable):
        return CliError(str(error), code=Exit.UNREACHABLE)
    where = file
    if error.place is not None:
        line, column = error.place
        where = f"{file}:{line}:{column}" if file else f"line {line}, column {column}"
    code = Exit.NOT_FOUND if isinstance(error, NotFound) else Exit.FAILED
    return CliError(f"{where}: {error.message}" if where else error.message, error.hint, code)


def wait_for_streams(session: Session) -> int:
    """As long as streaming tables run, until Ctrl-C."""
    if not session.streams.running():
        return Exit.OK
    with StopSignals() as signals:
        if sys.stderr.isatty():
            note("Ctrl-C stops it")
        while not signals.stopping.wait(NEWS_S):
            for line in session.streams.news():
                say(line, err=True)
    flows = session.streams.flows
    session.close()
    for line in session.streams.news():
        say(line, err=True)
    return Exit.OK if all(flow.error is None for flow in flows) else Exit.FAILED


class SessionNames:
    """What completion knows."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def tables(self) -> list[str]:
        return list(dict.fromkeys([*self._session.names(), *self._session.catalog.known_topics()]))

    def columns(self, table: str) -> list[str]:
        return self._session.columns(table)

    def streams(self) -> list[str]:
        return self._session.streams.running()


def converse(session: Session) -> int:
    def tell() -> None:
        for line in session.streams.news():
            note(line)

    prompt = Prompt(SessionNames(session), History(history_file()), tell)
    note("HELP; says what there is. Ctrl-C ends a query, Ctrl-D the prompt.")
    with prompt.ready():
        for text in prompt.statements():
            if not answer(session, text):
                break
    if running := session.streams.running():
        note(f"stopping {', '.join(running)}; SAVE PIPELINE would have kept what runs")
    return Exit.OK


def answer(session: Session, text: str) -> bool:
    """What was typed, statement by statement; False where the prompt ends."""
    try:
        for statement in split(text):
            if not session.execute(statement):
                return False
    except (Mistake, Unreachable) as error:
        report(failure(error))
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        say("", err=True)  # the terminal shows ^C in the current line
    except Exception as error:  # the prompt outlives what nobody thought of
        if debugging():
            raise
        report(unexpected(error))
    return True
