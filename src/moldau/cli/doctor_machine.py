"""What this machine has, and what Moldau would miss on it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator

from moldau.cli.findings import Finding, ok, problem, remark, warning
from moldau.cli.output import human_bytes
from moldau.runtime.real.features import Features

PYTHON_MIN = (3, 11)
DESCRIPTORS_WANTED = 4096
FREE_BYTES_LEAST = 512 << 20
FREE_BYTES_WANTED = 5 << 30
NEEDED = ("click", "confluent-kafka", "cramjam", "crc32c", "cryptography", "kio", "rich")


def examine_machine(data: str, port: int) -> Iterator[Finding]:
    yield python()
    yield from packages()
    yield from operating_system()
    yield descriptors()
    yield disk_space(data)
    yield port_state(port)


def python() -> Finding:
    text = f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.release()}"
    if sys.version_info < PYTHON_MIN:
        return problem("Python", text, f"Moldau needs Python {'.'.join(map(str, PYTHON_MIN))} or newer.")
    return ok("Python", text)


def packages() -> Iterator[Finding]:
    versions = {name: version_of(name) for name in NEEDED}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield problem("packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}")
    else:
        yield ok("packages", ", ".join(f"{name} {version}" for name, version in versions.items()))
    if Features.detect().uvloop:
        yield ok("event loop", f"uvloop {version_of('uvloop')}")
    else:
        yield warning(
            "event loop", "asyncio's own; uvloop is not there", "pip install uvloop makes the broker faster."
        )


def version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def operating_system() -> Iterator[Finding]:
    features = Features.detect()
    have = {"sendfile": features.sendfile, "reads that never wait": features.read_nowait}
    missing = [name for name, there in have.items() if not there]
    if missing:
        yield remark(
            "kernel", f"without {' and '.join(missing)}", "Moldau works, with slower reads of old data."
        )
    else:
        yield ok("kernel", " and ".join(have))
    yield ok("processors", str(os.cpu_count() or 1))


def descriptors() -> Finding:
    if sys.platform == "win32":
        return remark("open files", "Windows has no limit to set")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "no limit" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    text = f"{soft:,}, up to {most} (a broker takes what it may)"
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS_WANTED:
        return warning(
            "open files", text, f"Raise it: ulimit -Hn {DESCRIPTORS_WANTED}; each connection needs one."
        )
    return ok("open files", text)


def disk_space(data: str) -> Finding:
    folder = os.path.abspath(data)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    space = shutil.disk_usage(folder)
    text = f"{human_bytes(space.free)} free of {human_bytes(space.total)} at {folder}"
    advice = "Free some, keep less (log.retention.*), or name another folder with --data."
    if space.free < FREE_BYTES_LEAST:
        return problem("disk", text, advice)
    if space.free < FREE_BYTES_WANTED:
        return warning("disk", text, advice)
    return ok("disk", text)


def port_state(port: int) -> Finding:
    subject = f"port {port}"
    with socket.socket() as probe:
        if sys.platform != "win32":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            return remark(subject, reason, "If not by a broker of yours: `moldau up --port N` takes another.")
    return ok(subject, "free")
