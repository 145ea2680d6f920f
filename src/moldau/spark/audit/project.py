"""What `moldau pipeline new --audit` writes: a project that counts topics and tables, and compares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

from moldau.spark.pipeline.template import IGNORED, write_files

SPEC = Template("""\
# An audit: what producers have counted, what the topics hold, what the lake holds, by topic and time window.
#   moldau pipeline run       counts, until Ctrl-C; --once until it has caught up
#   moldau audit              shows the windows; exit code 1 where a closed one is wrong
name: $name
storage: $storage
libraries:
  - glob:
      include: transformations/**
configuration:
  moldau.audit.kafka.bootstrap.servers: $bootstrap
  moldau.audit.topics: $topics
  # By topic, the Delta tables that keep its records, with their columns partition, offset and timestamp.
  moldau.audit.tables: $tables
  # As long as the producers' own (window_s).
  moldau.audit.window: 1 minute
  # What comes so long after its window's end is no loss.
  moldau.audit.lateness: 5 minutes
  # The consumer group that shows how far the counting has come.
  moldau.audit.group: $group
""")

PYTHON = '''\
"""Counts what producers have published, what the topics hold and what the tables hold, and compares by window.

`moldau audit` reads the tables produced, in_topics and in_lake. The view audit_windows has the same result for
everybody else, by the clock alone: it does not know when this pipeline is behind.
"""

from pyspark import pipelines as dp
from pyspark.sql import SparkSession

from moldau.spark.audit import flows

spark = SparkSession.active()
settings = flows.session_settings(spark)
BY_DAY = {
    "partition_cols": ["date"],
    "spark_conf": {"pipelines.trigger.interval": "10 seconds"},
    "table_properties": {"moldau.compactAfter": "200"},
}


@dp.table(**BY_DAY)
def produced():
    return flows.produced(spark, settings)


@dp.table(**BY_DAY)
def in_topics():
    return flows.counted_topics(spark, settings)


def count_table(number, topic, path):
    # A table whose columns have other names: rename them here.
    @dp.append_flow(target="in_lake", name=f"in_lake_{number}", spark_conf=BY_DAY["spark_conf"])
    def count():
        return flows.counted_table(spark.readStream.format("moldau_lake").load(path), topic, settings)


if settings.tables:
    dp.create_streaming_table(
        "in_lake", partition_cols=["date"], table_properties=BY_DAY["table_properties"]
    )
    places = [(topic, path) for topic, paths in settings.tables.items() for path in paths]
    for number, (topic, path) in enumerate(places, 1):
        count_table(number, topic, path)


@dp.materialized_view(spark_conf={"pipelines.trigger.interval": "30 seconds"})
def audit_windows():
    return flows.compared(spark, settings)
'''


def write_audit(
    folder: Path, topics: Sequence[str], tables: Mapping[str, Sequence[str]], bootstrap: str
) -> list[Path]:
    """The files, in a folder that is new or empty: FileExistsError else."""
    name = folder.resolve().name
    spec = SPEC.substitute(
        name=json.dumps(name),
        storage=json.dumps((folder / "storage").resolve().as_uri()),
        bootstrap=json.dumps(bootstrap),
        topics=json.dumps(",".join(topics)),
        tables=json.dumps(json.dumps({topic: list(paths) for topic, paths in tables.items()})),
        group=json.dumps(f"moldau-audit-{name}"),
    )
    return write_files(
        folder, {"spark-pipeline.yml": spec, "transformations/audit.py": PYTHON, ".gitignore": IGNORED}
    )
