"""The peers' servers, from Debian's packages: installed where this user may, without their services being started."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.setup import install
from moldau.runtime.real.java import Unavailable

PACKAGES = {
    "redis-server": "redis-server",
    "nats-server": "nats-server",
    "/usr/lib/rabbitmq/bin/rabbitmq-server": "rabbitmq-server",
    "epmd": "rabbitmq-server",
}
"""Program -> the package that has it."""
POLICY = Path("/usr/sbin/policy-rc.d")
"""What a package's installation asks before it starts a service; 101: not here."""


def install_missing() -> None:
    missing = sorted({package for name, package in PACKAGES.items() if shutil.which(name) is None})
    if missing:
        with _no_services():
            reason = install(missing)
        if reason is not None:
            raise Unavailable(f"The peers need {', '.join(missing)}, which could not be installed: {reason}")


@contextlib.contextmanager
def _no_services() -> Iterator[None]:
    try:
        with open(POLICY, "x") as policy:
            policy.write("#!/bin/sh\nexit 101\n")
    except OSError:  # there is one already, or this user may install nothing anyway
        yield
        return
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"`{name}` is not installed: Debian's package {PACKAGES[name]} has it")
    return found


def version_of(package: str) -> str:
    """Without Debian's own numbers: 5:7.0.15-1~deb12u10 is 7.0.15."""
    words = ["dpkg-query", "--show", "--showformat=${Version}", package]
    told = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
    found = re.match(r"(?:\d+:)?([\d.]+)", told)
    return found[1] if found else "?"
