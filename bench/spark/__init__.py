"""`make bench-spark`: our source and sink for Spark beside Spark's own connector, in one session, on one broker.

    plan        how much is measured, and the names of the sections
    sides       who is compared: the connector as it is and tuned, our source in its variants
    topics      topics of known records, filled without a client
    world       the broker, the Spark session, and the CPU of each of their processes
    results     readings by section, metric, case and side
    reading     rows a second of batch queries: sum of lengths, count, windows over JSON, and without numba
    streaming   micro-batches: latency, an idle query, many partitions; `latency` has the load
    sinks       writing to a topic
    runner      the order of it all
    report      docs/benchmarks-spark.md; `plots` its pictures

Every result is compared with what the topic is known to hold: a reader that loses rows is fast, too.
"""
