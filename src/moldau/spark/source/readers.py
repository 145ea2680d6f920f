"""What Spark calls: the batch reader and the stream reader. The planning is on the driver, `read` on the executors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moldau.spark.blocks.read import joined, read_split
from moldau.spark.blocks.settings import ReadSettings, Split
from moldau.spark.lasting import keep_what_is_loaded
from moldau.spark.source import batch
from moldau.spark.source.cluster import Cluster
from moldau.spark.source.driver_client import DriverClient
from moldau.spark.source.errors import OptionError
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.planner import Planner, Stored
from moldau.spark.source.ranges import OFFSET_MAX, OffsetRange, grouped
from moldau.spark.source.rows import value_format
from moldau.spark.source.values import PERMISSIVE, ValueSettings, read_values, unsupported

if TYPE_CHECKING:
    import pyarrow


class TaskReader:
    """What the executors do: the rows of a task's ranges. It is pickled with Spark's readers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        timeout = {} if options.read_timeout_ms is None else {"timeout_ms": options.read_timeout_ms}
        arrow_schema = to_arrow_schema(schema, timezone="UTC")
        self.settings = ReadSettings(
            bootstrap_servers=options.bootstrap_servers,
            schema=arrow_schema,
            client_config=options.client_config("consumer"),
            read_committed=options.read_committed,
            fail_on_data_loss=options.fail_on_data_loss,
            **timeout,
        )
        self._values: ValueSettings | None = None
        if decided := value_format(schema, options):
            if (kind := unsupported(arrow_schema.field("value").type)) is not None:
                raise OptionError(f"valueFormat=json does not decode to the type {kind}")
            producer = options.client_config("producer") if options.dead_letter_topic else None
            mode = options.mode or PERMISSIVE
            self._values = ValueSettings(arrow_schema, decided, options.dead_letter_topic, producer, mode)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The splits of a task, one after the other. Spark makes a partition of None where a batch has none."""
        if partition.value is None:
            return
        yield from joined(itertools.chain.from_iterable(map(self.read_split, partition.value)))
        keep_what_is_loaded()

    def read_split(self, split: Split) -> Iterator[pyarrow.RecordBatch]:
        if self._values is None:
            return read_split(self.settings, split)
        return read_values(self.settings, self._values, split)


def tasks(
    options: SourceOptions, ranges: Sequence[OffsetRange], topic_ids: Mapping[str, UUID], together: int
) -> list[InputPartition]:
    groups = grouped(ranges, together, options.min_partitions, options.max_records_per_partition)
    return [InputPartition(tuple(_split(each, topic_ids) for each in group)) for group in groups]


def _split(wanted: OffsetRange, topic_ids: Mapping[str, UUID]) -> Split:
    return Split(
        *wanted.partition,
        wanted.first_offset,
        wanted.next_offset,
        topic_ids.get(wanted.partition.topic),
        wanted.from_earliest,
        wanted.to_latest,
    )


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = TaskReader(options, schema)

    def partitions(self) -> Sequence[InputPartition]:
        ranges, topic_ids = batch.plan(self._options, Cluster(self._options))
        return tasks(self._options, ranges, topic_ids, self._options.min_offsets_per_task)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self._tasks.read(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark keeps one on the driver for the life of a query, and pickles others for the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._tasks = TaskReader(options, schema)
        self._opened: tuple[Planner, DriverClient] | None = None

    def initialOffset(self) -> Stored:
        return self._planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Any limit: the options' own are applied in `latestOffset`, where they can be combined."""
        return ReadMaxRows(self._options.max_offsets_per_trigger or OFFSET_MAX)

    def latestOffset(self, start: Stored, limit: ReadLimit) -> Stored:
        return self._planner.latest(start, is_limited=not isinstance(limit, ReadAllAvailable))

    def reportLatestOffset(self) -> Stored | None:
        return self._planner.known_latest()

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def partitions(self, start: Stored, end: Stored) -> Sequence[InputPartition]:
        ranges, position = self._planner.ranges(start, end)
        return tasks(self._options, ranges, position.topic_ids, position.together)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self._tasks.read(partition)

    def stop(self) -> None:
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def _planner(self) -> Planner:
        if self._opened is None:
            client = DriverClient(self._options)
            self._opened = Planner(self._options, Cluster(self._options), client), client
        return self._opened[0]
