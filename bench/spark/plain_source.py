"""Our source with the decoder that it falls back to without numba, as a format of its own: batch queries only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from bench.spark.sides import PLAIN_FORMAT
from moldau.spark.blocks.decode_plain import decode
from moldau.spark.blocks.read import read_split
from moldau.spark.data_source import MoldauDataSource
from moldau.spark.source.options import parse_options
from moldau.spark.source.readers import BatchReader


class PlainBatchReader(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        for split in partition.value:
            yield from read_split(self._tasks.settings, split, decode=decode)


class PlainDataSource(MoldauDataSource):
    @classmethod
    def name(cls) -> str:
        return PLAIN_FORMAT

    def reader(self, schema: StructType) -> PlainBatchReader:
        return PlainBatchReader(parse_options(self.options, is_stream=False), schema)
