"""A Spark session that works where it is started: with this Python, a Java that is new enough, and loopback names.

Spark's workers run the `python3` of the PATH unless they are told, and die where that one lacks pyarrow; so the session
names the Python that runs now. Where pyspark or Java is missing, `Unavailable` says so with the line to type.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from moldau.runtime.real.java import Unavailable, find_java
from moldau.spark.home import use_lean_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*,4]"
"""All cores, and a task may fail three times before its query does: `local[*]` allows none."""


def require_spark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise Unavailable("Spark is not installed: `pip install '.[spark]'` in a clone of Moldau.")
    try:
        find_java("Spark")
    except Unavailable as reason:
        raise Unavailable(f"{reason} On Debian: `apt-get install openjdk-17-jre-headless`.") from None


def new_session(name: str, master: str = LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session of this process; `settings` are Spark's own and win over the ones made here."""
    require_spark()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        use_lean_home()
    ours = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**ours, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
