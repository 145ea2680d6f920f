"""From a folder to something that can be run: the project, a session with its settings, the declarations, the graph.

Spark's log and what its processes write to stderr go to files in the storage, so that a terminal shows the pipeline
and nothing else: `spark.log` (rolled at 10 MB, three are kept) and `spark.err`.
"""

from __future__ import annotations

import ast
import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.spark.pipeline.declared import Mistake, Mistakes
from moldau.spark.pipeline.project import Project
from moldau.spark.session import LOCAL, new_session, require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from moldau.spark.pipeline.graph import Built, Graph
    from moldau.spark.pipeline.names import Options
    from moldau.spark.pipeline.tables import Tables

LOG = "spark.log"
ERRORS = "spark.err"
LOG_SETTINGS = "log4j2.properties"
QUIET_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j")
"""Python loggers of PySpark that repeat every error in full on stderr."""
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/spark.log
appender.file.filePattern = {folder}/spark.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


@dataclass(frozen=True)
class Opened:
    """A project whose queries are all built: nothing in it is wrong, as far as Spark can tell without running it."""

    project: Project
    spark: SparkSession
    tables: Tables
    graph: Graph
    built: list[Built]


def syntax_mistakes(project: Project) -> list[Mistake]:
    """What Python itself refuses, found without Spark."""
    found = []
    for path in project.files():
        if path.suffix != ".py":
            continue
        try:
            ast.parse(path.read_bytes(), str(path))
        except SyntaxError as error:
            found.append(Mistake(project.place(str(path), error.lineno), f"is not Python: {error.msg}."))
        except ValueError as error:
            found.append(Mistake(project.place(str(path), None), f"is not Python: {error}."))
    return found


def session_for(project: Project, folder: Path, master: str, settings: Mapping[str, str]) -> SparkSession:
    """A session for the project; `settings` win over the project's own. `folder` is for logs."""
    require_spark()
    for name in QUIET_LOGGERS:
        logging.getLogger(name).disabled = True
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LOG_SETTINGS).write_text(_LOG4J.format(folder=folder), encoding="utf-8")
    wanted = {**defaults(master, folder), **project.configuration, **settings}
    log_option = f"-Dlog4j2.configurationFile=file:{folder / LOG_SETTINGS}"
    key = "spark.driver.extraJavaOptions"
    wanted[key] = " ".join(filter(None, (wanted.get(key), log_option)))
    with stderr_into(folder / ERRORS):
        spark = new_session(f"moldau pipeline {project.name}", master, wanted)
    use_database(spark, project)
    return spark


def defaults(master: str, folder: Path) -> dict[str, str]:
    ours = {
        "spark.sql.streaming.stopTimeout": "30000",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    if master.startswith("local"):
        ours["spark.sql.shuffle.partitions"] = str(max(2, min(16, os.cpu_count() or 2)))
    return ours


def use_database(spark: SparkSession, project: Project) -> None:
    """Where tables are looked for that the project does not declare."""
    if project.catalog is not None:
        spark.catalog.setCurrentCatalog(project.catalog)
    if project.database is not None and spark.catalog.databaseExists(project.database):
        spark.catalog.setCurrentDatabase(project.database)


@contextlib.contextmanager
def stderr_into(path: Path) -> Iterator[None]:
    """Processes that are started within write their stderr to the file, ours does again afterwards."""
    sys.stderr.flush()
    kept = os.dup(2)
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(target, 2)
    os.close(target)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)


def open_project(spark: SparkSession, project: Project, more_options: Options | None = None) -> Opened:
    """Load and check everything; `Mistakes` where something is wrong."""
    from moldau.spark.pipeline.graph import Graph
    from moldau.spark.pipeline.registry import load
    from moldau.spark.pipeline.tables import Tables

    tables = Tables(spark, project)
    graph = Graph(spark, project, load(project, spark), tables, more_options)
    built = graph.check()
    if not built:
        raise Mistakes([Mistake(project.place(project.spec, None), "declares no flow.")])
    return Opened(project, spark, tables, graph, built)


__all__ = ["LOCAL", "Opened", "open_project", "session_for", "syntax_mistakes"]
