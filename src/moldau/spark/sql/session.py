"""A session of SQL over a cluster's topics: statements come in, what they give goes to a `Screen`.

    SELECT .. FROM orders                       what is there, and ends
    SELECT .. FROM STREAM orders                rows as they come, until Ctrl-C or LIMIT
    CREATE TABLE orders (id INT, ..)            declares a topic's columns; nothing is made
    CREATE TEMPORARY VIEW v AS SELECT ..        a name for a query
    CREATE STREAMING TABLE t AS SELECT ..       runs until it is stopped, into a topic or the lake
    EXPLAIN, SET and Spark's other commands     as in Spark

Each statement runs in a thread (`jobs`), so that Ctrl-C ends it and not the session.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from moldau.spark.pipeline.flows import Starter
from moldau.spark.pipeline.progress import FlowProgress
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.sentences import is_sparks
from moldau.spark.pipeline.tables import Tables
from moldau.spark.sql import rows as rendering
from moldau.spark.sql import texts
from moldau.spark.sql.binding import Binder, Bound, Starting, quoted_view
from moldau.spark.sql.catalog import Catalog
from moldau.spark.sql.cluster import Brokers
from moldau.spark.sql.creation import Creation
from moldau.spark.sql.jobs import Cancel, interruptible
from moldau.spark.sql.mistakes import Mistake, explained
from moldau.spark.sql.relations import limit_of
from moldau.spark.sql.rows import Cells
from moldau.spark.sql.saving import save_project
from moldau.spark.sql.statements import (
    Describe,
    Drop,
    Help,
    Misspelt,
    Own,
    Quit,
    Save,
    ShowStreams,
    ShowTopics,
    Stop,
    own_statement,
)
from moldau.spark.sql.streams import Streams
from moldau.spark.sql.texts import Text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM_BATCH = 100_000
"""Records in one batch of a stream that is shown, so that one which begins at the start of a topic shows soon."""
CHUNK = 1000
"""Rows that are given to the screen at once."""
REFUSED = {
    "CreateStreamingTable": "Write CREATE STREAMING TABLE name AS SELECT .. FROM STREAM ..",
    "CreateMaterializedViewAsSelect": "Materialized views are for pipelines: `moldau pipeline new` makes one.",
    "CreateFlowCommand": "Flows are for pipelines; here it is CREATE STREAMING TABLE name AS SELECT ..",
    "InsertIntoStatement": "CREATE STREAMING TABLE writes to a topic, and so does `moldau message produce`.",
    "CreateView": "A view here is temporary: write CREATE TEMPORARY VIEW.",
    "CreateTableAsSelect": "CREATE STREAMING TABLE name AS SELECT .. FROM STREAM .. writes to a topic.",
}


class Screen(Protocol):
    """Where results go."""

    wants_json: bool
    rows_max: int | None
    """How many rows of a batch query are shown; None: all."""

    def begin(self, columns: Sequence[str], again: bool = False) -> None:
        """A result begins; `again`: the same one, whole, once more."""

    def rows(self, rows: Sequence[Cells]) -> None: ...

    def end(self, count: int, is_cut: bool) -> None: ...

    def listing(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None: ...

    def streams(self, flows: Sequence[FlowProgress]) -> None: ...

    def say(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def help(self) -> None: ...


class Session:
    def __init__(
        self,
        spark: SparkSession,
        brokers: Brokers,
        kafka: Mapping[str, str],
        project: Project,
        keeps: bool,
        screen: Screen,
    ) -> None:
        """`keeps`: the project's storage outlives the session, so tables of the lake may be made in it."""
        self._spark = spark
        self._screen = screen
        self._tables = Tables(spark, project)
        self._brokers = brokers
        self.catalog = Catalog(brokers)
        self.streams = Streams(spark, self._tables)
        self._binder = Binder(spark, self.catalog, kafka)
        self._creation = Creation(spark, brokers, kafka, self._tables, keeps)
        self._starter = Starter(spark, self._tables, once=False)
        self._views: dict[str, Bound] = {}
        self._kafka = kafka
        self._keeps = keeps

    def execute(self, text: Text) -> bool:
        """One statement; False where it ends the session. `Mistake` where something is wrong with it."""
        try:
            own = own_statement(text.statement)
        except Misspelt as reason:
            raise Mistake(str(reason), place=texts.line_and_column(text.whole, len(text.blanks))) from None
        if isinstance(own, Quit):
            return False
        if own is not None:
            interruptible(lambda _cancel: self._carry_out(own))
        else:
            interruptible(lambda cancel: self._run_explained(text, cancel))
        return True

    def close(self) -> None:
        self.streams.close()
        self._brokers.close()

    def names(self) -> list[str]:
        """Of views, streaming tables and declared tables."""
        declared = [table.name for table in self.catalog.declared.values()]
        return [*self._binder.views.values(), *self.streams.created(), *declared]

    def columns(self, name: str) -> list[str]:
        """For completion."""
        view = self._views.get(name.casefold())
        return self.catalog.known_columns(name) if view is None else list(view.frame.columns)

    def _run_explained(self, text: Text, cancel: Cancel) -> None:
        """Spark's errors are mistakes in the statement, or what its brokers and files did; others are not ours."""
        try:
            self._run(text, cancel)
        except Exception as error:
            if cancel.is_asked:
                return
            if isinstance(error, Mistake) or not is_sparks(error):
                raise
            raise explained(error, text) from error

    def _run(self, text: Text, cancel: Cancel) -> None:
        self._starter.enter_thread()
        plan = self._binder.parse(text)
        kind = plan.getClass().getSimpleName()
        carried_out = self._statements().get(kind)
        if kind in REFUSED:
            raise Mistake("This statement is not taken here.", REFUSED[kind])
        if carried_out is not None:
            carried_out(text, plan)
        elif self._is_command(plan):
            self._command(text, cancel)
        else:
            self._query(text, cancel)

    def _statements(self) -> Mapping[str, Callable[[Text, Any], None]]:
        return {
            "CreateTable": self._create_table,
            "CreateViewCommand": self._create_view,
            "CreateStreamingTableAsSelect": self._create_streaming_table,
            "ExplainCommand": self._explain,
        }

    def _is_command(self, plan: Any) -> bool:
        from py4j.java_gateway import is_instance_of

        gateway = self._spark.sparkContext._gateway
        return bool(is_instance_of(gateway, plan, "org.apache.spark.sql.catalyst.plans.logical.Command"))

    def _query(self, text: Text, cancel: Cancel) -> None:
        options = {"maxOffsetsPerTrigger": str(STREAM_BATCH)}
        bound = self._binder.bind(text, lambda plan: plan, Starting("latest", options))
        for one in bound.notes:
            self._screen.note(one)
        try:
            if bound.frame.isStreaming:
                self._show_stream(bound, cancel)
            else:
                self._show_rows(bound.frame, cancel)
        except Exception as error:
            if isinstance(error, Mistake) or not is_sparks(error):
                raise
            raise explained(error, bound.text) from error

    def _shown(self, frame: DataFrame) -> DataFrame:
        return rendering.in_json(frame) if self._screen.wants_json else rendering.in_texts(frame)

    def _show_rows(self, frame: DataFrame, cancel: Cancel) -> None:
        most = self._screen.rows_max
        chunk: list[Cells] = []
        count, is_cut = 0, False
        has_begun = False
        for row in rendering.batch_rows(self._spark, self._shown(frame), most, cancel):
            if not has_begun:
                self._screen.begin(frame.columns)
                has_begun = True
            if most is not None and count == most:
                is_cut = True
                break
            chunk.append(row)
            count += 1
            if len(chunk) == CHUNK:
                self._screen.rows(chunk)
                chunk = []
        if cancel.is_asked:
            return
        if not has_begun:
            self._screen.begin(frame.columns)
        self._screen.rows(chunk)
        self._screen.end(count, is_cut)

    def _show_stream(self, bound: Bound, cancel: Cancel) -> None:
        frame = self._shown(bound.frame)
        mode = rendering.output_mode(self._spark, bound.frame)
        shown = 0

        def take(rows: list[Cells]) -> None:
            nonlocal shown
            if mode == "complete" and shown:
                self._screen.begin(bound.frame.columns, again=True)
            self._screen.rows(rows)
            shown += len(rows)

        checkpoint = tempfile.mkdtemp(prefix="moldau-sql-")
        try:
            self._screen.begin(bound.frame.columns)
            rendering.stream_rows(frame, mode, checkpoint, limit_of(bound.plan), take, cancel)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)

    def _command(self, text: Text, cancel: Cancel) -> None:
        frame = self._spark.sql(text.whole)
        if frame.columns:
            self._show_rows(frame, cancel)

    def _explain(self, text: Text, plan: Any) -> None:
        bound = self._binder.bind(text, lambda plan: plan.logicalPlan(), Starting("latest"))
        mode = str(plan.mode().name())
        self._screen.say(
            bound.frame._sc._jvm.PythonSQLUtils.explainString(bound.frame._jdf.queryExecution(), mode)
        )

    def _create_table(self, text: Text, plan: Any) -> None:
        table = self.catalog.declare(plan)
        self._screen.say(f"{table.name} is the topic {table.topic} with {len(table.columns())} columns.")

    def _create_view(self, text: Text, plan: Any) -> None:
        if plan.viewType().toString() != "LocalTempView":
            raise Mistake("A view here is temporary.", "Write CREATE TEMPORARY VIEW.")
        name = str(plan.name().table())
        bound = self._binder.bind(text, lambda plan: plan.plan(), Starting("latest"))
        bound.frame.createOrReplaceTempView(quoted_view(name))
        self._binder.views[name.casefold()] = name
        self._views[name.casefold()] = bound
        self._screen.say(f"{name} is a view with {len(bound.frame.columns)} columns.")

    def _create_streaming_table(self, text: Text, plan: Any) -> None:
        name = self._creation.name_of(plan)
        if name.casefold() in self._binder.views or self.streams.find(name) in self.streams.running():
            raise Mistake(f"There is a '{name}' already.", f"STOP {texts.name(name)} ends what runs.")
        bound = self._binder.bind(text, lambda plan: plan.query(), Starting("earliest"))
        created = self._creation.create(bound, self._views)
        self.streams.start(created)
        if created.built.output.is_stored:
            self._binder.lake[name.casefold()] = self._creation.reader(created)
        self._screen.say(self._creation.sentence(created))

    def _carry_out(self, own: Own) -> None:
        match own:
            case ShowTopics():
                self._show_topics(own)
            case ShowStreams():
                self._screen.streams(self.streams.flows)
            case Describe(name):
                self._describe(name)
            case Stop(name):
                self._stop(name)
            case Drop(name, if_exists):
                self._drop(name, if_exists)
            case Save(folder):
                self._screen.say(self._save(folder))
            case Help():
                self._screen.help()

    def _show_topics(self, wanted: ShowTopics) -> None:
        declared: dict[str, str] = {}
        for table in self.catalog.declared.values():
            declared.setdefault(table.topic, table.name)
        running = self.streams.running()
        rows = []
        for topic, partitions in self._brokers.topics().items():
            if wanted.takes(topic):
                what = "written by a streaming table" if topic in running else ""
                what = f"declared as {declared[topic]}" if topic in declared else what
                rows.append([topic, str(partitions), what])
        self._screen.listing(["topic", "partitions", ""], rows)

    def _describe(self, name: str) -> None:
        rows: list[list[str]]
        if view := self._views.get(name.casefold()):
            rows = [[field.name, field.dataType.simpleString().upper(), ""] for field in view.frame.schema]
        elif stored := self._binder.lake.get(name.casefold()):
            rows = [[field.name, field.dataType.simpleString().upper(), ""] for field in stored(False).schema]
        else:
            table = self.catalog.table(name)
            if table is None:
                raise self.catalog.missing(name, self.names())
            rows = [[column, kind, ""] for column, kind in table.columns()]
            rows += [[column, kind, "metadata"] for column, kind in table.metadata()]
        self._screen.listing(["column", "type", ""], rows)

    def _stop(self, name: str) -> None:
        found = self.streams.find(name)
        if found is None or found not in self.streams.running():
            running = ", ".join(self.streams.running()) or "none"
            raise Mistake(f"No streaming table '{name}' runs.", f"Running: {running}.")
        self.streams.stop(found)
        self.streams.news()
        self._screen.say(f"{found} is stopped.")

    def _save(self, folder: str) -> str:
        try:
            return save_project(folder, self.streams, self._tables, self._keeps, self._views, self._kafka)
        except OSError as error:
            raise Mistake(f"{error.filename or folder}: {(error.strerror or str(error)).lower()}.") from error

    def _drop(self, name: str, if_exists: bool) -> None:
        if self.catalog.declared.pop(name.casefold(), None) is not None:
            self._screen.say(f"{name} is no longer declared; its topic stays.")
        elif not if_exists:
            raise Mistake(
                f"No table '{name}' is declared.", "`moldau topic delete` deletes topics, DROP VIEW views."
            )
