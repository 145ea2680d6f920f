"""Change data into a table, batch by batch, by the lake's rules: `create_auto_cdc_flow` and `AUTO CDC INTO`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import ChangeData, Flow, Mistake
from moldau.spark.pipeline.sentences import sentence

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from moldau.spark.lake.merge import Changes

QUERY_ID = "sql.streaming.queryId"
"""Spark tells it to whatever runs for a query; it is kept in the checkpoint."""


def changes_of(change: ChangeData) -> Changes:
    from moldau.spark.lake.merge import Changes

    return Changes(
        keys=change.keys,
        sequence_by=change.sequence_by,
        apply_as_deletes=change.delete_when,
        column_list=change.columns,
        except_column_list=change.except_columns,
        stored_as_scd_type=change.scd_type,
        track_history_column_list=change.track_history,
        track_history_except_column_list=change.track_history_except,
    )


def target_schema(flow: Flow, change: ChangeData, events: DataFrame) -> StructType:
    """The columns of the table that these events make; a Mistake where they cannot."""
    from pyspark.errors import PySparkException

    from moldau.spark.lake.history import BadChange
    from moldau.spark.lake.merge import table_schema

    try:
        changes = changes_of(change)
        schema: StructType = table_schema(events, changes)
        if change.scd_type == 2:
            changes.tracked(changes.selected(events.columns))
        return schema
    except BadChange as error:
        raise Mistake(flow.place, f"the change data of '{flow.name}': {error}.") from error
    except PySparkException as error:
        raise Mistake(flow.place, f"the change data of '{flow.name}': {sentence(error)}") from error


def merging(change: ChangeData, path: str, partition_by: Sequence[str]) -> Callable[[DataFrame, int], None]:
    """What foreachBatch calls. A batch that is run again merges nothing twice."""
    from moldau.spark.lake.merge import apply_changes
    from moldau.spark.lake.options import Transaction, local_path

    changes, folder = changes_of(change), local_path(path)

    def merge(batch: DataFrame, number: int) -> None:
        query_id = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query_id:
            raise RuntimeError("Spark does not tell a batch its query, without which nothing is merged once")
        apply_changes(batch, changes, folder, Transaction(query_id, number), partition_by)

    return merge
