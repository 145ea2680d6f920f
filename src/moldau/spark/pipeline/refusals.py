"""What cannot run endlessly, or not into its output, is refused before it starts, where it was written.

a batch query into a streaming table or sink     it would end, and nothing would come after it
a stream into a materialized view                it is computed from what is there, again and again
sorting, aggregating without a watermark, ...    Spark's own rules for a query that appends
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import Flow, Kind, Mistake, Output
from moldau.spark.pipeline.sentences import sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
    if output.kind is Kind.SINK:
        refuse_sink(flow, output, frame)


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
    """Options that our own source would refuse when the query is started."""
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
    """Spark's own check of a query that appends, which it otherwise makes when the query is started."""
    from pyspark.errors import PySparkException

    jvm = spark._jvm
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(
            frame._jdf.queryExecution().analyzed(), jvm.org.apache.spark.sql.streaming.OutputMode.Append()
        )
    except PySparkException as error:
        raise Mistake(flow.place, f"'{flow.name}' cannot run endlessly: {sentence(error)}") from error
