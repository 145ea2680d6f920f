"""Spark's own `spark-pipelines` on a busy machine: one at a time, and without PySpark's zip.

Its Connect server is at port 15002, and its client looks for it there whatever the server's own setting says: two at
once meet each other's. The zip makes its Python processes late, beyond what Spark waits for them.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.spark.home import cache_folder, lean_home


@contextmanager
def alone() -> Iterator[None]:
    """Until the others' have ended."""
    with open(Path(tempfile.gettempdir()) / "moldau-tests-spark-pipelines.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def home() -> str:
    """Spark's, to be set as SPARK_HOME."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    return str(lean_home(installed, cache_folder()) or installed)
