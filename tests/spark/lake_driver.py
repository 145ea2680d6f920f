"""Queries into the lake that die at a step: `python -m spark.lake_driver FOLDER BATCHES STEP NTH`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from moldau.spark.lake.data_source import MoldauLake
from moldau.spark.lake.sink import Lake

ROWS = 100
FORMATS = ("delta", "parquet")
TASK_STEPS = ("task starts", "task has written rows", "task has closed its files")
COMMIT_STEPS = {
    "delta": ("commit starts", "before schema", "before commit", "after commit", "commit ends"),
    "parquet": (
        "commit starts",
        "before schema",
        "before manifest",
        "after manifest",
        "after rename",
        "before clean-up",
        "commit ends",
    ),
}


def faulty(folder: Path, faults: dict[str, str], nth: int = 0) -> type[MoldauLake]:
    """A lake that breaks once at each of these steps, the nth time it comes there.

    The action is `fail`, `kill` (its process), or a process that is killed with it; files in `folder` count.
    """
    folder.mkdir(parents=True)
    counted = str(folder)

    class FaultyLake(Lake):
        def reached(self, step: str) -> None:
            if step not in faults:
                return
            count = 0
            while True:
                try:
                    os.close(os.open(os.path.join(counted, f"{step}.{count}"), os.O_CREAT | os.O_EXCL))
                    break
                except FileExistsError:
                    count += 1
            if count != nth:
                return
            action = faults[step]
            if action == "fail":
                raise OSError(f"failed on purpose: {step}")
            if action != "kill":
                os.kill(int(action), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    class Source(MoldauLake):
        lake = FaultyLake

        @classmethod
        def name(cls) -> str:
            return "faulty_lake"

    return Source


def start(spark: Any, folder: Path, batches: int, table_format: str, name: str = "faulty_lake") -> Any:
    """A query over the input files, one batch for each, in two tasks, until it has caught up."""
    source = folder / "in"
    if not source.exists():
        draft = folder / "draft"
        draft.mkdir(parents=True)
        for batch in range(batches):
            lines = (json.dumps({"value": batch * ROWS + at}) for at in range(ROWS))
            (draft / f"{batch:05d}.json").write_text("\n".join(lines))
        draft.rename(source)
    frame = (
        spark.readStream.schema("value long").option("maxFilesPerTrigger", 1).json(str(source)).repartition(2)
    )
    writer = frame.writeStream.format(name).option("tableFormat", table_format).trigger(availableNow=True)
    checkpoint = folder / f"checkpoint-{table_format}"
    return writer.option("checkpointLocation", str(checkpoint)).start(str(folder / table_format))


def main(folder: Path, batches: int, step: str, nth: int) -> None:
    from moldau.spark.session import new_session

    settings = {
        "spark.log.level": "OFF",
        "spark.driver.memory": "1g",
        "spark.sql.streaming.pollingDelay": "10ms",
    }
    spark = new_session("lake-driver", "local[2,4]", settings)
    faults = folder / "faults" / str(os.getpid())
    jvm = spark.sparkContext._gateway.proc.pid
    spark.dataSource.register(faulty(faults, {step: str(jvm)} if step else {}, nth))
    try:
        for query in [start(spark, folder, batches, table_format) for table_format in FORMATS]:
            query.awaitTermination(180)
    except BaseException:
        if any(faults.iterdir()):
            os.kill(os.getpid(), signal.SIGKILL)
        raise
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
