"""`python -m bench.setup`: what only the interop tests and benchmarks need, installed where this user may.

    python -m bench.setup java     # Java alone, which is all that Spark needs

kcat, Java, Maven and Prometheus come from Debian's packages (`apt-get`, as root); Kafka's own jars and ZooKeeper's are
fetched by `bench.apache_kafka`. Where something cannot be had, one line says so and the exit code is still 0: the tests
themselves decide whether they are skipped or, in CI, fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence

from bench.apache_kafka import distribution
from moldau.cli.zookeeper_ensemble import jars as zookeeper_jars
from moldau.runtime.real.java import Unavailable, find_java

PACKAGES = {"kcat": "kcat", "java": "openjdk-17-jre-headless", "mvn": "maven", "prometheus": "prometheus"}
"""Command -> the Debian package that has it."""
INSTALL_TIMEOUT_S = 600


def missing_packages(commands: Iterable[str] = PACKAGES) -> list[str]:
    return [PACKAGES[command] for command in commands if not is_there(command)]


def is_there(command: str) -> bool:
    """A Java that is too old counts as none."""
    if command != "java":
        return shutil.which(command) is not None
    try:
        find_java("Spark")
    except Unavailable:
        return False
    return True


def install(packages: list[str]) -> str | None:
    """Install with apt-get; the reason where that cannot be."""
    if shutil.which("apt-get") is None:
        return "there is no apt-get here"
    if os.geteuid() != 0:
        return "only root can install packages"
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *packages]):
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode:
            return f"`{' '.join(command)}` failed: {done.stderr.strip().splitlines()[-1:]}"
    return None


def commands_of(arguments: Sequence[str]) -> list[str]:
    parser = argparse.ArgumentParser(
        prog="python -m bench.setup", description=(__doc__ or "").split("\n")[0].partition(": ")[2]
    )
    parser.add_argument(
        "commands",
        nargs="*",
        metavar="COMMAND",
        help=f"{', '.join(PACKAGES)}; all, and the jars, without any",
    )
    commands: list[str] = parser.parse_args(arguments).commands
    for command in commands:
        if command not in PACKAGES:
            parser.error(f"there is no package for {command}: choose from {', '.join(PACKAGES)}")
    return commands


def main(commands: Sequence[str]) -> None:
    packages = missing_packages(commands or PACKAGES)
    if packages:
        reason = install(packages)
        if reason is not None:
            print(f"not installed: {' '.join(packages)}: {reason}", file=sys.stderr)
    if commands:
        return
    for what, fetch in (("Apache Kafka", distribution), ("ZooKeeper", zookeeper_jars)):
        try:
            fetch()
        except Unavailable as reason:
            print(f"{what}'s jars: {reason}", file=sys.stderr)


if __name__ == "__main__":
    main(commands_of(sys.argv[1:]))
