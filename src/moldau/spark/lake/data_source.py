"""The format `moldau_lake`: Spark's door to the lake, for batches and streams, both ways."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from moldau.spark.lake import options
from moldau.spark.lake.sink import Lake, LakeBatchWriter, LakeStreamWriter
from moldau.spark.lake.source import LakeReader, LakeStreamReader, table_schema


class MoldauLake(DataSource):
    lake = Lake

    @classmethod
    def name(cls) -> str:
        return "moldau_lake"

    def schema(self) -> Any:
        return table_schema(options.parse(self.options))

    def reader(self, schema: Any) -> LakeReader:
        return LakeReader(options.parse(self.options), schema)

    def streamReader(self, schema: Any) -> LakeStreamReader:
        return LakeStreamReader(options.parse(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> LakeBatchWriter:
        return LakeBatchWriter(self.lake(options.parse(self.options), schema, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> LakeStreamWriter:
        return LakeStreamWriter(self.lake(options.parse(self.options), schema, overwrite))
