"""Where Spark looks for the format `moldau_lake`: every installed module `pyspark_*` with a `DefaultSource` is one."""

from moldau.spark.lake.data_source import MoldauLake as DefaultSource

__all__ = ["DefaultSource"]
