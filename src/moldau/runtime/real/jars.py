"""Jars from Maven: ZooKeeper's for `moldau zookeeper`, Apache Kafka's for tests and benchmarks.

They are fetched once per version into `$MOLDAU_KAFKA_CACHE`, by default `moldau/apache-kafka` in the user's cache
folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.runtime.real.java import Unavailable

FETCH_TIMEOUT_S = 900
LOG4J_VERSION = "2.25.4"  # what kafka-tools brings; its slf4j binding is not among the dependencies
LOG_TO_STDERR = """status = error
appender.e.type = Console
appender.e.name = e
appender.e.target = SYSTEM_ERR
appender.e.layout.type = PatternLayout
appender.e.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.e.ref = e
"""


class Artifact(NamedTuple):
    """What Maven is asked for: with all that it needs, or `alone` where only some classes of it are used."""

    group: str
    name: str
    version: str
    alone: bool = False


def cache_folder() -> Path:
    named = os.environ.get("MOLDAU_KAFKA_CACHE")
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "moldau" / "apache-kafka"


def fetch(target: Path, artifacts: Sequence[Artifact], what: str = "Apache Kafka") -> None:
    """Let Maven copy the jars and their dependencies. The folder appears whole or not at all."""
    maven = shutil.which("mvn")
    if maven is None:
        raise Unavailable(
            f"{what}'s jars are not in {cache_folder()}, and there is no `mvn` here to fetch them."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as workshop:
        pom, jars = Path(workshop) / "pom.xml", Path(workshop) / "jars"
        pom.write_text(_pom(artifacts))
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                [maven, "-q", "-B", "-f", str(pom), *copy],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(f"Maven did not fetch {what}'s jars within {FETCH_TIMEOUT_S} s.") from None
        if done.returncode:
            reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stdout[-300:])
            raise Unavailable(f"Maven could not fetch {what}'s jars: {reason}")
        try:
            jars.rename(target)
        except OSError:
            if not target.is_dir():  # another process was faster otherwise, and its jars are as good
                raise


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(map(_dependency, artifacts))
    identity = (
        "<groupId>local</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
    )
    content = f"{identity}<dependencies>{dependencies}</dependencies>"
    return f"<project><modelVersion>4.0.0</modelVersion>{content}</project>"


def _dependency(artifact: Artifact) -> str:
    names = f"<groupId>{artifact.group}</groupId><artifactId>{artifact.name}</artifactId>"
    all_it_needs = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    left_out = f"<exclusions>{all_it_needs}</exclusions>" if artifact.alone else ""
    return f"<dependency>{names}<version>{artifact.version}</version>{left_out}</dependency>"
