"""The commands of `moldau pipeline` that start Spark: check, run, replay."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.cli.data_folder import cannot_start
from moldau.cli.errors import CliError, Exit
from moldau.cli.offsets import Position
from moldau.cli.options import Target
from moldau.cli.output import count_of, good, note, print_json, say, wants_drawing
from moldau.cli.pipeline import StopSignals, already_running, missing, mistake_document, show_mistakes
from moldau.cli.pipeline_view import Lines, Live, closing, print_flows
from moldau.runtime.real.java import Unavailable
from moldau.spark.pipeline.declared import Mistake, Mistakes
from moldau.spark.pipeline.opening import LOCAL, Opened, open_project, session_for
from moldau.spark.pipeline.state import AlreadyRunning, RunNote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.graph import Built
    from moldau.spark.pipeline.progress import FlowProgress
    from moldau.spark.pipeline.project import Project
    from moldau.spark.pipeline.runner import Runner

CHECK_MASTER = "local[1]"
NOTE_S = 1.0


@dataclass(frozen=True)
class RunOptions:
    once: bool
    master: str | None
    settings: Mapping[str, str]
    metrics_port: int | None
    as_json: bool
    full_refresh: tuple[str, ...] = ()
    full_refresh_all: bool = False


def checked(project: Project, settings: Mapping[str, str], offline: bool, as_json: bool) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="moldau-check-") as folder,
        session(project, Path(folder), CHECK_MASTER, settings) as spark,
    ):
        try:
            built = open_project(spark, project).built
            mistakes = [] if offline else topic_mistakes(built)
        except (Mistakes, Mistake) as found:
            built, mistakes = [], list(getattr(found, "found", [found]))
    if as_json:
        flows = list(map(flow_document, built))
        print_json({"mistakes": list(map(mistake_document, mistakes)), "flows": flows})
    elif mistakes:
        show_mistakes(mistakes, as_json)
    else:
        print_flows(built)
        say(good(f"No mistake found in {count_of(len(built), 'flow')}."))
    return Exit.FAILED if mistakes else Exit.OK


def topic_mistakes(built: Sequence[Built]) -> list[Mistake]:
    from moldau.spark.pipeline.topics import topic_mistakes as ask

    return list(ask(built))


def flow_document(built: Built) -> dict[str, Any]:
    return {
        "flow": built.flow.name,
        "into": built.output.name,
        "kind": built.output.kind.value,
        "file": built.flow.place.file,
        "line": built.flow.place.line,
        "reads": list(built.reads),
        "sources": [source.format for source in built.sources],
    }


@contextlib.contextmanager
def session(
    project: Project, folder: Path, master: str, settings: Mapping[str, str]
) -> Iterator[SparkSession]:
    try:
        spark = session_for(project, folder, master, settings)
    except Unavailable as reason:
        raise cannot_start(str(reason), "") from None
    except ModuleNotFoundError as error:
        raise missing(error) from None
    except Exception as error:
        from moldau.spark.pipeline.sentences import sentence

        raise cannot_start(
            f"Spark does not start with the master {master}: {sentence(error)}",
            f"Look into {folder / 'spark.err'} and {folder / 'spark.log'}.",
        ) from error
    try:
        yield spark
    finally:
        spark.stop()


def run_project(project: Project, options: RunOptions) -> int:
    run_note = RunNote(project)
    try:
        with run_note.held():
            return run_held(project, run_note, options)
    except AlreadyRunning as other:
        raise already_running(project, other.note) from None
    except OSError as error:
        raise cannot_start(
            f"The storage {project.storage} cannot be used: {(error.strerror or str(error)).lower()}.",
            f"It is named in {project.spec}.",
        ) from error


def run_held(project: Project, run_note: RunNote, options: RunOptions) -> int:
    with started(project, run_note.folder, options) as spark:
        try:
            opened = open_refreshed(spark, project, options)
        except (Mistakes, Mistake) as found:
            show_mistakes(getattr(found, "found", [found]), options.as_json)
            return Exit.FAILED
        with StopSignals() as signals, served_metrics(project, options) as metrics:
            recorder = Recorder(run_note, project, options.master or LOCAL, metrics.address)
            runner = new_runner(opened, opened.built, options, recorder)
            metrics.flows = lambda: runner.flows
            with recorder.recording(runner), closing(recorder.view, runner.flows):
                runner.run(signals.stopping, signals.at_once)
    return Exit.OK if runner.all_went_well else Exit.FAILED


def open_refreshed(spark: SparkSession, project: Project, options: RunOptions) -> Opened:
    """The project, after what is to be computed anew has been removed."""
    from moldau.spark.pipeline import refresh

    refresh.finish(project)
    opened = open_project(spark, project)
    if not options.full_refresh and not options.full_refresh_all:
        return opened
    outputs = refresh.chosen(project, opened.built, options.full_refresh, options.full_refresh_all)
    refresh.remove(project, outputs)
    if not options.as_json:
        note(f"computed anew: {', '.join(outputs)}")
    return open_project(spark, project)


@contextlib.contextmanager
def started(project: Project, folder: Path, options: RunOptions) -> Iterator[SparkSession]:
    master = options.master or LOCAL
    if not options.as_json:
        note(f"starting Spark on {master}; its log is {folder / 'spark.log'}")
    with session(project, folder, master, options.settings) as spark:
        yield spark


def new_runner(opened: Opened, built: Sequence[Built], options: RunOptions, recorder: Recorder) -> Runner:
    from moldau.spark.pipeline.runner import Runner

    recorder.view = new_view(opened.project, built, options, recorder.metrics)
    return Runner(opened.spark, opened.graph, built, opened.tables, options.once, recorder)


def new_view(
    project: Project, built: Sequence[Built], options: RunOptions, metrics: str | None
) -> Lines | Live:
    """A drawing on a terminal, unless the pipeline itself prints to it."""
    prints = any(one.output.format == "console" for one in built)
    if options.as_json or prints or not wants_drawing():
        if metrics is not None and not options.as_json:
            note(f"metrics at {metrics}")
        return Lines(options.as_json)
    parts = ["Ctrl-C stops it" if not options.once else "until it has caught up"]
    return Live(project.name, "; ".join(parts + ([f"metrics at {metrics}"] if metrics else [])))


class Recorder:
    """Between a run and who watches it: the view of this terminal, and the note that other terminals read."""

    view: Lines | Live

    def __init__(self, run_note: RunNote | None, project: Project, master: str, metrics: str | None) -> None:
        self.metrics = metrics
        self._note = run_note
        self._document = {"name": project.name, "master": master, "started": time.time(), "metrics": metrics}
        self._next = 0.0

    def happened(self, flow: FlowProgress, text: str) -> None:
        self.view.happened(flow, text)

    def look(self, flows: Sequence[FlowProgress]) -> None:
        self.view.look(flows)
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + NOTE_S
            self._write(flows)

    @contextlib.contextmanager
    def recording(self, runner: Runner) -> Iterator[None]:
        self._write(runner.flows)
        yield
        self._write(runner.flows, ended=True, well=runner.all_went_well)

    def _write(self, flows: Sequence[FlowProgress], **more: Any) -> None:
        if self._note is not None:
            documents = [flow.document() for flow in flows]
            self._note.write({**self._document, "updated": time.time(), "flows": documents, **more})


@dataclass
class Metrics:
    address: str | None = None
    flows: Callable[[], Sequence[FlowProgress]] = lambda: ()


@contextlib.contextmanager
def served_metrics(project: Project, options: RunOptions) -> Iterator[Metrics]:
    from moldau.spark.pipeline.metrics import MetricsServer, exposition

    metrics = Metrics()
    if options.metrics_port is None:
        yield metrics
        return
    try:
        server = MetricsServer(
            "0.0.0.0", options.metrics_port, lambda: exposition(project.name, metrics.flows())
        )
    except OSError as error:
        raise cannot_start(
            f"The metrics port {options.metrics_port} cannot be used: {(error.strerror or str(error)).lower()}.",
            "Name another with --metrics-port; 0 takes a free one.",
        ) from error
    metrics.address = f"http://localhost:{server.port}/metrics"
    try:
        yield metrics
    finally:
        server.close()


def replay_output(project: Project, options: RunOptions, output: str, into: str, position: Position) -> int:
    with (
        tempfile.TemporaryDirectory(prefix="moldau-replay-") as folder,
        started(project, Path(folder), options) as spark,
    ):
        try:
            opened, built = open_replay(spark, project, output, into, position)
        except (Mistakes, Mistake) as found:
            show_mistakes(getattr(found, "found", [found]), options.as_json)
            return Exit.FAILED
        with StopSignals() as signals:
            recorder = Recorder(None, project, options.master or LOCAL, None)
            runner = new_runner(opened, built, options, recorder)
            with closing(recorder.view, runner.flows):
                runner.run(signals.stopping, signals.at_once)
    is_complete = all(flow.state.value == "done" for flow in runner.flows)
    return Exit.OK if runner.all_went_well and is_complete else Exit.FAILED


def open_replay(
    spark: SparkSession, project: Project, output: str, into: str, position: Position
) -> tuple[Opened, list[Built]]:
    from moldau.spark.pipeline.graph import Graph
    from moldau.spark.pipeline.registry import load
    from moldau.spark.pipeline.replay import redirected
    from moldau.spark.pipeline.tables import Tables
    from moldau.spark.pipeline.topics import FORMATS, Unreachable, starting_options

    def more_options(source: str, given: dict[str, str]) -> dict[str, str]:
        if source not in FORMATS:
            return {}
        try:
            return starting_options(
                given, into, lambda at, topic, parts: offsets_at(at, topic, parts, position)
            )
        except Unreachable as reason:
            raise CliError(str(reason), code=Exit.UNREACHABLE) from None

    tables = Tables(spark, project)
    declared = redirected(load(project, spark), output, into)
    tables.refuse_used(into, declared.outputs[into].place)
    graph = Graph(spark, project, declared, tables, more_options)
    built = [one for one in graph.check() if one.output.name == into]
    return Opened(project, spark, tables, graph, built), built


def offsets_at(
    options: Mapping[str, str], topic: str, partitions: list[int], position: Position
) -> dict[int, int]:
    from moldau.cli.client import Connection
    from moldau.cli.offsets import partition_offsets, resolve
    from moldau.spark.client_options import client_config, kafka_options

    config = client_config(kafka_options(options), "admin")
    connection = Connection(dataclasses.replace(Target(config.pop("bootstrap.servers")), properties=config))
    return resolve(connection, topic, partition_offsets(connection, topic, partitions), position)
