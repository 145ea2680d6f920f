"""`moldau up --brokers N` as processes, for tests."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from cluster.support import wait_until

TIMEOUT_S = 60
COMMAND = [sys.executable, "-c", "from moldau.cli import main; main()"]
ADDRESSES = re.compile(r"ready: bootstrap\.servers=((?:localhost:\d+,?)+)\n")


class Up:
    """A running `moldau up --brokers N`, ready when constructed."""

    def __init__(self, folder: Path, *arguments: str, **environment: str) -> None:
        self.data = folder / "moldau-data"
        self.errors = folder / "errors"
        with self.errors.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*COMMAND, "up", "--port", "0", *arguments],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder,
                env=os.environ | environment,
            )
        assert self.popen.stdout is not None
        self.first_line = self.popen.stdout.readline()
        match = ADDRESSES.fullmatch(self.first_line)
        assert match, (self.first_line, self.errors.read_text())
        self.addresses = match[1].split(",")

    def pid(self, broker: int) -> int:
        """Of a broker that runs; 0 while it has none."""
        try:
            return int((self.data / f"broker-{broker}" / "pid").read_text())
        except (OSError, ValueError):
            return 0

    def wait_for_another(self, broker: int, pid: int) -> int:
        wait_until(lambda: self.pid(broker) not in (0, pid), TIMEOUT_S, f"broker {broker} to come back")
        return self.pid(broker)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(TIMEOUT_S)

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stdout is not None
        self.popen.stdout.close()

    def log(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.errors.read_text().splitlines()]

    def said(self, text: str) -> bool:
        return any(text in entry["message"] for entry in self.log())
