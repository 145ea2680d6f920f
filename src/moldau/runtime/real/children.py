"""Child processes: a lean interpreter for one piece of work each (see `child` for its side).

A process is started rather than forked: the broker has threads and an event loop that a fork would tear. A
thread per child talks to it, since pipes cannot be watched on every system's loop; it waits without the
interpreter's lock. Children are few: the caller bounds their number.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.runtime.ports import ChildFailed
from moldau.runtime.real.child import FAILED, OS_ERROR, REPORT, RESULT, read_frame, write_frame
from moldau.runtime.real.features import Features

T = TypeVar("T")

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from moldau.runtime.real.child import main; main()"
)
"""The child finds the same modules, however this process came to its path."""


class Children:
    __slots__ = ("_features", "_loop", "_running")

    def __init__(self, loop: asyncio.AbstractEventLoop, features: Features) -> None:
        self._loop = loop
        self._features = features
        self._running: dict[_Conversation, None] = {}

    async def run(self, work: Callable[..., T], args: tuple[Any, ...], report: Callable[[Any], object]) -> T:
        conversation = _Conversation((self._features, work, args), self._loop, report)
        self._running[conversation] = None
        try:
            kind, value = await asyncio.shield(conversation.outcome)
        except asyncio.CancelledError:
            conversation.kill()
            await conversation.outcome
            raise
        finally:
            del self._running[conversation]
        if kind == RESULT:
            result: T = value
            return result
        raise OSError(*value) if kind == OS_ERROR else ChildFailed(value)

    def close(self) -> None:
        """End all children. Whoever waits for one learns of it, if its loop still runs."""
        for conversation in list(self._running):
            conversation.kill()
            conversation.join()


class _Conversation:
    def __init__(
        self, request: object, loop: asyncio.AbstractEventLoop, report: Callable[[Any], object]
    ) -> None:
        self.outcome: asyncio.Future[tuple[int, Any]] = loop.create_future()
        self._request = request
        self._loop = loop
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._talk, name="moldau-child", daemon=True)
        self._thread.start()

    def kill(self) -> None:
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def join(self) -> None:
        self._thread.join()

    def _talk(self) -> None:
        outcome: tuple[int, Any] = FAILED, "the child process was ended"
        try:
            process = self._start()
            if process is not None:
                outcome = self._converse(process)
        except OSError as error:
            outcome = OS_ERROR, (error.errno, error.strerror, error.filename)
        except Exception as error:  # a request that cannot be pickled is the caller's mistake: tell him
            outcome = FAILED, f"{type(error).__name__}: {error}"
        self._tell(self._finish, outcome)

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if not self._killed:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),
                )
            return self._process

    def _converse(self, process: subprocess.Popen[bytes]) -> tuple[int, Any]:
        assert process.stdin is not None and process.stdout is not None
        outcome: tuple[int, Any] | None = None
        try:
            write_frame(process.stdin, self._request)
            while outcome is None:
                kind, value = read_frame(process.stdout)
                if kind == REPORT:
                    self._tell(self._report, value)
                else:
                    outcome = kind, value
        except (EOFError, BrokenPipeError):
            pass  # its exit code tells
        except BaseException:
            process.kill()
            raise
        finally:
            code = process.wait()
            process.stdout.close()
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass
        return outcome or (FAILED, f"the child process ended with exit code {code}")

    def _finish(self, outcome: tuple[int, Any]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def _tell(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more
