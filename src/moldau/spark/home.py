"""A home for the Spark of pip, without its zip of PySpark: the Python processes that Spark starts are there sooner.

Spark puts `python/lib/pyspark.zip` of its home first on the path of every Python process that it starts (sources,
sinks, workers: dozens when a pipeline begins), and modules in a zip are compiled anew each time: 0.9 s of CPU instead
of 0.3. On busy cores that is beyond the ten seconds after which Spark says "Python worker failed to connect back". The
home made here is the installed one by links, the zip left out, so that these processes import the installed package.

Only for Spark on this machine; a SPARK_HOME that is set stays as it is, and where links cannot be made nothing changes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

PARTS = ("bin", "conf", "data", "jars", "licenses", "sbin")
"""What a home has. `conf` may come later: a link does not ask."""


def use_lean_home() -> None:
    """For the JVM that this process starts next."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    if "SPARK_HOME" in os.environ or not (installed / "python" / "lib" / "pyspark.zip").exists():
        return
    home = lean_home(installed, cache_folder())
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)


def cache_folder() -> Path:
    return Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")) / "moldau"


def lean_home(installed: Path, cache: Path) -> Path | None:
    """The same folder for the same Spark, made in one step; None where it cannot be."""
    home = cache / f"spark-home-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
    if is_home(home):
        return home
    try:
        cache.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f"{home.name}.", dir=cache))
    except OSError:
        return None
    try:
        for part in PARTS:
            (draft / part).symlink_to(installed / part, target_is_directory=True)
        draft.rename(home)
    except OSError:  # no links on this file system, or another process was sooner
        shutil.rmtree(draft, ignore_errors=True)
    return home if is_home(home) else None


def is_home(folder: Path) -> bool:
    return (folder / "bin" / "spark-submit").exists() and (folder / "jars").is_dir()
