"""Kafka's tools, many calls in one JVM: its start costs a second, most tools far less.

`Workshop.java` runs them, from its source; where Java has no compiler, each tool is a process of its own, as with
`Distribution.run`. A tool that does not end in time ends the JVM, and the next call has a new one.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import threading
from pathlib import Path

from bench.apache_kafka import TOOLS, Distribution, ToolFailed, ToolRun

SOURCE = Path(__file__).with_name("Workshop.java")


class Workshop:
    """The tools for one cluster; to be closed at the end."""

    def __init__(self, kafka: Distribution, folder: Path) -> None:
        self._kafka = kafka
        self._log = folder / "workshop.txt"
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, tool: str, *arguments: str, check: bool = True, timeout_s: float = 60) -> ToolRun:
        """As `Distribution.run`."""
        if not _can_compile(self._kafka):
            return self._kafka.run(tool, *arguments, check=check, timeout_s=timeout_s)
        done = self._call([TOOLS.get(tool, tool), *arguments], timeout_s)
        if check and done.code:
            raise ToolFailed(f"{tool} ended with code {done.code}:\n{done.stdout}{done.stderr}")
        return done

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _call(self, words: list[str], timeout_s: float) -> ToolRun:
        process = self._open()
        assert process.stdin is not None and process.stdout is not None
        coded = [word.encode() for word in words]
        call = b"".join([struct.pack(">i", len(coded)), *(struct.pack(">i", len(w)) + w for w in coded)])
        late = threading.Timer(timeout_s, process.kill)
        late.start()
        try:
            process.stdin.write(call)
            process.stdin.flush()
            (code,) = struct.unpack(">i", process.stdout.read(4))
            printed, errors = (
                process.stdout.read(struct.unpack(">i", process.stdout.read(4))[0]).decode() for _ in range(2)
            )
        except (OSError, struct.error):
            self.close()
            raise ToolFailed(
                f"{words} did not end within {timeout_s:g} s:\n{self._log.read_text()[-2000:]}"
            ) from None
        finally:
            late.cancel()
        return ToolRun(code, printed, errors)

    def _open(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._kafka.command(str(SOURCE)),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        return self._process


def _can_compile(kafka: Distribution) -> bool:
    return shutil.which("javac", path=str(Path(kafka.java).resolve().parent)) is not None
