"""The lake: Delta tables and Parquet folders that Spark writes exactly once, `format("moldau_lake")`.

    options        what `.option(...)` may say, checked
    schema         which schemas fit together: columns added, types widened, conflicts by name
    partitions     rows by day and hour or by columns; folders and values in words
    files          a task's rows as Parquet files of bounded size, in bounded memory
    delta          files join a Delta table in one commit, once per (application, version)
    folder         files join a plain folder of Parquet, once per (application, version)
    sink           Spark's batch and stream writers over the two
    source         reading back: a snapshot in tasks, or version after version as a stream
    maintenance    small files made large, old files removed: a process of its own
    locks          one process at a time
    history        change events in order: the latest per key, or the intervals that they make
    replace        rows replaced by their keys, copy on write
    merge          change data into Delta (SCD types 1 and 2), on top of it
    data_source    the format `moldau_lake` itself

A batch becomes visible in one commit that names the streaming query and the batch. A batch that is run again after a
crash finds that name and adds nothing. `pyspark_moldau_lake` lets Spark find the format without registering it.

Left out: file systems that Python does not see as folders (s3://, hdfs://): a commit relies on atomic renames.
"""
