"""A driver of Spark that copies a topic exactly once until it has caught up: `sink_driver.py SERVERS FOLDER MASTER`.

It is killed and started again by tests; its checkpoint is in the folder. From the topic `in` to the topic `out`, some
rows in each batch, through the data source `faulty`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from moldau.spark.session import new_session
from spark.faulty_sink import FOLDER_OPTION, PID_FILE, FaultySource
from spark.quick_drivers import JAVA_OPTIONS

ROWS_PER_BATCH = 200
SOURCE, TARGET = "in", "out"
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.task.duration.threshold": "2s",  # small batches are one task, which has no others to compare
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}


def main() -> None:
    servers, folder, master = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    settings = {
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "512m",
        "spark.task.maxFailures": "8",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.driver.extraJavaOptions": os.environ.get(JAVA_OPTIONS, ""),
    }
    if master.startswith("spark:"):
        settings |= SPECULATION
    spark = new_session("sink-faults", master, settings)
    (folder / PID_FILE).write_text(str(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()))
    spark.dataSource.register(FaultySource)
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(ROWS_PER_BATCH))
        .option("minOffsetsPerTask", "1")  # two tasks a batch, one of which may die
        .load()
    )
    query = (
        rows.select("value")
        .writeStream.format("faulty")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.transaction.timeout.ms", "60000")
        .option("topic", TARGET)
        .option("exactlyOnce", "true")
        .option(FOLDER_OPTION, str(folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("batches", query.lastProgress["batchId"] if query.lastProgress else None, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
