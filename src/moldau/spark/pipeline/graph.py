"""Every flow of a project as a query that Spark has analysed, in an order of dependence. Nothing is written here.

A flow's query is built by calling it. Where it reads another output of the project, that one's schema is needed,
and its flows are built first, from within the call: dependence is found by being asked. What cannot run endlessly
is refused where it was written, with all other mistakes of the project.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline import names
from moldau.spark.pipeline.declared import Declared, Flow, Kind, Mistake, Mistakes, Output, Place
from moldau.spark.pipeline.plan import Cycle, order, static_mistakes
from moldau.spark.pipeline.project import Project
from moldau.spark.pipeline.refusals import CONNECTOR_HINT
from moldau.spark.pipeline.registry import in_folder, place_of
from moldau.spark.pipeline.sentences import line_in, sentence
from moldau.spark.pipeline.session_conf import BUILDING, conf_in_force
from moldau.spark.pipeline.sql import SqlQuery, items
from moldau.spark.pipeline.tables import FORMAT, STAND_IN, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Broken(Exception):
    """A flow reads an output whose own mistake is reported already."""


@dataclass(frozen=True)
class Source:
    """An external source of a stream: its format and options, keys in lower case."""

    format: str
    options: dict[str, str]


@dataclass(frozen=True)
class Built:
    """A flow with its query."""

    flow: Flow
    output: Output
    frame: DataFrame
    reads: tuple[str, ...]
    """The project's tables that it reads."""
    sources: tuple[Source, ...]
    streams: tuple[str, ...] = ()
    """The tables among `reads` that it reads as streams."""


class Graph:
    def __init__(
        self,
        spark: SparkSession,
        project: Project,
        declared: Declared,
        tables: Tables,
        more_options: names.Options | None = None,
    ) -> None:
        self._spark = spark
        self._project = project
        self._declared = declared
        self._tables = tables
        self._more_options = more_options
        self._by_name = {name.casefold(): output for name, output in declared.outputs.items()}
        self._schemas: dict[str, StructType] = {}
        self._frames: dict[str, DataFrame] = {}
        self._reads: dict[str, dict[str, bool]] = {}
        self._broken: dict[str, Mistake] = {}
        self._below: list[Flow] = []

    def check(self) -> list[Built]:
        """All flows but those of views, in order; `Mistakes` where there are any."""
        found = list(static_mistakes(self._declared))
        known = [flow for flow in self._declared.flows.values() if flow.target in self._declared.outputs]
        for flow in known:
            with contextlib.suppress(Mistake, Broken):
                self.frame_of(flow)
        found += self._broken.values()
        for output in self._declared.outputs.values():
            if output.is_stored:
                with contextlib.suppress(Broken), collecting(found):
                    self.schema_of(output.name)
        found = list({str(mistake): mistake for mistake in found}.values())
        if found:
            raise Mistakes(found)
        try:
            targets = {flow.name: flow.target for flow in known}
            ordered = order(targets, {name: list(reads) for name, reads in self._reads.items()})
        except Cycle as cycle:
            raise Mistakes([cycle.mistake(self._declared)]) from None
        flows = [self._declared.flows[name] for name in ordered]
        return [self._built(flow) for flow in flows if self._output(flow).kind is not Kind.VIEW]

    def rebuilt(self, flow: Flow) -> DataFrame:
        """A flow's query once more, for its next start: with the tables as they are now."""
        with BUILDING:
            self._frames.clear()
            self._broken.clear()
            return self.frame_of(flow)

    def schema_of(self, name: str) -> StructType:
        """Of a table or view: as declared, or as its flows make it."""
        output = self._declared.outputs[name]
        if name not in self._schemas:
            self._schemas[name] = self._declared_schema(output) or self._flows_schema(output)
        return self._schemas[name]

    def frame_of(self, flow: Flow) -> DataFrame:
        if flow.name in self._broken:
            raise Broken
        if flow.name not in self._frames:
            try:
                frame = self._build(flow)
                self._refuse(flow, frame)
            except Mistake as mistake:
                self._broken[flow.name] = mistake
                raise
            self._frames[flow.name] = frame
        return self._frames[flow.name]

    def _build(self, flow: Flow) -> DataFrame:
        if flow in self._below:
            raise Cycle([one.name for one in [*self._below[self._below.index(flow) :], flow]]).mistake(
                self._declared
            )
        self._below.append(flow)
        self._reads[flow.name] = {}
        try:
            with (
                BUILDING,
                self._names_in_force(),
                conf_in_force(self._spark, flow.conf),
                in_folder(self._project.folder),
            ):
                if isinstance(flow.query, SqlQuery):
                    for name, is_stream in flow.query.relations():
                        self.look(name, is_stream)
                frame = flow.query()
        except (Mistake, Broken):
            raise
        except Exception as error:
            raise self._explained(error, flow) from error
        finally:
            self._below.pop()
        if not hasattr(frame, "_jdf"):
            raise Mistake(
                flow.place, f"the query of '{flow.name}' gives {type(frame).__name__}, not a DataFrame."
            )
        return frame

    @contextlib.contextmanager
    def _names_in_force(self) -> Iterator[None]:
        """For the outermost query: one that is built within it has them in force already."""
        if len(self._below) > 1:
            yield
            return
        with names.in_force(self._spark, self.look, self._more_options):
            yield

    def look(self, name: str, is_stream: bool) -> None:
        """Before Spark looks for `name`: make it the table or view that the flow being built means."""
        output = self._by_name.get(self._plain(name).casefold())
        if output is None:
            return
        reader = self._below[-1]
        if output.kind is Kind.SINK:
            raise Mistake(
                reader.place, f"'{reader.name}' reads '{name}', which is a sink.", "Read what feeds it."
            )
        self._frame_for(output, is_stream, reader).createOrReplaceTempView(output.name)

    def _frame_for(self, output: Output, is_stream: bool, reader: Flow) -> DataFrame:
        if output.kind is Kind.VIEW:
            return self._view(output, reader)
        reads = self._reads[reader.name]
        reads[output.name] = is_stream or reads.get(output.name, False)
        if is_stream and (reason := self._changes(output)):
            raise Mistake(
                reader.place,
                f"'{reader.name}' reads '{output.name}' as a stream, but {reason}.",
                'Read it as a table: spark.read.table("..."), or FROM without STREAM.',
            )
        schema = self._schema_for_reader(output)
        return (self._tables.stream if is_stream else self._tables.rows)(output.name, schema)

    def _view(self, output: Output, reader: Flow) -> DataFrame:
        flows = self._declared.flows_into(output.name)
        if not flows:
            raise Broken
        frame = self.frame_of(flows[0])
        reads = self._reads[reader.name]
        for name, is_stream in self._reads[flows[0].name].items():
            reads[name] = is_stream or reads.get(name, False)
        return frame

    def _schema_for_reader(self, output: Output) -> StructType:
        schema = self.schema_of(output.name)
        for flow in self._declared.flows_into(output.name):
            if flow.name in self._broken:
                raise Broken
        return schema

    def _changes(self, output: Output) -> str | None:
        if output.kind is Kind.MATERIALIZED:
            return "a materialized view is computed anew, and no stream of new rows"
        if any(flow.change_data for flow in self._declared.flows_into(output.name)):
            return "its rows change with the change data"
        return None

    def _plain(self, name: str) -> str:
        """A name without the project's own catalog and database."""
        parts = name.replace("`", "").split(".")
        for prefix in ([self._project.catalog, self._project.database], [self._project.database]):
            if None not in prefix and parts[:-1] == prefix:
                return parts[-1]
        return name.replace("`", "")

    def _declared_schema(self, output: Output) -> StructType | None:
        if output.schema is None:
            return None
        if not isinstance(output.schema, str):
            return output.schema
        from pyspark.sql.types import _parse_datatype_string

        try:
            return _parse_datatype_string(output.schema)
        except Exception as error:
            raise Mistake(output.place, f"the schema of '{output.name}': {sentence(error)}") from error

    def _flows_schema(self, output: Output) -> StructType:
        from moldau.spark.pipeline.schemas import merged

        flows = self._declared.flows_into(output.name)
        if not flows:
            raise Broken
        return merged([(flow, self._schema_by(flow)) for flow in flows])

    def _schema_by(self, flow: Flow) -> StructType:
        """The columns that a flow brings into its table."""
        frame = self.frame_of(flow)
        if flow.change_data is None:
            return frame.schema
        from moldau.spark.pipeline.change_data import target_schema

        return target_schema(flow, flow.change_data, frame)

    def _refuse(self, flow: Flow, frame: DataFrame) -> None:
        from moldau.spark.pipeline.refusals import refuse, refuse_source

        output = self._output(flow)
        for source in sources_of(frame):
            refuse_source(flow, source.format, source.options)
        refuse(self._spark, flow, output, frame)
        if (
            output.is_stored
            and flow.change_data is None
            and (schema := self._declared_schema(output)) is not None
        ):
            from moldau.spark.pipeline.schemas import refuse_misfit

            refuse_misfit(flow, frame.schema, output, schema)

    def _explained(self, error: Exception, flow: Flow) -> Mistake:
        """Spark's error about a query, at the line that it speaks of."""
        if isinstance(flow.query, SqlQuery):
            place = Place(flow.place.file, line_in(error) or flow.place.line)
        else:
            place = place_of(error, self._project, flow.place)
        return Mistake(place, sentence(error), self._hint(error))

    def _hint(self, error: Exception) -> str:
        text = str(error)
        if "[TABLE_OR_VIEW_NOT_FOUND]" in text:
            wanted = text.partition("`")[2].partition("`")[0]
            near = get_close_matches(wanted, self._declared.outputs, n=1)
            return (
                f"Did you mean {near[0]}?" if near else "The project declares no table or view of this name."
            )
        if "data source: kafka" in text:
            return CONNECTOR_HINT
        return ""

    def _output(self, flow: Flow) -> Output:
        return self._declared.outputs[flow.target]

    def _built(self, flow: Flow) -> Built:
        frame = self.frame_of(flow)
        reads = self._reads[flow.name]
        streams = tuple(name for name, is_stream in reads.items() if is_stream)
        return Built(flow, self._output(flow), frame, tuple(reads), tuple(sources_of(frame)), streams)


@contextlib.contextmanager
def collecting(found: list[Mistake]) -> Iterator[None]:
    try:
        yield
    except Mistake as mistake:
        found.append(mistake)


def sources_of(frame: DataFrame) -> Iterator[Source]:
    """The streams that a query reads from outside the project."""

    def leaves(plan: Any) -> Iterator[Any]:
        children = items(plan.children())
        if not children:
            yield plan
        for child in children:
            yield from leaves(child)

    for leaf in leaves(frame._jdf.queryExecution().analyzed()):
        if leaf.getClass().getSimpleName() == "StreamingRelationV2":
            given = leaf.extraOptions()
            options = {key: given.get(key) for key in given.keySet()}
            if leaf.sourceName() != FORMAT and STAND_IN not in options:
                yield Source(leaf.sourceName(), options)
