"""A query that hangs in its first batch, to be killed there: `python source_child.py BOOTSTRAP TOPIC FOLDER`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from moldau.spark.session import new_session


def main(bootstrap_servers: str, topic: str, folder: Path) -> None:
    spark = new_session(
        "child", "local[1]", {"spark.local.dir": str(folder / "local"), "spark.log.level": "ERROR"}
    )
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic, "startingOffsets": "latest"}
    frame = spark.readStream.format("moldau").options(**options).load()

    def hang(_: object, number: int) -> None:
        print(f"batch {number}", flush=True)
        signal.pause()

    query = frame.writeStream.foreachBatch(hang).option("checkpointLocation", str(folder / "checkpoint"))
    query.start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
