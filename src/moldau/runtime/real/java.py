"""The Java of this machine, for what needs one: Spark, ZooKeeper, Apache Kafka. The broker never does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17


class Unavailable(Exception):
    """Something foreign cannot be run on this machine; the text says what is missing."""


def find_java(what: str) -> str:
    """The `java` of JAVA_HOME, or else of the PATH; `what` needs it."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise Unavailable(f"{what} needs Java {JAVA_VERSION_MIN} or newer, and there is no `java` here.")
    printed = subprocess.run(
        [java, "-version"], capture_output=True, text=True, timeout=30, check=False
    ).stderr
    found = re.search(r'version "(\d+)', printed)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        says = printed.splitlines()[0] if printed else "nothing"
        raise Unavailable(f"{what} needs Java {JAVA_VERSION_MIN} or newer; `java -version` says {says}.")
    return java
