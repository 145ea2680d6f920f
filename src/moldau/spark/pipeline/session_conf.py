"""A flow's own Spark settings, in force in the session while its query is built and started."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILDING = threading.RLock()
"""One query is built or started at a time: meanwhile its names and settings are in force for the whole session."""
INTERVAL = "pipelines.trigger.interval"
"""Among a flow's settings: the pause between two batches or recomputations."""
TRIGGER = "pipelines.trigger"
"""Among a flow's settings: `RealTime` for Spark's Real-Time Mode; the interval is the length of a batch then."""
OWN = frozenset({INTERVAL, TRIGGER})
"""The runner's: no settings of Spark's session."""


@contextlib.contextmanager
def conf_in_force(spark: SparkSession, conf: Mapping[str, str]) -> Iterator[None]:
    """A flow's own settings in the session, for as long as it is built or started."""
    settings = {key: value for key, value in conf.items() if key not in OWN}
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)
