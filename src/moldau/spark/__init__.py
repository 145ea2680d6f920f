"""Data moves through topics on Spark, through PySpark: `pip install '.[spark]'` in a clone of Moldau.

    data_source    the data source `moldau`, found by Spark through the module `pyspark_moldau`
    source         its reading, on the driver: options, offsets, plans
    lake/          the format `moldau_lake`: Delta tables and Parquet folders, written exactly once
    pipeline/      Spark Declarative Pipelines projects, checked and run for ever
    session        a Spark session that finds its Python and its Java, or says what is missing
    client_options the options `kafka.*`, written for Kafka's Java client, as librdkafka's configuration
    blocks/        the executors' side of the source: a range of offsets becomes Arrow record batches
    lasting        what a worker has loaded stays, and costs later tasks nothing
    topic_sink/    writing to topics: at least once and exactly once

This package is at the edge: it talks to Spark, sockets and files directly. It may use what is below it in the layers
(records, wire); a broker never imports it.
"""
