"""The main program of a child process: one piece of work after another, asked for and answered over pipes.

Requests come in on the standard input, which stays open as long as the parent wants the child: its end is the
child's, whatever it is doing. What goes out on what was the standard output: that the work has begun, its reports, and
its outcome; prints go to the standard error, so that nothing can get between them. A child that has grown large says so
with its outcome, and ends.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from struct import Struct
from typing import IO, Any

from moldau.base.limits import CHILD_IDLE_BYTES_MAX
from moldau.runtime.ports import Child
from moldau.runtime.real.clock import RealClock
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features

FRAME = Struct(">Q")
NICENESS = 19
"""The lowest priority: whoever serves a client goes first."""
BEGUN, REPORT, RESULT, OS_ERROR, FAILED = range(5)

Request = tuple[Features, Callable[..., Any], tuple[Any, ...]]
Answer = tuple[int, Any, bool]
"""What kind, the value, and whether the child is there for more work."""


def write_frame(stream: IO[bytes], value: object) -> None:
    data = pickle.dumps(value)
    stream.write(FRAME.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """The next value; EOFError at the end of the stream."""
    return pickle.loads(_read_bytes(stream))


def _read_bytes(stream: IO[bytes]) -> bytes:
    head = stream.read(FRAME.size)
    data = stream.read(FRAME.unpack(head)[0]) if len(head) == FRAME.size else b""
    if not data:
        raise EOFError
    return data


def main() -> None:
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for its parent, whose end it sees
    _lower_priority()
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(requests,), daemon=True).start()
    code = 1
    try:
        _work(requests, output)
        code = 0
    except BrokenPipeError:
        pass  # the parent is no more
    except BaseException:
        traceback.print_exc()
    os._exit(code)  # the thread that waits for the parent's end is not waited for


def _work(requests: queue.SimpleQueue[bytes], output: IO[bytes]) -> None:
    stays = True
    while stays:
        request = requests.get()
        write_frame(output, (BEGUN, None, True))
        kind, value = _outcome(request, output)
        gc.collect()
        stays = _peak_bytes() <= CHILD_IDLE_BYTES_MAX
        write_frame(output, (kind, value, stays))


def _receive(requests: queue.SimpleQueue[bytes]) -> None:
    """Requests, until the parent wants no more, or is no more."""
    try:
        while True:
            requests.put(_read_bytes(sys.stdin.buffer))
    finally:
        os._exit(1)


def _outcome(data: bytes, output: IO[bytes]) -> tuple[int, Any]:
    disk: RealDisk | None = None
    try:
        features, work, arguments = pickle.loads(data)
        disk = RealDisk(features)
        child = Child(
            disk=disk,
            clock=RealClock(),
            sleep=time.sleep,
            report=lambda value: write_frame(output, (REPORT, value, True)),
        )
        return RESULT, work(child, *arguments)
    except OSError as error:
        return OS_ERROR, (error.errno, error.strerror, error.filename)
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}"
    finally:
        if disk is not None:
            disk.close()


def _lower_priority() -> None:
    if sys.platform != "win32":  # there the parent asks for it when it starts the process
        os.nice(NICENESS)


def _peak_bytes() -> int:
    """The most memory that this process has had; where the system does not say, too much to stay.

    Linux counts into the peak of `getrusage` what the parent had when it started this process: /proc does not.
    """
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return sys.maxsize
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
