"""The ports over the operating system: the one place that touches clocks, entropy, files, sockets,
threads and processes.

`run(main)` is how a process starts: it makes the loop and the runtime, runs `main(runtime)` to its end, and
leaves nothing behind. Code that has a loop of its own calls `real_runtime()` on that loop's thread and
`close_runtime()` at the end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from moldau.runtime.ports import Runtime
from moldau.runtime.real.clock import RealClock
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features
from moldau.runtime.real.net import RealNet
from moldau.runtime.real.random import RealRandom
from moldau.runtime.real.tasks import RealTasks

__all__ = ["close_runtime", "new_event_loop", "real_runtime", "run"]

T = TypeVar("T")

SWITCH_INTERVAL_S = 0.0005
"""How long a thread that computes keeps the interpreter's lock when the loop asks for it. Python's default of 5 ms
would make every request beside it wait for that long, several times. Where no thread computes, it changes nothing."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed. Never Windows' proactor: it cannot watch sockets for readiness.

    The loop shares the interpreter with threads that compute (`log.aside`): it gets its turn of it quickly.
    """
    sys.setswitchinterval(min(SWITCH_INTERVAL_S, sys.getswitchinterval()))
    if Features.detect().uvloop:
        import uvloop

        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.SelectorEventLoop()


def real_runtime(
    loop: asyncio.AbstractEventLoop | None = None, *, features: Features | None = None
) -> Runtime:
    """The ports over `loop`, or over the running one. Call it on the thread that runs the loop."""
    loop = loop or asyncio.get_running_loop()
    features = features or Features.detect()
    tasks = RealTasks(loop, features)
    return Runtime(
        clock=RealClock(),
        random=RealRandom(),
        tasks=tasks,
        net=RealNet(loop, features, tasks.in_thread),
        disk=RealDisk(features),
    )


def close_runtime(runtime: Runtime) -> None:
    """End the runtime's threads and close its files. Tasks and connections are their owners' to end
    before."""
    if isinstance(runtime.tasks, RealTasks):
        runtime.tasks.close()
    if isinstance(runtime.disk, RealDisk):
        runtime.disk.close()


def run(main: Callable[[Runtime], Coroutine[Any, Any, T]], *, syncs: bool = True) -> T:
    """Run a process's main coroutine on a new loop; its result, or KeyboardInterrupt after Ctrl-C. `syncs`: not where
    its data are thrown away."""

    async def whole() -> T:
        runtime = real_runtime(features=Features.detect(syncs=syncs))
        try:
            return await main(runtime)
        finally:
            if isinstance(runtime.tasks, RealTasks):
                for task in runtime.tasks.cancel_all():
                    await asyncio.wait((task,))
            close_runtime(runtime)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(whole())
