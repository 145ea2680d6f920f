"""CREATE STREAMING TABLE: a query that writes to a topic, or to a table in the lake.

Into a topic (USING moldau, or no USING) each row is a JSON object, under the key of TBLPROPERTIES ('key' = 'column');
'topic' is the topic's name where it is not the table's, 'partitions' how many it is made with where it is missing,
and properties that begin with `moldau.` are options of the sink (`moldau.exactlyOnce`). USING delta makes a table in
the session's storage, as a pipeline's streaming tables are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.declared import Flow, Kind, Output, Place
from moldau.spark.pipeline.declared import Mistake as PipelineMistake
from moldau.spark.pipeline.graph import Built
from moldau.spark.pipeline.refusals import refuse
from moldau.spark.pipeline.sql import items, mapping, option, transform_column
from moldau.spark.pipeline.tables import Tables, lake_properties
from moldau.spark.sql.binding import Bound
from moldau.spark.sql.cluster import Brokers
from moldau.spark.sql.inference import quoted
from moldau.spark.sql.mistakes import Mistake, at
from moldau.spark.sql.streams import Streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAKE_FORMATS = ("delta", "moldau_lake")
TOPIC_FORMATS = ("moldau", "kafka")
PROPERTIES = ("topic", "key", "partitions")


class Creation:
    def __init__(
        self, spark: SparkSession, brokers: Brokers, kafka: Mapping[str, str], tables: Tables, keeps: bool
    ) -> None:
        self._spark = spark
        self._brokers = brokers
        self._kafka = kafka
        self._tables = tables
        self._keeps = keeps

    def name_of(self, plan: Any) -> str:
        return ".".join(str(part) for part in items(plan.name().nameParts()))

    def create(self, bound: Bound, views: Mapping[str, Bound]) -> Streaming:
        """What is to be started; its topic or table is there then."""
        plan = bound.plan
        name = self.name_of(plan)
        if items(plan.columns()):
            raise Mistake("A streaming table has the columns of its query.", "Leave its list of columns out.")
        provider = str(option(plan.tableSpec().provider()) or "moldau").lower()
        if provider in LAKE_FORMATS:
            return self._into_lake(name, bound)
        if provider not in TOPIC_FORMATS:
            raise Mistake(
                f"USING {provider} is not known here.",
                "It is moldau, for a topic, or delta, for the lake.",
            )
        return self._into_topic(name, bound)

    def _into_topic(self, name: str, bound: Bound) -> Streaming:
        given = mapping(bound.plan.tableSpec().properties())
        strangers = [key for key in given if key not in PROPERTIES and not key.startswith("moldau.")]
        if strangers:
            raise Mistake(
                f"A streaming table has no property '{strangers[0]}'.",
                f"There are {', '.join(PROPERTIES)}, and the sink's options as moldau.exactlyOnce.",
            )
        if items(bound.plan.partitioning()):
            raise Mistake(
                "A topic is not partitioned by columns.", "Name its key: TBLPROPERTIES ('key' = 'id')."
            )
        topic = given.get("topic", name)
        key = self._key(given.get("key"), bound.frame)
        for relation, read in bound.reads.items():
            if read.topic == topic:
                raise Mistake(
                    f"'{name}' would read the topic {topic}, which it writes to.",
                    "Write to another: TBLPROPERTIES ('topic' = 'name').",
                    at(bound.text, relation.first),
                )
        sink = {
            **{f"kafka.{setting}": value for setting, value in self._kafka.items()},
            "topic": topic,
            **lake_properties(given),
        }
        output = Output(name, Kind.SINK, Place("sql"), "moldau", sink)
        built = self._checked(output, as_records(bound.frame, key))
        self._brokers.create(topic, partitions_of(given))
        return Streaming(built, bound, sink, key)

    def _key(self, wanted: str | None, frame: DataFrame) -> str | None:
        if wanted is None:
            return None
        columns: list[str] = frame.columns
        found = next((name for name in columns if name.casefold() == wanted.casefold()), None)
        if found is None:
            raise Mistake(
                f"The key '{wanted}' is no column of the query.", f"There are {', '.join(columns)}."
            )
        return found

    def _into_lake(self, name: str, bound: Bound) -> Streaming:
        if not self._keeps:
            raise Mistake(
                "A table in the lake needs a folder that outlives this session.",
                "Start with --storage FOLDER.",
            )
        spec = bound.plan.tableSpec()
        partitions = [transform_column(one, Place("sql")) for one in items(bound.plan.partitioning())]
        output = Output(
            name,
            Kind.TABLE,
            Place("sql"),
            properties=mapping(spec.properties()),
            partition_by=tuple(partitions),
        )
        built = self._checked(output, bound.frame)
        self._tables.create(output, bound.frame.schema)
        return Streaming(built, bound, {})

    def _checked(self, output: Output, frame: DataFrame) -> Built:
        from moldau.spark.pipeline.declared import Declared

        flow = Flow(output.name, output.name, output.place, lambda: frame)
        try:
            if output.is_stored:
                Declared().add_output(output)
            refuse(self._spark, flow, output, frame)
        except PipelineMistake as mistake:
            raise Mistake(f"{mistake.message[:1].upper()}{mistake.message[1:]}", mistake.hint) from mistake
        return Built(flow, output, frame, (), ())

    def reader(self, created: Streaming) -> Callable[[bool], DataFrame]:
        """Its table in the lake, as rows or as a stream."""
        name, schema = created.built.output.name, created.bound.frame.schema
        return lambda is_stream: (self._tables.stream if is_stream else self._tables.rows)(name, schema)

    def sentence(self, created: Streaming) -> str:
        output = created.built.output
        where = f"the topic {output.options['topic']}" if created.sink else self._tables.path(output.name)
        return f"{output.name} is started, and writes to {where}."


def as_records(frame: DataFrame, key: str | None) -> DataFrame:
    """Rows as a topic's records."""
    return frame.selectExpr(*record_columns(key))


def record_columns(key: str | None) -> list[str]:
    keys = [] if key is None else [f"CAST({quoted(key)} AS STRING) AS key"]
    return [*keys, "to_json(struct(*)) AS value"]


def partitions_of(given: Mapping[str, str]) -> int | None:
    wanted = given.get("partitions")
    if wanted is None:
        return None
    if not wanted.isdigit() or not int(wanted):
        raise Mistake(f"'partitions' = '{wanted}' is no number of partitions.")
    return int(wanted)
