"""A program at a terminal: keys go in, the screen is read until it shows something."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

LOGIN = "import os, sys; os.login_tty(0); os.execvp(sys.argv[1], sys.argv[1:])"
CTRL_C, CTRL_D, TAB, UP, ENTER = "\x03", "\x04", "\t", "\x1b[A", "\r"


class Terminal:
    """Of 200 columns, without colours or cursor movements."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.screen = ""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", LOGIN, *command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env={**os.environ, "TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "200", **environment},
        )
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """The window is closed: its program gets SIGHUP, and can neither read nor write there any more."""
        if self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def send(self, *keys: str) -> None:
        for each in keys:
            os.write(self._ours, each.encode())

    def wait_for(self, text: str, timeout_s: float) -> str:
        """What has been shown since the last one, up to the text and with it."""
        deadline = time.monotonic() + timeout_s
        while (at := self.screen.find(text, self._seen)) < 0:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} does not come:\n{self.screen[self._seen :]}"
            if not self._read(left):
                assert self.screen.find(text, self._seen) >= 0, f"ended without {text!r}:\n{self.screen}"
        shown, self._seen = self.screen[self._seen : at + len(text)], at + len(text)
        return shown

    def press_until(self, key: str, text: str, timeout_s: float) -> None:
        """Like a person, once more where nothing happens: Python sees a signal that comes while readline draws only
        when the next key comes."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.send(key)
            try:
                self.wait_for(text, 2.0)
                return
            except AssertionError:
                if time.monotonic() > deadline:
                    raise

    def _read(self, timeout_s: float) -> bool:
        if not select.select([self._ours], [], [], timeout_s)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)
