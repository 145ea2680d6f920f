"""Commands with an end: each has a time-out, and nothing that it started outlives it.

A command is the leader of a session of its own; when it has ended, or its time is up, whatever is left of its process
group is killed. What it prints goes to a file, which is bounded as all files that it writes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .suite import Command, Ended

POLL_INTERVAL_S = 0.02
FILE_KBYTES_MAX = 2_000_000
OUTPUT_BYTES_MAX = 50_000_000
NICE = 5
TAIL_LINES = 12
FETCH_TRIES = 3
FETCH_PAUSE_S = 5.0


class Unavailable(Exception):
    """A suite cannot be had on this machine; the text says what is missing."""


class CommandFailed(Exception):
    """A command of a build failed; the text has the end of what it printed."""


def tool(name: str, purpose: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{purpose} needs `{name}`, and there is none here.")
    return found


def run(command: Command, log: Path, timeout_s: float) -> Ended:
    """Run to the end or the time-out; the output is in `log`, too."""
    log.parent.mkdir(parents=True, exist_ok=True)
    # `ulimit -f` counts blocks of 512 bytes in POSIX shells.
    limited = ["sh", "-c", f'ulimit -f {FILE_KBYTES_MAX * 2}; exec nice -n {NICE} "$@"', "sh", *command.words]
    with log.open("wb") as output:
        process = subprocess.Popen(
            limited,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=command.folder,
            env=_environment(command),
            start_new_session=True,
        )
    in_time = False
    try:
        in_time = _ended_within(process.pid, timeout_s)
    finally:
        # Before the leader is waited for: as long as it is there, its number is nobody else's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return Ended(process.returncode if in_time else None, read_bounded(log))


def _environment(command: Command) -> dict[str, str]:
    """The same for a suite wherever it runs: where CI is set, some leave out tests by themselves."""
    return {name: value for name, value in os.environ.items() if name != "CI"} | dict(command.environment)


def _ended_within(pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def read_bounded(log: Path) -> str:
    """What was printed, of very much the end."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - OUTPUT_BYTES_MAX))
        return file.read().decode(errors="replace")


def make(
    words: Sequence[str],
    folder: Path,
    *,
    log: Path,
    timeout_s: float = 900,
    environment: Mapping[str, str] | None = None,
) -> str:
    """One step of a build; returns what it printed."""
    ended = run(Command(words, folder, environment or {}), log, timeout_s)
    if ended.code == 0:
        return ended.output
    how = f"did not end within {timeout_s:g} s" if ended.code is None else f"ended with code {ended.code}"
    tail = "\n".join(ended.output.splitlines()[-TAIL_LINES:])
    raise CommandFailed(f"`{' '.join(words)}` {how}:\n{tail}")


def fetch(words: Sequence[str], folder: Path, *, log: Path, pause_s: float = FETCH_PAUSE_S) -> str:
    """A step that asks a registry, which may be out for a moment."""
    for _ in range(FETCH_TRIES - 1):
        try:
            return make(words, folder, log=log)
        except CommandFailed:
            time.sleep(pause_s)
    return make(words, folder, log=log)
