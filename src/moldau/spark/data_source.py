"""The data source `moldau`: topics as tables and streams of Spark, and the other way round.

Spark finds it without registering, through the module `pyspark_moldau`. It takes the options of Spark's own Kafka
connector, so that `format("kafka")` becomes `format("moldau")` with nothing else changed; docs/pipelines.md has
them, and ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from moldau.spark.source.options import parse_options
from moldau.spark.source.rows import row_schema

if TYPE_CHECKING:
    from moldau.spark.source.readers import BatchReader, StreamReader
    from moldau.spark.topic_sink.writers import TopicBatchWriter, TopicStreamWriter


class MoldauDataSource(DataSource):
    """Options are checked where it is known what they are for: the schema and the readers are for reading only."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType | str:
        return row_schema(parse_options(self.options, is_stream=None))

    def reader(self, schema: StructType) -> BatchReader:
        from moldau.spark.source.readers import BatchReader

        return BatchReader(parse_options(self.options, is_stream=False), schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        from moldau.spark.source.readers import StreamReader

        return StreamReader(parse_options(self.options, is_stream=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> TopicBatchWriter:
        from moldau.spark.topic_sink.writers import TopicBatchWriter

        return TopicBatchWriter(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> TopicStreamWriter:
        from moldau.spark.topic_sink.writers import TopicStreamWriter

        return TopicStreamWriter(schema, self.options, overwrite)
