"""What cannot run endlessly, or not into its output, is refused before it starts, where it was written.

a batch query into a streaming table or sink     it would end, and nothing would come after it
a stream into a materialized view                it is computed from what is there, again and again
sorting, aggregating without a watermark, ...    Spark's own rules for a query that appends
a sink's format that Spark does not find         its query would not start
Real-Time Mode without Spark's Kafka connector   nothing else serves it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import Flow, Kind, Mistake, Output
from moldau.spark.pipeline.flows import is_real_time
from moldau.spark.pipeline.sentences import sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "kafka"
"""The format of Spark's own connector, whose jars are not in PySpark."""
CONNECTOR_HINT = (
    'Use format("moldau"), which reads Kafka too, or give Spark its own connector: `--set spark.jars.packages='
    "org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION` fetches it, `--set spark.jars=FILE,FILE` takes jars that "
    "are here."
)
OURS = frozenset({"moldau", "moldau_lake"})


def refuse(spark: SparkSession, flow: Flow, output: Output, frame: DataFrame) -> None:
    if output.kind is Kind.VIEW:
        return
    if output.kind is Kind.MATERIALIZED:
        if frame.isStreaming:
            raise Mistake(
                flow.place,
                f"the materialized view '{output.name}' reads a stream.",
                "Read tables, with spark.read or FROM without STREAM, or declare a streaming table.",
            )
        return
    if not frame.isStreaming:
        raise Mistake(
            flow.place,
            f"the flow '{flow.name}' into the {output.kind.value} '{output.name}' reads no stream: "
            "it would end, and never see new rows.",
            "Read with spark.readStream or STREAM, or declare a materialized view.",
        )
    refuse_unsupported(spark, flow, frame)
    if is_real_time(flow) and (output.kind is not Kind.SINK or output.format in OURS):
        raise Mistake(
            flow.place,
            f"'{flow.name}' is to run in Real-Time Mode, into the {output.kind.value} '{output.name}'.",
            'Only sinks of Spark\'s own serve it: dp.create_sink(..., "kafka", ...).',
        )
    if output.kind is Kind.SINK:
        refuse_unknown(spark, output)
        refuse_sink(flow, output, frame)


def refuse_unknown(spark: SparkSession, output: Output) -> None:
    """A sink's format that Spark does not find, which it otherwise says when the query is started."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if output.format in OURS or output.format == "memory":  # which is within Spark
        return
    found = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        found.lookupDataSource(output.format, spark._jsparkSession.sessionState().conf())
    except (PySparkException, Py4JError) as error:
        if not spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(output.format):
            hint = CONNECTOR_HINT if output.format == CONNECTOR else ""
            raise Mistake(output.place, f"the sink '{output.name}': {sentence(error)}", hint) from error


def refuse_sink(flow: Flow, output: Output, frame: DataFrame) -> None:
    """Options and columns that our own sinks would refuse when the query is started."""
    try:
        if output.format == "moldau":
            from moldau.spark.topic_sink.columns import Columns
            from moldau.spark.topic_sink.options import SinkOptions

            topic = SinkOptions.of(output.options, streaming=True).topic
        elif output.format == "moldau_lake":
            from moldau.spark.lake.options import parse

            parse(output.options)
    except ValueError as error:
        raise Mistake(output.place, f"the sink '{output.name}': {sentence_of(error)}") from error
    if output.format == "moldau":
        try:
            Columns.of(frame.schema, topic)
        except ValueError as error:
            raise Mistake(flow.place, f"the rows of '{flow.name}': {sentence_of(error)}") from error


def refuse_source(flow: Flow, format: str, options: Mapping[str, str]) -> None:
    """What would be refused when the query is started: a source in Real-Time Mode, options of our own source."""
    if is_real_time(flow) and format != CONNECTOR:
        raise Mistake(
            flow.place,
            f"'{flow.name}' is to run in Real-Time Mode, and reads with format(\"{format}\").",
            'Only Spark\'s own connector serves it: format("kafka").',
        )
    if format != "moldau":
        return
    from moldau.spark.source.options import parse_options

    try:
        parse_options(options, is_stream=True)
    except ValueError as error:
        raise Mistake(flow.place, f"the source of '{flow.name}': {sentence_of(error)}") from error


def sentence_of(error: ValueError) -> str:
    text = str(error).rstrip()
    return text if text.endswith((".", "?")) else text + "."


def refuse_unsupported(spark: SparkSession, flow: Flow, frame: DataFrame) -> None:
    """Spark's own check of a query that appends (in Real-Time Mode: updates), which it otherwise makes at its start."""
    from pyspark.errors import PySparkException

    jvm = spark._jvm
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = modes.Update() if is_real_time(flow) else modes.Append()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
    except PySparkException as error:
        raise Mistake(flow.place, f"'{flow.name}' cannot run endlessly: {sentence(error)}") from error
