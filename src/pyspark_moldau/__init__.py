"""Where Spark looks for the data source `moldau`: every module `pyspark_*` with a `DefaultSource` is one."""

from moldau.spark.data_source import MoldauDataSource as DefaultSource

__all__ = ["DefaultSource"]
