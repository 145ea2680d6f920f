"""From a parsed query to Spark's: its names become topics, read as the statement wants them.

While one query is built, each of its names is a temporary view; afterwards they are dropped, so that no name means
what it meant for an earlier statement. The session's own views stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.session_conf import BUILDING
from moldau.spark.pipeline.sql import SqlQuery
from moldau.spark.source.errors import OptionError
from moldau.spark.source.options import parse_options
from moldau.spark.sql import texts
from moldau.spark.sql.catalog import Catalog
from moldau.spark.sql.inference import Format
from moldau.spark.sql.mistakes import Mistake, at, explained
from moldau.spark.sql.reads import Read, read_of
from moldau.spark.sql.relations import Relation, needs_all_columns, relations, replaced
from moldau.spark.sql.texts import Text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_FORMATS = frozenset({"parquet", "orc", "json", "csv", "text", "delta", "avro"})
"""`FROM parquet.'path'` is Spark's own."""
Part = Callable[[Any], Any]
"""The query within a parsed statement."""


@dataclass(frozen=True, slots=True)
class Starting:
    """Where streams begin, and more of the source's options for them."""

    offsets: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bound:
    frame: DataFrame
    plan: Any
    """The statement as it was parsed at last."""
    text: Text
    """With names of several parts in back-quotes."""
    reads: Mapping[Relation, Read]
    notes: tuple[str, ...]


class Binder:
    def __init__(self, spark: SparkSession, catalog: Catalog, kafka: Mapping[str, str]) -> None:
        self._spark = spark
        self._catalog = catalog
        self._kafka = kafka
        self.views: dict[str, str] = {}
        """The session's own, by their names in lower case."""
        self.lake: dict[str, Callable[[bool], DataFrame]] = {}
        """Its tables in the lake, as rows or as a stream."""

    def parse(self, text: Text) -> Any:
        try:
            return self._spark._jsparkSession.sessionState().sqlParser().parsePlan(text.whole)
        except Exception as error:
            raise explained(error, text) from error

    def bind(self, text: Text, part: Part, starting: Starting) -> Bound:
        """The query of a statement, analysed by Spark."""
        plan = self.parse(text)
        text = self._quoted(text, relations(part(plan)))
        plan = self.parse(text)
        self._refuse_both(text, relations(part(plan)))
        if needs_all_columns(part(plan)):
            return self._bound(text, plan, part, starting, everything=True)
        try:
            return self._bound(text, plan, part, starting, everything=False)
        except Mistake as mistake:
            if "UNRESOLVED_COLUMN" not in str(mistake.__cause__):
                raise
        return self._bound(
            text, plan, part, starting, everything=True
        )  # Spark suggests columns that there are

    def _bound(self, text: Text, plan: Any, part: Part, starting: Starting, everything: bool) -> Bound:
        notes: list[str] = []
        reads: dict[Relation, Read] = {}
        frames: dict[str, DataFrame] = {}
        for relation in relations(part(plan)):
            if relation.name.casefold() in self.views or is_file(relation):
                continue
            if stored := self.lake.get(relation.name.casefold()):
                frames[relation.name] = stored(relation.is_stream)
                continue
            reads[relation] = self._read(text, relation, starting, everything, notes)
            frames[relation.name] = self._checked_frame(text, relation, reads[relation])
        with BUILDING, self._named(frames):
            try:
                frame = SqlQuery(self._spark, part(plan), "")()
            except Exception as error:
                raise explained(error, text) from error
        return Bound(frame, plan, text, reads, tuple(dict.fromkeys(notes)))

    def frame_of(self, read: Read) -> DataFrame:
        reader = self._spark.readStream if read.is_stream else self._spark.read
        frame = reader.format("moldau").options(**read.options).load()
        for selection in read.selections:
            frame = frame.selectExpr(*selection)
        return frame

    def _checked_frame(self, text: Text, relation: Relation, read: Read) -> DataFrame:
        """Options that the source refuses are a mistake at the relation's place."""
        try:
            parse_options(read.options, is_stream=read.is_stream)
            return self.frame_of(read)
        except OptionError as reason:
            message = str(reason).strip()
            message = message if message.endswith(".") else message + "."
            raise Mistake(message, place=at(text, relation.first)) from reason
        except Exception as error:
            mistake = explained(error, text)
            raise Mistake(mistake.message, mistake.hint, at(text, relation.first)) from error

    def _quoted(self, text: Text, named: list[Relation]) -> Text:
        """Names of several parts that are topics' as one: from the last to the first, so that places stay."""
        for relation in sorted(named, key=lambda one: one.first, reverse=True):
            if len(relation.parts) > 1 and not is_file(relation):
                text = replaced(text, relation, texts.name(relation.name))
        return text

    def _refuse_both(self, text: Text, named: list[Relation]) -> None:
        streams = {relation.name.casefold() for relation in named if relation.is_stream}
        for relation in named:
            if not relation.is_stream and relation.name.casefold() in streams:
                raise Mistake(
                    f"'{relation.name}' is read as a stream and as a table in one statement.",
                    f"Name one of them: CREATE TEMPORARY VIEW then AS SELECT * FROM {texts.name(relation.name)}.",
                    at(text, relation.first),
                )

    def _read(
        self, text: Text, relation: Relation, starting: Starting, everything: bool, notes: list[str]
    ) -> Read:
        table = self._catalog.table(relation.name)
        if table is None:
            raise self._catalog.missing(relation.name, self.views.values(), at(text, relation.first))
        shape = table.shape
        if not table.is_declared and not shape.sampled:
            notes.append(f"{table.topic} has no records yet: its one column is {table.text_column}.")
        if shape.corrupt:
            notes.append(
                f"{shape.corrupt:,} of {shape.sampled:,} records of {table.topic} that were looked at are no JSON "
                "objects: their text stands in the column _corrupt."
            )
        mentioned = texts.mentioned(text.statement)
        needed = None if everything or shape.format is not Format.JSON else mentioned
        more = {**(starting.options if relation.is_stream else {}), **relation.options}
        return read_of(table, self._kafka, relation.is_stream, starting.offsets, mentioned, needed, more)

    @contextmanager
    def _named(self, frames: Mapping[str, DataFrame]) -> Iterator[None]:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(quoted_view(name))
        try:
            yield
        finally:
            for name in frames:
                self._spark.catalog.dropTempView(name)


def quoted_view(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def is_file(relation: Relation) -> bool:
    return len(relation.parts) == 2 and relation.parts[0].lower() in FILE_FORMATS and "/" in relation.parts[1]
