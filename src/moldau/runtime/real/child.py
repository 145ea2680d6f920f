"""The main program of a child process: one piece of work, asked for and answered over pipes.

The request comes in on the standard input, which then stays open as long as the parent lives: its end is the
parent's, and the child's too, whatever it is doing. Reports and the outcome go out on what was the standard
output; prints go to the standard error, so that nothing can get between them.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from struct import Struct
from typing import IO, Any

from moldau.runtime.ports import Child
from moldau.runtime.real.clock import RealClock
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

FRAME = Struct(">Q")
NICENESS = 19
"""The lowest priority: whoever serves a client goes first."""
REPORT, RESULT, OS_ERROR, FAILED = range(4)

Request = tuple[Features, Callable[..., Any], tuple[Any, ...]]


def write_frame(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    stream.write(FRAME.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """The next value; EOFError at the end of the stream."""
    head = stream.read(FRAME.size)
    data = stream.read(FRAME.unpack(head)[0]) if len(head) == FRAME.size else b""
    if not data:
        raise EOFError
    return pickle.loads(data)


def main() -> None:
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _lower_priority()
    features, work, arguments = read_frame(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    child = Child(
        disk=RealDisk(features),
        clock=RealClock(),
        sleep=time.sleep,
        report=lambda value: write_frame(output, (REPORT, value)),
    )
    write_frame(output, _outcome(work, child, arguments))
    os._exit(0)  # the thread that waits for the parent's end is not waited for


def _outcome(work: Callable[..., Any], child: Child, arguments: tuple[Any, ...]) -> tuple[int, Any]:
    try:
        return RESULT, work(child, *arguments)
    except OSError as error:
        return OS_ERROR, (error.errno, error.strerror, error.filename)
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}"


def _lower_priority() -> None:
    if sys.platform != "win32":  # there the parent asks for it when it starts the process
        os.nice(NICENESS)


def _end_with_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
