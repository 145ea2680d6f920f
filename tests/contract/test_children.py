"""Work in a child process: every sentence of the port, over every engine."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from moldau.base.limits import CHILD_IDLE_BYTES_MAX
from moldau.runtime.ports import Child, ChildFailed, Runtime
from moldau.runtime.real.features import PLAIN, Features

from .conftest import Engine, RealEngine


def ignore(_: Any) -> None:
    pass


def write_and_add(child: Child, path: str, numbers: list[int]) -> int:
    file = child.disk.open(path, create=True)
    file.pwrite(b"from the child", 0)
    file.sync()
    return sum(numbers)


def count_up(child: Child, count: int) -> str:
    for number in range(count):
        child.report(number)
    return "done"


def sleep_between(child: Child, delay_s: float) -> tuple[float, int]:
    before_s, wall_ms = child.clock.monotonic(), child.clock.wall_ms()
    child.report("began")
    child.sleep(delay_s)
    return before_s, wall_ms


def open_missing(child: Child, path: str) -> None:
    child.disk.open(path)


def break_down(child: Child) -> None:
    raise KeyError("the reason")


def end_abruptly(child: Child) -> None:
    os._exit(3)


def note_and_end_abruptly(child: Child, path: str) -> None:
    file = child.disk.open(path, create=True)
    file.pwrite(b"x", file.size())
    os._exit(3)


def say_pid_and_wait(child: Child) -> None:
    print("a print must not disturb the conversation")
    child.report(os.getpid())
    time.sleep(60)


def say_pid(child: Child) -> int:
    return os.getpid()


def say_pid_and_take(child: Child, megabytes: int) -> int:
    bytearray(b"x") * (megabytes << 20)
    return os.getpid()


def say_pid_after(child: Child, seconds: float) -> int:
    child.report(os.getpid())
    time.sleep(seconds)
    return os.getpid()


def open_and_leave(child: Child, path: str) -> int:
    """As work that fails half-way: its file stays open."""
    file = child.disk.open(path, create=True)
    file.pwrite(b"x", 0)
    kept.append(file)
    return len(os.listdir("/proc/self/fd"))


kept: list[Any] = []


def niceness(child: Child) -> int:
    return os.nice(0)


def test_a_child_works_on_the_same_disk_and_gives_its_result(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        path = f"{engine.folder}/file"
        assert await runtime.tasks.in_child(write_and_add, path, [1, 2, 3], report=ignore) == 6
        assert runtime.disk.read(path) == b"from the child"

    engine.run(main)


def test_reports_arrive_in_order_and_before_the_result(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        reports: list[int] = []
        assert await runtime.tasks.in_child(count_up, 20, report=reports.append) == "done"
        assert reports == list(range(20))

    engine.run(main)


def test_the_loop_goes_on_while_a_child_works_and_its_sleep_takes_time(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        began: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        work = runtime.tasks.spawn(
            runtime.tasks.in_child(sleep_between, 0.2, report=began.set_result), name="child"
        )
        await began
        assert not work.done()
        before_s = runtime.clock.monotonic()
        _, wall_ms = await work
        assert runtime.clock.monotonic() - before_s > 0.1
        assert abs(runtime.clock.wall_ms() - wall_ms) < 60_000

    engine.run(main)


def test_operating_errors_are_raised_as_they_are_and_others_told(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        path = f"{engine.folder}/missing"
        with pytest.raises(FileNotFoundError) as missing:
            await runtime.tasks.in_child(open_missing, path, report=ignore)
        assert missing.value.errno == errno.ENOENT
        assert missing.value.filename == path
        with pytest.raises(ChildFailed, match="KeyError: 'the reason'"):
            await runtime.tasks.in_child(break_down, report=ignore)

    engine.run(main)


def test_cancelling_ends_the_work_and_nothing_is_told_afterwards(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        began = asyncio.Event()
        reports: list[str] = []

        def note(report: str) -> None:
            reports.append(report)
            began.set()

        work = runtime.tasks.spawn(runtime.tasks.in_child(sleep_between, 30.0, report=note), name="child")
        await began.wait()
        before_s = runtime.clock.monotonic()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert runtime.clock.monotonic() - before_s < 20
        assert reports == ["began"]

    engine.run(main)


@pytest.fixture(params=["real", "fallbacks"])
def real_engine(request: pytest.FixtureRequest, tmp_path: Path) -> RealEngine:
    """For what only a process can do."""
    features = PLAIN if request.param == "fallbacks" else Features.detect()
    return RealEngine(request.param, tmp_path, features)


def test_the_death_of_a_child_is_told(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(ChildFailed, match="exit code 3"):
            await runtime.tasks.in_child(end_abruptly, report=ignore)

    real_engine.run(main)


def test_a_request_that_cannot_be_pickled_is_refused(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(ChildFailed, match="pickle"):
            await runtime.tasks.in_child(lambda child: None, report=ignore)

    real_engine.run(main)


def test_closing_the_runtime_ends_its_children(real_engine: RealEngine) -> None:
    pids: list[int] = []

    async def main(runtime: Runtime) -> None:
        began = asyncio.Event()

        def note(pid: int) -> None:
            pids.append(pid)
            began.set()

        runtime.tasks.spawn(runtime.tasks.in_child(say_pid_and_wait, report=note), name="child")
        await began.wait()

    real_engine.run(main)
    assert has_ended(pids[0])


def test_a_child_that_is_done_does_the_next_work_too(real_engine: RealEngine) -> None:
    pids: list[int] = []

    async def main(runtime: Runtime) -> None:
        in_child = runtime.tasks.in_child
        pids.append(await in_child(say_pid, report=ignore))
        with pytest.raises(ChildFailed):
            await in_child(break_down, report=ignore)
        with pytest.raises(FileNotFoundError):
            await in_child(open_missing, f"{real_engine.folder}/missing", report=ignore)
        pids.append(await in_child(say_pid, report=ignore))

    real_engine.run(main)
    assert pids[0] == pids[1]
    assert has_ended(pids[0]), "it ends with the runtime"


def test_a_child_of_a_large_parent_stays_as_well(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        large = bytearray(b"x") * (2 * CHILD_IDLE_BYTES_MAX)
        first = await runtime.tasks.in_child(say_pid, report=ignore)
        assert await runtime.tasks.in_child(say_pid, report=ignore) == first
        assert large

    real_engine.run(main)


def test_one_child_stays_of_several(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        in_child, spawn = runtime.tasks.in_child, runtime.tasks.spawn
        both = [spawn(in_child(say_pid_after, 0.5, report=ignore), name="child") for _ in range(2)]
        pids = [await one for one in both]
        assert pids[0] != pids[1]
        stayed = await in_child(say_pid, report=ignore)
        assert stayed in pids
        (gone,) = set(pids) - {stayed}
        assert await runtime.tasks.in_thread(has_ended, gone)

    real_engine.run(main)


def test_an_idle_child_ends_after_a_while(real_engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.runtime.real.children.CHILD_IDLE_S_MAX", 0.05)

    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid, report=ignore)
        assert await runtime.tasks.in_thread(has_ended, pid)
        assert await runtime.tasks.in_child(say_pid, report=ignore) != pid

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals, and no child stays there")
def test_ctrl_c_is_for_the_parent_of_an_idle_child(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid, report=ignore)
        os.kill(pid, signal.SIGINT)
        assert await runtime.tasks.in_child(say_pid, report=ignore) == pid

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals, and no child stays there")
def test_an_idle_child_that_was_killed_is_replaced(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid, report=ignore)
        os.kill(pid, signal.SIGKILL)
        assert await runtime.tasks.in_thread(has_ended, pid)
        assert await runtime.tasks.in_child(say_pid, report=ignore) != pid

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals, and no child stays there")
def test_an_idle_child_that_ends_unseen_is_replaced(
    real_engine: RealEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid, report=ignore)
        os.kill(pid, signal.SIGKILL)
        assert await runtime.tasks.in_thread(has_ended, pid)
        monkeypatch.setattr(subprocess.Popen, "poll", lambda process: None)  # it was looked at just before
        assert await runtime.tasks.in_child(say_pid, report=ignore) != pid

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals, and no child stays there")
def test_an_idle_child_that_ends_before_it_begins_is_replaced(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid, report=ignore)
        os.kill(pid, signal.SIGSTOP)
        work = runtime.tasks.spawn(runtime.tasks.in_child(say_pid, report=ignore), name="child")
        await runtime.tasks.sleep(0)  # it has been given to the child that stands still
        os.kill(pid, signal.SIGKILL)
        assert await work != pid

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="no child stays there")
def test_work_that_an_idle_child_dies_of_is_not_begun_again(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        path = f"{real_engine.folder}/noted"
        await runtime.tasks.in_child(say_pid, report=ignore)
        with pytest.raises(ChildFailed, match="exit code 3"):
            await runtime.tasks.in_child(note_and_end_abruptly, path, report=ignore)
        assert runtime.disk.read(path) == b"x"

    real_engine.run(main)


def test_a_child_that_took_much_memory_ends_with_its_work(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        pid = await runtime.tasks.in_child(say_pid_and_take, 100, report=ignore)
        assert await runtime.tasks.in_thread(has_ended, pid)
        assert await runtime.tasks.in_child(say_pid, report=ignore) != pid

    real_engine.run(main)


def test_a_cancelled_child_does_no_more_work(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        pids: asyncio.Queue[int] = asyncio.Queue()
        await runtime.tasks.in_child(say_pid, report=ignore)
        work = runtime.tasks.spawn(
            runtime.tasks.in_child(say_pid_and_wait, report=pids.put_nowait), name="child"
        )
        pid = await pids.get()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert has_ended(pid)
        assert await runtime.tasks.in_child(say_pid, report=ignore) != pid

    real_engine.run(main)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors")
def test_no_file_of_one_work_stays_open_in_the_next(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        in_child = runtime.tasks.in_child
        counts = [
            await in_child(open_and_leave, f"{real_engine.folder}/{number}", report=ignore)
            for number in range(3)
        ]
        assert counts[0] == counts[1] == counts[2]

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="it has priorities of another kind")
def test_a_child_has_the_lowest_priority(real_engine: RealEngine) -> None:
    async def main(runtime: Runtime) -> None:
        assert await runtime.tasks.in_child(niceness, report=ignore) == 19

    real_engine.run(main)


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_a_child_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from contract.test_children import say_pid_and_wait\n"
        "from moldau.runtime.real import run\n"
        "def tell(pid): print(pid, file=open(sys.argv[2], 'w'), flush=True)\n"
        "run(lambda runtime: runtime.tasks.in_child(say_pid_and_wait, report=tell))\n"
    )
    told = tmp_path / "pid"
    tests = str(Path(__file__).parent.parent)
    parent = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", program, tests, str(told)])
    try:
        deadline = time.monotonic() + 30
        while not (told.exists() and told.read_text().strip()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    assert has_ended(int(told.read_text()))


def has_ended(pid: int) -> bool:
    """Whether a process goes away within some seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists() and ") Z " in Path(f"/proc/{pid}/stat").read_text():
            return True  # it has ended, and its new parent has not noticed yet
        time.sleep(0.02)
    return False
