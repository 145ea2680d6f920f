"""Small files made large, old files removed: a process of its own beside the query that asked for it.

    python -m moldau.spark.lake.maintenance TABLE [--target-bytes N] [--retention-hours N]

Compaction is a Delta commit that rearranges rows: readers of an older version keep their files, appends go on, a stream
over the table sees nothing. Then files are deleted that no version needs any more and that are older than the
retention, those of failed attempts among them. One such process works on a table at a time; a second one leaves.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from moldau.spark.lake.locks import HIDDEN, Busy, locked
from moldau.spark.lake.options import LakeOptions, local_path

COMPACT_TRIES = 5
TASKS = 2
SPILL_BYTES = 512 << 20


@dataclass(frozen=True)
class Maintained:
    files_added: int
    files_removed: int
    """By compaction: no longer in the table, still on the disk for readers of older versions."""
    files_deleted: int


def start(options: LakeOptions) -> None:
    """Have the table maintained by a process that outlives this one; `_moldau/maintenance.log` has its words."""
    command = [sys.executable, "-m", "moldau.spark.lake.maintenance", options.path]
    command += ["--target-bytes", str(options.max_file_bytes)]
    command += ["--retention-hours", str(options.vacuum_retention_hours)]
    os.makedirs(os.path.join(options.path, HIDDEN), exist_ok=True)
    with open(os.path.join(options.path, HIDDEN, "maintenance.log"), "wb") as output:
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )


def maintain(path: str, target_bytes: int, retention_hours: int) -> Maintained | None:
    """Compact and clean one table; None where another process is at it."""
    try:
        with locked(path, "maintenance.lock", wait_s=0):
            added, removed = _compact(path, target_bytes)
            deleted = DeltaTable(path).vacuum(
                retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False, full=True
            )
    except Busy:
        return None
    return Maintained(added, removed, len(deleted))


def _compact(path: str, target_bytes: int) -> tuple[int, int]:
    for attempt in range(COMPACT_TRIES):
        try:
            metrics = DeltaTable(path).optimize.compact(
                target_size=target_bytes, max_concurrent_tasks=TASKS, max_spill_size=SPILL_BYTES
            )
            return metrics["numFilesAdded"], metrics["numFilesRemoved"]
        except CommitFailedError:
            if attempt == COMPACT_TRIES - 1:
                raise
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m moldau.spark.lake.maintenance")
    parser.add_argument("table")
    parser.add_argument("--target-bytes", type=int, default=128 << 20)
    parser.add_argument("--retention-hours", type=int, default=168)
    arguments = parser.parse_args()
    done = maintain(local_path(arguments.table), arguments.target_bytes, arguments.retention_hours)
    if done is None:
        sys.stdout.write("another process maintains this table\n")
    else:
        sys.stdout.write(
            f"{done.files_removed} files became {done.files_added}, {done.files_deleted} old files deleted\n"
        )


if __name__ == "__main__":
    main()
