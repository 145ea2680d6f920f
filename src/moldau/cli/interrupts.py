"""Ctrl-C, remembered: confluent-kafka loses a KeyboardInterrupt that comes within one of its callbacks, and raises a
SystemError about it instead.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Self


class CtrlC:
    """Within its `with`, whether the user pressed Ctrl-C. Where something else handles the signal, it is left to it."""

    def __init__(self) -> None:
        self.pressed = False
        self._is_ours = False

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._on_signal)
            self._is_ours = True
        return self

    def __exit__(self, *_error: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.pressed = True
        signal.default_int_handler(number, frame)
