"""Child processes: lean interpreters for work that computes for long (see `child` for their side).

A process is started rather than forked: the broker has threads and an event loop that a fork would tear. Starting one
takes a quarter of a second of CPU, so that one that has done its work stays for the next, for CHILD_IDLE_S_MAX; where
that one ends before it begins the next, a new one does it. No work is begun twice. A thread per piece of work talks to
its child, since pipes cannot be watched on every system's loop; it waits without the interpreter's lock. Children are
few: the caller bounds their number.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from moldau.base.limits import CHILD_IDLE_S_MAX
from moldau.runtime.ports import ChildFailed
from moldau.runtime.real.child import BEGUN, FAILED, OS_ERROR, REPORT, RESULT, Answer, read_frame, write_frame
from moldau.runtime.real.features import Features

T = TypeVar("T")
Process = subprocess.Popen[bytes]

PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]);"
    " from moldau.runtime.real.child import main; main()"
)
"""The child finds the same modules, however this process came to its path."""


class Children:
    __slots__ = ("_features", "_idle", "_loop", "_running", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, features: Features) -> None:
        self._loop = loop
        self._features = features
        self._running: dict[_Conversation, None] = {}
        self._idle: Process | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[..., T], args: tuple[Any, ...], report: Callable[[Any], object]) -> T:
        conversation = _Conversation((self._features, work, args), self._loop, report, self._take_idle())
        self._running[conversation] = None
        try:
            kind, value = await asyncio.shield(conversation.outcome)
        except asyncio.CancelledError:
            conversation.kill()
            await conversation.outcome
            raise
        finally:
            del self._running[conversation]
            self._keep(conversation.left_over)
        if kind == RESULT:
            result: T = value
            return result
        raise OSError(*value) if kind == OS_ERROR else ChildFailed(value)

    def close(self) -> None:
        """End all children. Whoever waits for one learns of it, if its loop still runs."""
        for conversation in list(self._running):
            conversation.kill()
            conversation.join()
            if conversation.left_over is not None:
                _end(conversation.left_over)
        idle = self._take_idle()
        if idle is not None:
            _end(idle)

    def _take_idle(self) -> Process | None:
        idle, self._idle = self._idle, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if idle is not None and idle.poll() is not None:  # somebody has ended it
            _end(idle)
            return None
        return idle

    def _keep(self, process: Process | None) -> None:
        if process is None:
            return
        if self._idle is not None or self._loop.is_closed():
            _end_aside(process)
            return
        self._idle = process
        self._timer = self._loop.call_later(CHILD_IDLE_S_MAX, self._end_idle)

    def _end_idle(self) -> None:
        idle = self._take_idle()
        if idle is not None:
            _end_aside(idle)


class _Conversation:
    """One piece of work, with a child of its own as long as it takes."""

    def __init__(
        self,
        request: object,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[Any], object],
        process: Process | None,
    ) -> None:
        self.outcome: asyncio.Future[tuple[int, Any]] = loop.create_future()
        self.left_over: Process | None = None
        """The child, when the outcome is there and it can do more."""
        self._request = request
        self._loop = loop
        self._report = report
        self._process = process
        self._was_idle = process is not None
        self._has_begun = False
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
            while (process := self._start()) is not None:
                outcome = self._converse(process)
                if not self._must_replace(process):
                    break
        except OSError as error:
            outcome = OS_ERROR, (error.errno, error.strerror, error.filename)
        except Exception as error:  # a request that cannot be pickled is the caller's mistake: tell him
            outcome = FAILED, f"{type(error).__name__}: {error}"
        self._tell(self._finish, outcome)

    def _start(self) -> Process | None:
        with self._lock:
            if self._process is None and not self._killed:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", PROGRAM, json.dumps(sys.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),
                )
            return self._process

    def _must_replace(self, process: Process) -> bool:
        """Whether the process was taken idle and had ended by then: that says nothing of the work."""
        with self._lock:
            if not self._was_idle or self._has_begun or self._process is not process:
                return False
            self._was_idle, self._process = False, None
            return not self._killed

    def _converse(self, process: Process) -> tuple[int, Any]:
        assert process.stdin is not None and process.stdout is not None
        last: Answer | None = None
        try:
            write_frame(process.stdin, self._request)
            while last is None:
                answer: Answer = read_frame(process.stdout)
                if answer[0] == BEGUN:
                    self._has_begun = True
                elif answer[0] == REPORT:
                    self._tell(self._report, answer[1])
                else:
                    last = answer
        except (EOFError, BrokenPipeError):
            pass  # its exit code tells
        except BaseException:
            process.kill()
            raise
        finally:
            if not self._leave(process, stays=last is not None and last[2]):
                code = _end(process)
        return last[:2] if last is not None else (FAILED, f"the child process ended with exit code {code}")

    def _leave(self, process: Process, *, stays: bool) -> bool:
        """Whether the child is left for other work; `kill` is for it no more then."""
        with self._lock:
            if not stays or self._killed:
                return False
            self.left_over, self._process = process, None
            return True

    def _finish(self, outcome: tuple[int, Any]) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

    def _tell(self, callback: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            pass  # the loop is closed: nobody waits any more


def _end(process: Process) -> int:
    """Let a child end, which it does when its input ends, and wait for that."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    code = process.wait()
    process.stdout.close()
    return code


def _end_aside(process: Process) -> None:
    threading.Thread(target=_end, args=(process,), name="moldau-child", daemon=True).start()
