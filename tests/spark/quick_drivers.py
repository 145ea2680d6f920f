"""Drivers of Spark that start with a third of the work, for tests that start one after the other.

The JVM leaves out its slow compiler, and takes Spark's classes from an archive that a driver before has left (JEP 350).
Python's workers, of which a query starts seven, import PySpark from where it is installed: the copy in SPARK_HOME is
zipped source, which each of them would compile.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

JAVA_OPTIONS = "DRIVER_JAVA_OPTIONS"
"""The variable from which a driver takes them."""
LIGHT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PARTS_OF_SPARK = ("bin", "jars")


@dataclass(frozen=True, slots=True)
class QuickDrivers:
    folder: Path

    @property
    def _archive(self) -> Path:
        return self.folder / "classes.jsa"

    def environment(self, *, leaves_archive: bool = False) -> dict[str, str]:
        """For a driver's process. Without an archive it starts a little less quickly."""
        options = LIGHT_JVM
        if leaves_archive:
            options += f" -XX:ArchiveClassesAtExit={self._archive}"
        elif self._archive.exists():
            options += f" -XX:SharedArchiveFile={self._archive}"
        return {**os.environ, JAVA_OPTIONS: options, "SPARK_HOME": str(self._spark_home())}

    def _spark_home(self) -> Path:
        import pyspark

        home = self.folder / "spark"
        home.mkdir(exist_ok=True)
        for part in PARTS_OF_SPARK:
            if not (home / part).exists():
                (home / part).symlink_to(Path(pyspark.__file__).parent / part)
        return home
