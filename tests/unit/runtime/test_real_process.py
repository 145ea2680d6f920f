"""How a process starts and ends: `run`, signals, the collector, locks against other processes, the fallbacks."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from moldau.runtime.ports import Runtime
from moldau.runtime.real import SWITCH_INTERVAL_S, new_event_loop, run
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import PLAIN, Features
from moldau.runtime.real.process import (
    descriptor_limit,
    end_quickly,
    install_hangup_handler,
    install_signal_handlers,
    raise_descriptor_limit,
    tune_gc,
)


def test_a_thread_that_computes_gives_the_lock_back_soon() -> None:
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        new_event_loop().close()
        assert sys.getswitchinterval() == pytest.approx(SWITCH_INTERVAL_S, rel=0.02)
        sys.setswitchinterval(0.0001)
        new_event_loop().close()
        assert sys.getswitchinterval() == pytest.approx(0.0001, rel=0.02), "never longer than it was"
    finally:
        sys.setswitchinterval(before)


def test_run_gives_the_result_and_ends_the_tasks_and_threads_that_are_left() -> None:
    ended: list[str] = []

    async def main(runtime: Runtime) -> str:
        async def forever(name: str) -> None:
            try:
                await runtime.tasks.sleep(3600)
            finally:
                ended.append(name)

        for name in ("first", "second", "third"):
            runtime.tasks.spawn(forever(name), name=name)
        await runtime.tasks.in_thread(len, "x")
        await runtime.tasks.sleep(0)
        return "result"

    assert run(main) == "result"
    assert ended == ["first", "second", "third"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("moldau-io")]


def test_run_raises_what_main_raises() -> None:
    async def main(runtime: Runtime) -> None:
        raise ValueError("the reason")

    with pytest.raises(ValueError, match="the reason"):
        run(main)


def test_thread_work_runs_on_named_threads_off_the_loop() -> None:
    async def main(runtime: Runtime) -> None:
        name = await runtime.tasks.in_thread(lambda: threading.current_thread().name)
        assert name.startswith("moldau-io")
        assert threading.current_thread().name != name

    run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="no signals to oneself")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_is_told_on_the_loop(number: signal.Signals) -> None:
    async def main(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        install_signal_handlers(loop, told.set)
        try:
            os.kill(os.getpid(), number)
            await asyncio.wait_for(told.wait(), 5)
        finally:
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(one)

    run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_a_hangup_is_told_on_the_loop_unless_it_was_ignored_before() -> None:
    async def main(runtime: Runtime) -> None:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        install_hangup_handler(loop, told.set)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(told.wait(), 5)
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        install_hangup_handler(loop, told.set)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN

    before = signal.getsignal(signal.SIGHUP)
    try:
        run(main)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_tuning_the_collector_freezes_what_is_there() -> None:
    threshold, frozen = gc.get_threshold(), gc.get_freeze_count()
    try:
        tune_gc()
        assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == (10_000, 3, 3_000)
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


def test_a_process_that_ends_has_the_collector_look_at_nothing_more() -> None:
    class Circle:
        pass

    circle = Circle()
    circle.itself = circle  # type: ignore[attr-defined]
    gone = weakref.ref(circle)
    del circle
    try:
        end_quickly()
        gc.collect()
        assert gone() is not None
    finally:
        gc.unfreeze()
    gc.collect()
    assert gone() is None


@pytest.mark.skipif(sys.platform == "win32", reason="no limit to raise")
def test_the_descriptor_limit_is_raised_as_far_as_it_may() -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert descriptor_limit() == 256
        assert raise_descriptor_limit() >= min(before[0], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


HOLDER = """
import sys
from moldau.runtime.real.disk import RealDisk
from moldau.runtime.real.features import Features
lock = RealDisk(Features.detect()).lock(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_of_another_process_holds_until_it_dies(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    disk = RealDisk(Features.detect())
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().strip() == b"held"
        with pytest.raises(BlockingIOError, match="another process"):
            disk.lock(path)
    finally:
        holder.kill()
        holder.communicate()
    disk.lock(path).release()
    assert os.path.exists(path)


def test_one_variable_forgets_every_optional_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_FALLBACKS", "1")
    assert Features.detect() == PLAIN
    loop = new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()


@pytest.mark.skipif(sys.platform != "linux", reason="about Linux")
def test_linux_has_every_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MOLDAU_FALLBACKS", raising=False)
    features = Features.detect()
    assert features.uvloop
    assert features.sendfile
    assert features.read_nowait
    assert features.positional
