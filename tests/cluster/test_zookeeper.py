"""The cluster store on a real ZooKeeper ensemble whose nodes are killed and stopped, and the command that starts
one.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import SessionExpiredError, SessionMovedError

from contract.ensembles import running_ensemble
from moldau.cli.zookeeper_ensemble import Ensemble
from moldau.runtime.ports import Runtime
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime
from moldau.runtime.real.free_ports import free_port
from moldau.store.open import open_store
from moldau.store.port import (
    MULTI_OPERATIONS_MAX,
    Conflict,
    Create,
    Entry,
    Put,
    SessionEnded,
    Store,
    Unavailable,
    Unknown,
)

from .support import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]

SESSION_S = 3.0
PATIENCE_S = 60.0
CLI = [sys.executable, "-c", "from moldau.cli import main; main()"]
MEMBER = """
import asyncio, json, sys
from moldau.runtime.real import run
from moldau.store.open import open_store
from moldau.store.port import Create, Put, SessionEnded, Unavailable, Unknown

def say(event):
    print(json.dumps(event), flush=True)

async def main(runtime):
    store = await open_store(sys.argv[1], runtime, 2.0)
    ended = asyncio.Event()
    await store.begin_session(lambda: (say("ended"), ended.set()))
    await store.multi([Create("/live/1", b"", ephemeral=True)])
    say("ready")
    while not ended.is_set():
        try:
            await store.multi([Put("/state", b"member")])
        except (SessionEnded, Unavailable, Unknown):
            pass
        await runtime.tasks.sleep(0.002)
    say("stopped writing")
    await runtime.tasks.sleep(60)

run(main)
"""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


@pytest.fixture
def ensemble(shared: Ensemble) -> Iterator[Ensemble]:
    """With all of its nodes, before and after."""
    yield shared
    for node in shared.nodes:
        node.signal(signal.SIGCONT)
        if node.has_ended:
            node.launch()
    for node in shared.nodes:
        shared.wait_until_serving(node)


def fresh(ensemble: Ensemble) -> str:
    return f"{ensemble.url}/{uuid.uuid4().hex}"


def play(scene: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        runtime = real_runtime()
        try:
            async with asyncio.timeout(4 * PATIENCE_S):
                await scene(runtime)
        finally:
            close_runtime(runtime)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())


async def read(runtime: Runtime, store: Store, path: str) -> Entry | None:
    """As soon as the store can be read again."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await store.get(path)
        except Unavailable:
            assert time.monotonic() < deadline_s, "the store does not come back"
            await runtime.tasks.sleep(0.02)


async def raise_counter(runtime: Runtime, store: Store, mark: str) -> int:
    """One step, whatever it takes; how often its outcome was unknown. The mark says whether a step was done."""
    unknown = 0
    while True:
        entry = await read(runtime, store, "/counter")
        assert entry is not None
        if json.loads(entry.value)["mark"] == mark:
            return unknown
        value = {"count": json.loads(entry.value)["count"] + 1, "mark": mark}
        try:
            await store.multi([Put("/counter", json.dumps(value).encode(), entry.version)])
            return unknown
        except Unknown:
            unknown += 1
        except Unavailable:
            await runtime.tasks.sleep(0.02)


def kill(ensemble: Ensemble) -> None:
    ensemble.leader().kill()


def stop(ensemble: Ensemble) -> None:
    ensemble.leader().signal(signal.SIGSTOP)


@pytest.mark.parametrize("hurt", [kill, stop])
def test_every_step_counts_once_while_the_leader_is_lost(
    ensemble: Ensemble, hurt: Callable[[Ensemble], None]
) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await open_store(fresh(ensemble), runtime, SESSION_S)
        await store.begin_session(lambda: None)
        await store.multi([Create("/counter", b'{"count": 0, "mark": ""}')])
        hurting = None
        for number in range(400):
            if number == 100:
                hurting = runtime.tasks.in_thread(hurt, ensemble)
            await raise_counter(runtime, store, f"step {number}")
        assert hurting is not None
        await hurting
        await raise_counter(runtime, store, "last")
        entry = await read(runtime, store, "/counter")
        assert entry is not None
        assert json.loads(entry.value) == {"count": 401, "mark": "last"}
        assert entry.version == 401
        await store.close()

    play(scene)


def test_a_session_and_its_entries_outlive_the_leader(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        url = fresh(ensemble)
        one, two = await open_store(url, runtime, 10.0), await open_store(url, runtime, 10.0)
        await one.begin_session(lambda: pytest.fail("the session is alive"))
        await one.multi([Create("/live/1", b"", ephemeral=True)])
        calls: list[int] = []
        two.watch("/live", lambda: calls.append(1))
        await runtime.tasks.sleep(0.3)
        await runtime.tasks.in_thread(kill, ensemble)
        before = len(calls)
        assert await read(runtime, two, "/live/1") == Entry("/live/1", b"", 0)
        for number in range(100):
            try:
                await one.multi([Create(f"/live/x{number}", b"", ephemeral=True)])
                break
            except (Unavailable, Unknown):
                await runtime.tasks.sleep(0.1)
        for _ in range(500):
            if len(calls) > before:
                break
            await runtime.tasks.sleep(0.02)
        assert len(calls) > before
        await one.close()
        await two.close()

    play(scene)


def test_with_the_whole_ensemble_gone_nothing_hangs_and_everything_comes_back(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await open_store(fresh(ensemble), runtime, SESSION_S)
        await store.multi([Create("/a", b"")])
        ended: list[int] = []
        await store.begin_session(lambda: ended.append(1))
        changed = asyncio.Event()
        store.watch("/a", changed.set)
        await runtime.tasks.sleep(0.3)
        for node in ensemble.nodes:
            node.signal(signal.SIGSTOP)
        with pytest.raises((Unknown, Unavailable)):
            async with asyncio.timeout(4 * SESSION_S):
                await store.multi([Put("/a", b"1")])
        with pytest.raises(Unavailable):
            async with asyncio.timeout(4 * SESSION_S):
                await store.get("/a")
        changed.clear()
        for node in ensemble.nodes:
            node.signal(signal.SIGCONT)
        assert await read(runtime, store, "/a") is not None
        await asyncio.wait_for(changed.wait(), PATIENCE_S)
        if store.session_id is None:
            assert ended == [1]
            await store.begin_session(lambda: None)
        await store.close()

    play(scene)


def test_who_is_cut_off_learns_of_the_end_of_its_session_without_a_word_from_the_ensemble(
    ensemble: Ensemble,
) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await open_store(fresh(ensemble), runtime, SESSION_S)
        ended = asyncio.Event()
        await store.begin_session(ended.set)
        for node in ensemble.nodes:
            node.signal(signal.SIGSTOP)
        await asyncio.wait_for(ended.wait(), 4 * SESSION_S)
        assert store.session_id is None
        for node in ensemble.nodes:
            node.signal(signal.SIGCONT)
        await read(runtime, store, "/a")
        await store.begin_session(lambda: None)
        await store.close()

    play(scene)


@contextmanager
def member(url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", MEMBER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert heard(process) == "ready"
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def heard(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_a_stopped_process_loses_its_session_and_writes_nothing_when_it_wakes(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        url = fresh(ensemble)
        store = await open_store(url, runtime, SESSION_S)
        await store.multi([Create("/state", b"")])
        with member(url) as process:
            await runtime.tasks.sleep(0.3)
            process.send_signal(signal.SIGSTOP)
            await runtime.tasks.sleep(0.3)
            while await read(runtime, store, "/live/1") is not None:
                await runtime.tasks.sleep(0.05)
            state = await read(runtime, store, "/state")
            assert state is not None and state.version > 0
            process.send_signal(signal.SIGCONT)
            assert await runtime.tasks.in_thread(heard, process) == "ended"
            assert await runtime.tasks.in_thread(heard, process) == "stopped writing"
            assert await read(runtime, store, "/state") == state
        await store.close()

    play(scene)


def test_an_old_session_writes_nothing_in_the_name_of_the_next(ensemble: Ensemble) -> None:
    """A client that is kept after its session, as by code that has not heard of the end yet."""

    async def scene(runtime: Runtime) -> None:
        from contract.stores import expire_session

        url = fresh(ensemble)
        store: Any = await open_store(url, runtime, SESSION_S)
        await store.multi([Create("/a", b"")])
        await store.begin_session(lambda: None)
        old = store._client
        await runtime.tasks.in_thread(expire_session, store)
        while store.session_id is not None:
            await runtime.tasks.sleep(0.02)
        session_id = None
        while session_id is None:
            try:
                session_id = await store.begin_session(lambda: None)
            except Unavailable:
                await runtime.tasks.sleep(0.02)
        with pytest.raises((SessionEnded, Unavailable)):
            await store._write(old, "the old one", lambda: old.set_async(store._node("/a"), b"late"))
        assert await read(runtime, store, "/a") == Entry("/a", b"", 0)
        assert store.session_id == session_id
        await store.close()

    play(scene)


def test_a_session_that_is_over_although_its_connection_lives_ends_when_a_server_says_so(
    ensemble: Ensemble,
) -> None:
    """A server that takes a connection while its session is being closed keeps it, and answers its pings."""

    async def scene(runtime: Runtime) -> None:
        store: Any = await open_store(fresh(ensemble), runtime, SESSION_S)
        ended = asyncio.Event()
        first = await store.begin_session(ended.set)
        client = store._client

        def refuse(_path: str) -> Any:
            result = client.handler.async_result()
            result.set_exception(SessionExpiredError())
            return result

        client.sync_async = refuse
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        await ended.wait()
        await store._is_ready.wait()
        assert await store.begin_session(lambda: None) != first
        await store.multi([Create("/live", b"", ephemeral=True)])

        again = asyncio.Event()
        store._on_end = again.set
        old = store._client
        with pytest.raises(SessionEnded):
            await store._write(old, store.session_id, lambda: refuse(""))
        await again.wait()
        await store._is_ready.wait()
        assert store._client is not old
        await store.close()

    play(scene)


def test_a_server_that_answers_pings_only_is_left_for_another(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        store: Any = await open_store(fresh(ensemble), runtime, SESSION_S)
        ended = asyncio.Event()
        await store.begin_session(ended.set)
        client = store._client
        client.sync_async = lambda _path: client.handler.async_result()
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        await ended.wait()
        await store._is_ready.wait()
        assert store._client is not client
        await store.begin_session(lambda: None)
        await store.close()

    play(scene)


def test_what_a_server_refuses_to_a_new_connection_is_asked_for_again(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        store: Any = await open_store(fresh(ensemble), runtime, SESSION_S)
        client = store._client
        sync, refusals = client.sync_async, []

        def refuse(path: str) -> Any:
            if refusals:
                return sync(path)
            refusals.append(path)
            result = client.handler.async_result()
            result.set_exception(SessionMovedError())
            return result

        client.sync_async = refuse
        client._connection._socket.shutdown(socket.SHUT_RDWR)
        while not refusals:
            await runtime.tasks.sleep(0.02)
        await store._is_ready.wait()
        assert store._client is client
        await store.close()

    play(scene)


def test_entries_of_a_user_are_closed_to_others(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        root = uuid.uuid4().hex
        ours = await open_store(f"zookeeper:me:secret@{ensemble.hosts}/{root}", runtime, SESSION_S)
        await ours.multi([Create("/a", b"1"), Create("/b/c", b"")])
        await ours.multi([Put("/a", b"2", 0)])
        again = await open_store(f"zookeeper:me:secret@{ensemble.hosts}/{root}", runtime, SESSION_S)
        assert await again.get("/a") == Entry("/a", b"2", 1)
        for url in (f"{ensemble.url}/{root}", f"zookeeper:me:wrong@{ensemble.hosts}/{root}"):
            other = await open_store(url, runtime, SESSION_S)
            with pytest.raises(Unavailable, match="NoAuth"):
                await other.get("/a")
            with pytest.raises(Unavailable, match="NoAuth"):
                await other.multi([Put("/a", b"3")])
            with pytest.raises(Unavailable, match="NoAuth"):
                await other.multi([Create("/b/d", b"")])
            await other.close()
        await again.close()
        await ours.close()

    play(scene)


def test_ten_thousand_entries_are_read_in_seconds(ensemble: Ensemble) -> None:
    async def scene(runtime: Runtime) -> None:
        store = await open_store(fresh(ensemble), runtime, SESSION_S)
        paths = [f"/partitions/{number:05}" for number in range(10_000)]
        for first in range(0, len(paths), MULTI_OPERATIONS_MAX):
            part = paths[first : first + MULTI_OPERATIONS_MAX]
            await store.multi([Create(path, b"x" * 200) for path in part])
        begun_s = time.monotonic()
        entries = await store.children("/partitions")
        took_s = time.monotonic() - begun_s
        assert [entry.path for entry in entries] == paths
        assert took_s < 5, f"{took_s:.1f} s; about 0.2 s on a quiet machine"
        await store.close()

    play(scene)


def test_where_nobody_listens_the_reason_is_told(tmp_path: Path) -> None:
    async def scene(runtime: Runtime) -> None:
        from moldau.store.zookeeper import ZookeeperStore
        from moldau.store.zookeeper_url import parse

        with pytest.raises(Unavailable, match="no ZooKeeper server at 127"):
            await ZookeeperStore.open(runtime.tasks, parse(f"127.0.0.1:{free_port()}"), timeout_s=1.0)

    play(scene)


def test_tls_with_certificates_of_our_own(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    settings: dict[str, object] = {
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPort": free_port(),
        "ssl.keyStore.location": tmp_path / "server.pem",
        "ssl.trustStore.location": tmp_path / "ca.pem",
        "ssl.clientAuth": "need",
    }
    with running_ensemble(tmp_path / "zookeeper", nodes=1, settings=settings):

        async def scene(runtime: Runtime) -> None:
            server = f"zookeeper:127.0.0.1:{settings['secureClientPort']}/tls"
            files = f"ca={tmp_path}/ca.pem&cert={tmp_path}/client.crt&key={tmp_path}/client.key"
            store = await open_store(f"{server}?{files}", runtime, SESSION_S)
            await store.multi([Create(f"/{number}", b"x" * 20_000) for number in range(20)])
            assert len((await store.get("/7") or Entry("", b"", 0)).value) == 20_000
            await store.close()

        play(scene)


def make_certificates(folder: Path) -> None:
    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    key = ("-newkey", "rsa:2048", "-nodes")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca", "-days", "2")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl("req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signing, "-extfile", "names")
        openssl("pkcs8", "-topk8", "-nocrypt", "-in", f"{name}.key", "-out", f"{name}.pk8")
        (folder / f"{name}.pem").write_text(
            (folder / f"{name}.pk8").read_text() + (folder / f"{name}.crt").read_text()
        )


def test_the_command_runs_an_ensemble_until_it_is_asked_to_end(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*CLI, "zookeeper", "up", "--port", "0", "--data", str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        kind, _, url = process.stdout.readline().strip().partition(": ")
        assert kind == "ready", process.stderr.read()
        pids = [int(process.stderr.readline().split("process ")[1].split(",")[0]) for _ in range(3)]
        assert url.startswith("zookeeper:127.0.0.1:")

        async def scene(runtime: Runtime) -> None:
            store = await open_store(url, runtime, SESSION_S)
            await store.multi([Create("/a", b"")])
            with pytest.raises(Conflict):
                await store.multi([Create("/a", b"")])
            await store.close()

        play(scene)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        for pid in pids:
            wait_until(lambda: not os.path.exists(f"/proc/{pid}"), what="the nodes to end")  # noqa: B023
    finally:
        process.kill()
        process.communicate()


def test_the_command_says_which_port_is_taken(tmp_path: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*CLI, "zookeeper", "up", "--port", str(port), "--data", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 5
    assert f"Port {port} is taken." in done.stderr
    assert "--port" in done.stderr
