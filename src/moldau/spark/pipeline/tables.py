"""The tables of a project: streaming tables and materialized views, each a Delta table in a folder of the storage.

    storage/<table>                         the Delta table, for DuckDB, Polars, pandas and Spark to read
    storage/_moldau/checkpoints/<t>/<flow>  where a flow goes on after a restart
    storage/_moldau/run.json, lock          the run that is alive, see `state`

A table that does not exist yet is read as an empty one of its schema while a project is checked, and made before a run
starts, so a flow may read what another has not written to yet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.spark.pipeline.declared import Mistake, Output, Place
from moldau.spark.pipeline.project import Project

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMAT = "moldau_lake"
OWN_FOLDER = "_moldau"
CHECKPOINTS = f"{OWN_FOLDER}/checkpoints"
"""In the storage: a folder for each output, in it one for each flow into it."""
STAND_IN = "moldau.standin"
"""An option that marks the stream in the place of a table that does not exist yet."""


class Tables:
    def __init__(self, spark: SparkSession, project: Project) -> None:
        self._spark = spark
        self._project = project
        local = project.local_storage
        self._local = None if local is None else str(local)

    def path(self, name: str) -> str:
        return self._project.inside(name)

    def checkpoint(self, target: str, flow: str) -> str:
        return self._project.inside(CHECKPOINTS, target, flow)

    def exists(self, name: str) -> bool:
        return self._local is not None and os.path.isdir(os.path.join(self._local, name, "_delta_log"))

    def version(self, name: str) -> int | None:
        """Changes whenever the table does; None where it does not exist."""
        from deltalake import DeltaTable

        return int(DeltaTable(os.path.join(self._local or "", name)).version()) if self.exists(name) else None

    def refuse_used(self, name: str, place: Place) -> None:
        """A replay writes where nothing has been written yet."""
        if self._local is None:
            return
        used = [os.path.join(self._local, name), os.path.join(self._local, CHECKPOINTS, name)]
        for path in used:
            if os.path.exists(path):
                raise Mistake(
                    place, f"{path} exists already.", "Name another output with --into, or remove it."
                )

    def create(self, output: Output, schema: StructType) -> None:
        """Make the table where it does not exist yet."""
        from deltalake import DeltaTable
        from pyspark.sql.pandas.types import to_arrow_schema

        from moldau.spark.lake.delta import delta_schema
        from moldau.spark.lake.schema import canonical

        if self.exists(output.name) or self._local is None:
            return
        DeltaTable.create(
            os.path.join(self._local, output.name),
            schema=delta_schema(canonical(to_arrow_schema(schema, timezone="UTC"))),
            mode="ignore",
            partition_by=list(output.partition_by) or None,
        )

    def stream(self, name: str, schema: StructType) -> DataFrame:
        if not self.exists(name):
            return self._empty_stream(schema)
        return self._spark.readStream.format(FORMAT).schema(schema).option("path", self.path(name)).load()

    def rows(self, name: str, schema: StructType) -> DataFrame:
        if not self.exists(name):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.format(FORMAT).schema(schema).option("path", self.path(name)).load()

    def _empty_stream(self, schema: StructType) -> DataFrame:
        from pyspark.sql import functions

        columns = [functions.lit(None).cast(field.dataType).alias(field.name) for field in schema]
        return self._spark.readStream.format("rate").option(STAND_IN, "true").load().select(columns)

    def write_options(self, output: Output) -> dict[str, str]:
        options = {"path": self.path(output.name), **lake_properties(output.properties)}
        if output.partition_by:
            options["partitionBy"] = ",".join(output.partition_by)
        return options


def lake_properties(properties: Mapping[str, Any]) -> dict[str, str]:
    """Table properties that begin with `moldau.` are options of the lake: `moldau.compactAfter`."""
    return {
        key.removeprefix("moldau."): str(value)
        for key, value in properties.items()
        if key.startswith("moldau.")
    }
