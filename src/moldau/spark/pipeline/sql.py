"""The statements of a project's SQL files, understood by Spark's own parser.

    CREATE STREAMING TABLE t [(columns)] [PARTITIONED BY ..] [AS SELECT ..]
    CREATE MATERIALIZED VIEW m AS SELECT ..
    CREATE TEMPORARY VIEW v AS SELECT ..
    CREATE FLOW f AS INSERT INTO t BY NAME SELECT ..
    CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (..) ..
    SET key = value             for the flows below it in the file

A statement is given to the parser behind as many newlines as there are lines before it in its file, so the lines in
Spark's messages are the file's. The plans' class and field names are internal to Spark:
tests/spark/test_pipeline_sql.py tells where a new PySpark has other ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.declared import ChangeData, Declared, Flow, Kind, Mistake, Output, Place
from moldau.spark.pipeline.sentences import line_in, sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TOKEN = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|;""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    line: int
    """Where it begins, from 1, comments before it left out."""


def split(text: str) -> Iterator[Statement]:
    """Statements between semicolons that stand in no quotes and no comment."""
    first = 0
    ends = [match.start() for match in _TOKEN.finditer(text) if match[0] == ";"]
    for end in [*ends, len(text)]:
        part = text[first:end]
        bare = without_comments(part)
        if bare.strip():
            before = first + len(bare) - len(bare.lstrip())
            yield Statement(text[before:end].rstrip(), text.count("\n", 0, before) + 1)
        first = end + 1


def without_comments(text: str) -> str:
    """Comments as blanks of the same length: positions stay what they are."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", match[0]) if match[0].startswith(("--", "/*")) else match[0]

    return _TOKEN.sub(blank, text)


def declare_statements(spark: SparkSession, declared: Declared, text: str, file: str) -> None:
    """Add what a file's statements declare; a Mistake at the first one that is not right."""
    conf: dict[str, str] = {}
    for statement in split(text):
        place = Place(file, statement.line)
        plan = parse(spark, statement, place)
        kind = plan.getClass().getSimpleName()
        declare = STATEMENTS.get(kind)
        if kind == "SetCommand":
            conf |= dict([setting(plan, place)])
        elif declare is None:
            raise Mistake(place, "is not a statement of a pipeline.", f"There are {', '.join(TAKEN)}.")
        else:
            declare(Context(spark, declared, place, dict(conf)), plan)


def parse(spark: SparkSession, statement: Statement, place: Place) -> Any:
    from pyspark.errors import ParseException

    try:
        return (
            spark._jsparkSession.sessionState()
            .sqlParser()
            .parsePlan("\n" * (statement.line - 1) + statement.text)
        )
    except ParseException as error:
        reason = re.sub(r"\s*\(line \d+, pos \d+\).*", "", sentence(error), flags=re.DOTALL)
        raise Mistake(Place(place.file, line_in(error) or place.line), reason) from error


@dataclass(frozen=True, slots=True)
class Context:
    """What one statement is declared with."""

    spark: SparkSession
    declared: Declared
    place: Place
    conf: dict[str, str]

    def flow(self, name: str, target: str, plan: Any, change_data: ChangeData | None = None) -> None:
        self.declared.add_flow(
            Flow(
                name, target, self.place, SqlQuery(self.spark, plan, self.place.file), self.conf, change_data
            )
        )


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """A flow's query: the parsed plan, which Spark analyses anew at each call."""

    spark: SparkSession
    plan: Any
    file: str

    def relations(self) -> list[tuple[str, bool]]:
        return relations(self.plan)

    def __call__(self) -> DataFrame:
        from pyspark.sql.classic.dataframe import DataFrame

        dataset = self.spark._jvm.org.apache.spark.sql.classic.Dataset
        return DataFrame(dataset.ofRows(self.spark._jsparkSession, self.plan), self.spark)


def streaming_table(context: Context, plan: Any) -> None:
    output = table_output(context, plan, Kind.TABLE)
    context.declared.add_output(output)
    if plan.getClass().getSimpleName() == "CreateStreamingTableAsSelect":
        context.flow(output.name, output.name, plan.query())


def materialized_view(context: Context, plan: Any) -> None:
    output = table_output(context, plan, Kind.MATERIALIZED)
    context.declared.add_output(output)
    context.flow(output.name, output.name, plan.query())


def temporary_view(context: Context, plan: Any) -> None:
    if plan.viewType().toString() != "LocalTempView":
        raise Mistake(
            context.place,
            "a view of a pipeline is temporary.",
            "Write CREATE TEMPORARY VIEW or MATERIALIZED VIEW.",
        )
    name = plan.name().table()
    context.declared.add_output(Output(name, Kind.VIEW, context.place))
    context.flow(name, name, plan.plan())


def flow(context: Context, plan: Any) -> None:
    name = joined(plan.name().nameParts())
    operation = plan.flowOperation()
    kind = operation.getClass().getSimpleName()
    if kind == "InsertIntoStatement":
        context.flow(name, joined(operation.table().multipartIdentifier()), operation.query())
    elif kind == "AutoCdcInto":
        auto_cdc(context, name, operation)
    else:
        raise Mistake(context.place, f"a flow of the kind {kind} is not known here.")


def auto_cdc(context: Context, name: str, plan: Any) -> None:
    source = plan.source()
    change_data = ChangeData(
        source=", ".join(name for name, _ in relations(source)),
        keys=column_names(plan.keys()),
        sequence_by=plan.sequenceByExpr().sql(),
        delete_when=None if plan.deleteCondition().isEmpty() else plan.deleteCondition().get().sql(),
        columns=optional_names(plan.includeColumns()),
        except_columns=optional_names(plan.excludeColumns()),
        scd_type=int(str(plan.storedAsScdType())),
        track_history=optional_names(plan.trackHistoryColumns()),
        track_history_except=optional_names(plan.trackHistoryExceptColumns()),
    )
    context.flow(name, joined(plan.targetTable().nameParts()), source, change_data)


STATEMENTS: dict[str, Callable[[Context, Any], None]] = {
    "CreateStreamingTable": streaming_table,
    "CreateStreamingTableAsSelect": streaming_table,
    "CreateMaterializedViewAsSelect": materialized_view,
    "CreateViewCommand": temporary_view,
    "CreateFlowCommand": flow,
}
TAKEN = (
    "CREATE STREAMING TABLE",
    "CREATE MATERIALIZED VIEW",
    "CREATE TEMPORARY VIEW",
    "CREATE FLOW",
    "SET",
)


def table_output(context: Context, plan: Any, kind: Kind) -> Output:
    spec = plan.tableSpec()
    columns = items(plan.columns())
    return Output(
        name=joined(plan.name().nameParts()),
        kind=kind,
        place=context.place,
        format=option(spec.provider()),
        properties=mapping(spec.properties()),
        schema=", ".join(f"`{column.name()}` {column.dataType().sql()}" for column in columns) or None,
        partition_by=tuple(
            transform_column(transform, context.place) for transform in items(plan.partitioning())
        ),
    )


def transform_column(transform: Any, place: Place) -> str:
    if transform.name() != "identity":
        raise Mistake(place, f"a table is partitioned by columns, not by {transform.name()}.")
    return ".".join(transform.references()[0].fieldNames())


def setting(plan: Any, place: Place) -> tuple[str, str]:
    pair = option(plan.kv())
    value = None if pair is None else option(pair._2())
    if pair is None or value is None:
        raise Mistake(place, "SET takes a key and a value.")
    return str(pair._1()), str(value)


def relations(plan: Any) -> list[tuple[str, bool]]:
    """The tables and views that a parsed query names, and whether it reads each as a stream. Its own WITH names are not
    among them."""
    found: dict[tuple[str, bool], None] = {}
    own: set[str] = set()

    def walk(node: Any) -> None:
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedRelation":
            found[joined(node.multipartIdentifier()), bool(node.isStreaming())] = None
        if kind == "UnresolvedWith":
            own.update(str(relation._1()).casefold() for relation in items(node.cteRelations()))
            for relation in items(node.cteRelations()):
                walk(relation._2())
        for part in (node.children(), node.subqueries()):
            for child in items(part):
                walk(child)

    walk(plan)
    return [(name, streaming) for name, streaming in found if name.casefold() not in own]


def column_names(columns: Any) -> tuple[str, ...]:
    return tuple(column.name() for column in items(columns))


def optional_names(columns: Any) -> tuple[str, ...] | None:
    return None if columns.isEmpty() else column_names(columns.get())


def option(scala: Any) -> Any:
    """What a Scala Option holds, or None."""
    return scala.get() if scala.isDefined() else None


def items(scala: Any) -> list[Any]:
    """The items of a Scala Seq."""
    return [scala.apply(index) for index in range(scala.length())]


def mapping(scala: Any) -> dict[str, str]:
    """The pairs of a Scala Map of texts."""
    return {str(pair._1()): str(pair._2()) for pair in items(scala.toSeq())}


def joined(parts: Any) -> str:
    return ".".join(str(part) for part in items(parts))
