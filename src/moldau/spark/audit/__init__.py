"""The audit's pipeline: topics, tables and the producers' messages, counted by window into small tables and compared.

    settings.py    what is audited, from the project's `spark-pipeline.yml`
    counting.py    record batches of Arrow into tallies by topic, partition and window
    flows.py       the frames that a project's flows return
    project.py     what `moldau pipeline new --audit` writes
    reading.py     the counted tables without Spark, for `moldau audit`

The counting has no state: a task adds a few rows for what it has read, and the rows add up, however late they are. So
nothing is dropped by a watermark, and a flow's memory does not grow.
"""
