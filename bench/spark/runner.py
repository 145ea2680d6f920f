"""The order of the measurements: one broker and one session for all, the sections one after the other.

A section that fails is named, and the others are measured all the same.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from bench.measure import WorkNotDone
from bench.spark import plan as names
from bench.spark import reading, sinks, streaming
from bench.spark.plan import Plan
from bench.spark.results import Others, Results, Section
from bench.spark.world import World, running

Say = Callable[[str], None]
Work = Callable[[World, Plan, Section, Say], None]

WORK: Final[dict[str, Work]] = {
    names.READING: reading.sums,
    names.COUNTING: reading.counts,
    names.JSON: reading.windows,
    names.FALLBACK: reading.without_numba,
    names.LATENCY: streaming.latency,
    names.IDLE: streaming.idle,
    names.PARTITIONS: streaming.partitions,
    names.SINK: sinks.sinks,
}


def measure(plan: Plan, say: Say, only: str | None = None) -> Results:
    """All sections, or one."""
    results = Results()
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as name:
        say("starting a broker and Spark")
        with running(Path(name)) as world:
            for section in names.SECTIONS:
                if only in (None, section):
                    measure_section(section, world, plan, results.section(section), say)
    return results


def measure_section(name: str, world: World, plan: Plan, section: Section, say: Say) -> None:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    os.sync()
    with Others() as others:
        try:
            WORK[name](world, plan, section, say)
        except (WorkNotDone, PySparkException, Py4JError, KafkaException, OSError) as problem:
            say(f"{name} failed: {problem}")
            section.failures.append(str(problem).partition("\n")[0])
    section.others_share = others.share
    say(f"{name} is done; others took {section.others_share:.0%} of the cores")
