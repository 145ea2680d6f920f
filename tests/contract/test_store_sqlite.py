"""What only the SQLite engine promises: real processes that die or are stopped, and files of other formats."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.store import sqlite as engine
from moldau.store.port import Conflict, Create, Entry, Put, TooNew, Unavailable
from moldau.store.sqlite import SqliteStore

DEATH_SEEN_S = 1.0
"""On a quiet machine it takes some milliseconds; the lease of these tests lasts much longer."""
LONG_LEASE_S = 30.0
SHORT_LEASE_S = 0.8
MEMBER = """
import asyncio, json, os, sys
from moldau.runtime.real import run
from moldau.store.port import Create, Put, SessionEnded
from moldau.store.sqlite import SqliteStore

def say(**facts):
    print(json.dumps(facts), flush=True)

async def main(runtime):
    path, name, timeout_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
    store = await SqliteStore.open(runtime.tasks, path, session_timeout_s=timeout_s)
    ended = asyncio.Event()
    def on_end():
        say(event="ended")
        ended.set()
    await store.begin_session(on_end)
    await store.multi([Create(f"/live/{name}", b"", ephemeral=True)])
    if "stand" in sys.argv:
        candidacy = await store.stand("/election", name.encode())
    if "fork" in sys.argv and os.fork() == 0:
        import time
        time.sleep(20)
        os._exit(0)
    say(event="ready")
    count = 0
    while "write" in sys.argv and not ended.is_set():
        try:
            await store.multi([Put("/state", name.encode())])
        except SessionEnded:
            say(event="refused", known=ended.is_set())
            break
        count += 1
        await runtime.tasks.sleep(0.005)
    await ended.wait()
    await store.begin_session(on_end)
    await store.multi([Create(f"/live/{name}", b"again", ephemeral=True)])
    say(event="back")
    await runtime.tasks.sleep(60)

run(main)
"""


@contextmanager
def member(path: Path, name: str, timeout_s: float, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has a session and `/live/<name>`."""
    process = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(path), name, str(timeout_s), *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert heard(process) == {"event": "ready"}
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def heard(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def play(scene: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        runtime = real_runtime()
        try:
            async with asyncio.timeout(60):
                await scene(runtime)
        finally:
            close_runtime(runtime)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())


async def gone(store: SqliteStore, path: str) -> float:
    """Wait until a watcher of the folder finds the entry gone; how long that took."""
    begun_s = time.monotonic()
    changed = asyncio.Event()
    watch = store.watch(path.rpartition("/")[0], changed.set)
    while await store.get(path) is not None:
        await changed.wait()
        changed.clear()
    watch.cancel()
    return time.monotonic() - begun_s


@pytest.mark.parametrize("options", [(), ("fork",)], ids=["alone", "with a forked child"])
def test_a_killed_process_is_seen_at_once(tmp_path: Path, options: tuple[str, ...]) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        store.watch("/live", lambda: None)
        with member(tmp_path / "s", "1", LONG_LEASE_S, *options) as process:
            await runtime.tasks.sleep(0.1)
            process.kill()
            assert await gone(store, "/live/1") < DEATH_SEEN_S
        await store.close()

    play(scene)


def test_the_next_candidate_leads_at_once_and_only_one_at_a_time(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"), session_timeout_s=LONG_LEASE_S)
        await store.begin_session(lambda: None)
        with contextlib.ExitStack() as stack:
            members = [
                stack.enter_context(member(tmp_path / "s", str(n), LONG_LEASE_S, "stand")) for n in range(4)
            ]
            own = await store.stand("/election", b"own")
            for process in members:
                leader = await store.first("/election")
                assert leader is not None and not own.is_first
                begun_s = time.monotonic()
                process.kill()
                await gone(store, leader.path)
                assert time.monotonic() - begun_s < DEATH_SEEN_S
            await asyncio.wait_for(own.won(), DEATH_SEEN_S)
        await store.close()

    play(scene)


def test_a_stopped_process_loses_its_session_and_learns_it_before_it_can_write(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        await store.multi([Create("/state", b"")])
        with member(tmp_path / "s", "1", SHORT_LEASE_S, "write") as process:
            while await store.get("/state") == Entry("/state", b"", 0):
                await runtime.tasks.sleep(0.01)
            for _ in range(20):  # stopped within a transaction it would hold the file
                process.send_signal(signal.SIGSTOP)
                try:
                    await store.multi([Create("/probe", b"")])
                    break
                except Unavailable:
                    process.send_signal(signal.SIGCONT)
            assert await gone(store, "/live/1") < SHORT_LEASE_S + DEATH_SEEN_S
            state = await store.get("/state")
            process.send_signal(signal.SIGCONT)
            events = [heard(process)]
            while events[-1] != {"event": "back"}:
                events.append(heard(process))
            assert {"event": "ended"} in events  # a write that came before that was refused, if there was one
            assert await store.get("/state") == state
            assert await store.get("/live/1") == Entry("/live/1", b"again", 0)
        await store.close()

    play(scene)


def test_a_hung_process_is_told_apart_from_a_slow_one(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        with member(tmp_path / "s", "1", 2.0) as process:
            for _ in range(4):
                process.send_signal(signal.SIGSTOP)
                await runtime.tasks.sleep(0.5)
                process.send_signal(signal.SIGCONT)
                await runtime.tasks.sleep(0.8)
            assert await store.get("/live/1") == Entry("/live/1", b"", 0)
        await store.close()

    play(scene)


def test_the_sessions_of_before_a_reboot_are_over(tmp_path: Path) -> None:
    """Nobody holds their lifelines, and the boot clock has begun anew: leases seem to end far in the future."""

    async def scene(runtime: Runtime) -> None:
        path = str(tmp_path / "s")
        store = await SqliteStore.open(runtime.tasks, path)
        for number, has_lifeline in ((901, 1), (902, 0)):
            await store._run(
                lambda n=number, h=has_lifeline: store._file.begin_session(n, 1e6, bool(h))  # type: ignore[misc]
            )
            await store._run(lambda n=number: store._file.multi([Create(f"/live/{n}", b"", True)], n))  # type: ignore[misc]
        await store._run(lambda: store._file._execute("UPDATE sessions SET timeout_s = 6"))
        await store.close()
        store = await SqliteStore.open(runtime.tasks, path)
        assert await store.children("/live") == []
        await store.close()

    play(scene)


def test_a_change_that_nobody_rang_for_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(runtime: Runtime) -> None:
        one = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        two = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        changed = asyncio.Event()
        two.compare_s = 0.2
        two.watch("/a", changed.set)
        await runtime.tasks.sleep(0.3)
        changed.clear()
        monkeypatch.setattr(engine, "ring", lambda folder, labels: None)  # it died right after its commit
        await one.multi([Create("/a/b", b"")])
        await asyncio.wait_for(changed.wait(), 20 * two.compare_s)
        await one.close()
        await two.close()

    play(scene)


def test_without_named_pipes_leases_and_polling_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "mkfifo")

    async def scene(runtime: Runtime) -> None:
        stores = [
            await SqliteStore.open(runtime.tasks, str(tmp_path / "s"), session_timeout_s=SHORT_LEASE_S)
            for _ in range(2)
        ]
        await stores[0].begin_session(lambda: None)
        await stores[0].multi([Create("/live/1", b"", ephemeral=True)])
        stores[1].watch("/live", lambda: None)
        await runtime.tasks.sleep(2 * SHORT_LEASE_S)
        assert await stores[1].get("/live/1") is not None
        stores[0].abandon()
        assert await gone(stores[1], "/live/1") < SHORT_LEASE_S + DEATH_SEEN_S
        await stores[1].close()

    play(scene)


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        for number in range(5):
            with member(tmp_path / "s", str(number), LONG_LEASE_S) as process:
                process.kill()
                await gone(store, f"/live/{number}")
        await store.begin_session(lambda: None)
        await store.close()
        for name in ("77", "bell-12345678-x"):  # of processes that died before anybody heard of them
            os.mkfifo(tmp_path / "s-sessions" / name)
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        await store.close()
        assert os.listdir(tmp_path / "s-sessions") == []

    play(scene)


def test_a_file_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "s")
    connection.executescript(
        """CREATE TABLE entries (
            path TEXT PRIMARY KEY, parent TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL
        ) WITHOUT ROWID;
        CREATE INDEX entries_by_parent ON entries (parent);
        INSERT INTO entries VALUES ('/topics/a', '/topics', x'31', 4)"""
    )
    connection.close()

    async def scene(runtime: Runtime) -> None:
        stores = await asyncio.gather(
            *(SqliteStore.open(runtime.tasks, str(tmp_path / "s")) for _ in range(4))
        )
        await stores[0].multi([Put("/topics/a", b"2", 4)])
        assert await stores[1].children("/topics") == [Entry("/topics/a", b"2", 5)]
        for store in stores:
            await store.close()

    play(scene)


def test_the_file_and_those_beside_it_are_for_their_own_user_alone(tmp_path: Path) -> None:
    """They have passwords, and keys of users. One that is there already keeps its permissions."""
    path, shared = tmp_path / "store", tmp_path / "shared"
    shared.touch()
    shared.chmod(0o640)

    async def scene(runtime: Runtime) -> None:
        for each in (path, shared):
            store = await SqliteStore.open(runtime.tasks, str(each))
            await store.multi([Create("/a", b"secret")])
            modes = {file.stat().st_mode & 0o777 for file in tmp_path.glob(f"{each.name}*") if file.is_file()}
            assert modes == {0o600 if each is path else 0o640}
            await store.close()

    play(scene)


def test_a_file_of_a_later_format_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE entries (path TEXT)")
        file.execute("PRAGMA user_version=3")
    before = path.read_bytes()

    async def scene(runtime: Runtime) -> None:
        with pytest.raises(TooNew, match=r"store has format 3, and this version knows 2 at most$"):
            await SqliteStore.open(runtime.tasks, str(path))

    play(scene)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["store"]


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        stores = await asyncio.gather(
            *(SqliteStore.open(runtime.tasks, str(tmp_path / "s")) for _ in range(8))
        )
        outcomes = await asyncio.gather(
            *(store.multi([Create("/a", b"")]) for store in stores), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes if outcome] == [Conflict] * 7
        for store in stores:
            await store.close()

    play(scene)


def test_a_file_that_is_no_store_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(b"this is not a database" * 100)

    async def scene(runtime: Runtime) -> None:
        with pytest.raises(OSError, match=r"cannot open the cluster store .*cluster\.db"):
            await SqliteStore.open(runtime.tasks, str(path))

    play(scene)


def test_a_closed_store_is_unavailable(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await SqliteStore.open(runtime.tasks, str(tmp_path / "s"))
        await store.close()
        await store.close()
        with pytest.raises(Unavailable):
            await store.get("/a")

    play(scene)
