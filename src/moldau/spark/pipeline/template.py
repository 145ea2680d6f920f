"""What `moldau pipeline new` writes: a small project that runs, and says in its files what each part is for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

SPEC = Template("""\
# A pipeline in Spark's own language, Spark Declarative Pipelines. Moldau runs it for ever:
#   moldau pipeline check     finds mistakes, and starts nothing
#   moldau pipeline run       until Ctrl-C; --once until it has caught up
#   moldau pipeline status    from another terminal; so does stop
# `spark-pipelines run` runs the same files until they have caught up.
name: $name
# Tables and checkpoints. Each streaming table is a Delta table in a folder of its name.
storage: $storage
libraries:
  - glob:
      include: transformations/**
# Spark's own settings, as texts:
# configuration:
#   spark.sql.shuffle.partitions: "4"
""")

PYTHON = Template('''\
"""Orders from a topic: kept in a table, and counted by minute into another topic.

To try it, with a broker running (`moldau up`):
    moldau topic create $topic
    moldau topic create $topic-per-minute
    echo '{"item": "tea", "price": 3.5, "time": "2026-11-18T10:00:00Z"}' | moldau message produce $topic
"""

from pyspark import pipelines as dp
from pyspark.sql import functions as F

BROKERS = "$bootstrap"


# A view is only a name for a query; it stores nothing.
@dp.temporary_view
def ${view}_read():
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "$topic")
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = F.from_json(F.col("value").cast("string"), "item STRING, price DOUBLE, time TIMESTAMP")
    return rows.select(parsed.alias("order")).select("order.*").where("item IS NOT NULL")


# A streaming table keeps what its query gives: a Delta table, each row once.
@dp.table
def ${view}_kept():
    return spark.readStream.table("${view}_read")


# A sink is outside the project: here a topic. Its rows have a column `value`, and may have a `key`.
dp.create_sink(
    "${view}_per_minute",
    "moldau",
    {"kafka.bootstrap.servers": BROKERS, "topic": "$topic-per-minute"},
)


# What it gets is counted in ${view}.sql.
@dp.append_flow(target="${view}_per_minute")
def count_by_minute():
    row = F.struct("minute", "item", "orders", "revenue")
    minutes = spark.readStream.table("${view}_minutes")
    return minutes.select(F.col("item").alias("key"), F.to_json(row).alias("value"))
''')

SQL = Template("""\
-- The same language in SQL. A count that never ends needs a watermark, how late an order may be: a minute is written
-- when it is over. Spark's own runner takes watermarks of the project's tables in SQL alone.
CREATE TEMPORARY VIEW ${view}_minutes AS
SELECT window.start AS minute, item, count(*) AS orders, sum(price) AS revenue
FROM STREAM ${view}_kept WATERMARK time DELAY OF INTERVAL 1 MINUTE
GROUP BY window(time, '1 minute'), item;

-- A materialized view is computed anew when the tables that it reads have changed.
CREATE MATERIALIZED VIEW ${view}_by_item AS
SELECT item, count(*) AS orders, round(sum(price), 2) AS revenue
FROM ${view}_kept
GROUP BY item;
""")

IGNORED = "storage/\n__pycache__/\n"


def write_project(folder: Path, topic: str, bootstrap: str) -> list[Path]:
    """The files, in a folder that is new or empty: FileExistsError else."""
    view = "".join(character if character.isalnum() else "_" for character in topic.lower())
    view = view if view[:1].isalpha() else f"topic_{view}"
    storage = (folder / "storage").resolve().as_uri()
    names = {
        "name": folder.resolve().name,
        "storage": storage,
        "topic": topic,
        "bootstrap": bootstrap,
        "view": view,
    }
    texts = {
        "spark-pipeline.yml": SPEC,
        f"transformations/{view}.py": PYTHON,
        f"transformations/{view}.sql": SQL,
        ".gitignore": Template(IGNORED),
    }
    return write_files(folder, {name: text.substitute(names) for name, text in texts.items()})


def write_files(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(str(folder))
    written = []
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written
