"""What concerns the whole process: signals, the garbage collector, the limit on open descriptors."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from collections.abc import Callable

if sys.platform != "win32":
    import resource

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
DESCRIPTORS_WANTED = 1 << 20
WINDOWS_DESCRIPTORS = 512
"""What its C runtime allows; it has no limit to ask for."""


def install_signal_handlers(loop: asyncio.AbstractEventLoop, on_stop: Callable[[], object]) -> None:
    """Call `on_stop` on the loop at each Ctrl-C or SIGTERM."""
    for number in STOP_SIGNALS:
        try:
            loop.add_signal_handler(number, on_stop)
        except NotImplementedError:  # Windows: the handler runs on the main thread, between two instructions
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(on_stop))


def install_hangup_handler(loop: asyncio.AbstractEventLoop, on_hangup: Callable[[], object]) -> None:
    """Call `on_hangup` on the loop at each SIGHUP: the terminal is gone, or somebody wants settings to be read anew.

    Where the process was started with SIGHUP ignored (`nohup`), it stays so.
    """
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, on_hangup)


def tune_gc() -> None:
    """Call it when much was loaded and nobody is served yet: what is there now is never looked at again by the
    collector.

    The rest is looked at when it has grown: neither requests nor deleted topics leave circles behind
    (`tests/cluster/test_garbage.py`), so in steady work that is never. Thousands of partitions that come are looked at
    once, 30,000 objects at a time, which takes some 10 ms. A look at everything, which takes 0.2 s with 10,000
    partitions, comes after 90 million objects, if ever: large requests count, though nothing of them stays.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 3, 3_000)


def end_quickly() -> None:
    """Call it when nothing is left to do but to end: the interpreter looks at everything once more then, which takes a
    second with thousands of partitions, and frees nothing that the process's end does not."""
    gc.freeze()


def descriptor_limit() -> int:
    """Descriptors that the process may have open at once."""
    if sys.platform == "win32":
        return WINDOWS_DESCRIPTORS
    else:  # noqa: RET505 (the type checker leaves out a platform's branch, not what follows it)
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return DESCRIPTORS_WANTED if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int:
    """Ask for as many open descriptors as the process may ask for; what it has then."""
    if sys.platform != "win32":
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            except (OSError, ValueError):  # macOS refuses what exceeds kern.maxfilesperproc
                pass
    return descriptor_limit()
