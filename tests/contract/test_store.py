"""What every cluster store guarantees: one suite over SQLite and the one in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from moldau.runtime.real.tasks import RealTasks
from moldau.store.memory import MemoryStore, Tree
from moldau.store.port import Check, Conflict, Create, Delete, Entry, Put, Store, quoted, unquoted
from moldau.store.sqlite import SqliteStore


class Engine:
    """Opens the same store again and again, as restarts do."""

    def __init__(self, open_store: Callable[[RealTasks], Awaitable[Store]]) -> None:
        self._open = open_store

    def run(self, *scenes: Callable[[Store], Awaitable[None]]) -> None:
        """Each scene gets the store newly opened."""
        for scene in scenes:
            asyncio.run(self._play(scene))

    async def _play(self, scene: Callable[[Store], Awaitable[None]]) -> None:
        tasks = RealTasks(asyncio.get_running_loop())
        store = await self._open(tasks)
        try:
            await scene(store)
        finally:
            await store.close()
            tasks.close()


@pytest.fixture(params=["memory", "sqlite"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    tree = Tree()

    async def memory(tasks: RealTasks) -> Store:
        return MemoryStore(tree, tasks)

    async def sqlite(tasks: RealTasks) -> Store:
        return await SqliteStore.open(tasks, str(tmp_path / "cluster.db"))

    yield Engine({"memory": memory, "sqlite": sqlite}[request.param])


def test_what_was_written_is_there_after_a_restart(engine: Engine) -> None:
    async def write(store: Store) -> None:
        await store.multi([Create("/a", b"one"), Create("/a/b", b"")])
        await store.multi([Put("/a", b"two", 0)])

    async def read(store: Store) -> None:
        assert await store.get("/a") == Entry("/a", b"two", 1)
        assert await store.get("/a/b") == Entry("/a/b", b"", 0)
        assert await store.get("/absent") is None

    engine.run(write, read)


def test_children_are_the_entries_directly_below_in_order(engine: Engine) -> None:
    async def scene(store: Store) -> None:
        names = ("/t/b", "/t/a", "/t/a/deeper", "/tt/x", "/t")
        await store.multi([Create(name, name.encode()) for name in names])
        assert [entry.path for entry in await store.children("/t")] == ["/t/a", "/t/b"]
        assert [entry.value for entry in await store.children("/tt")] == [b"/tt/x"]
        assert await store.children("/none") == []

    engine.run(scene)


@pytest.mark.parametrize(
    "failing",
    [
        Create("/a", b"x"),
        Put("/a", b"x", 7),
        Put("/absent", b"x"),
        Delete("/a", 7),
        Delete("/absent"),
        Check("/a", 7),
    ],
    ids=str,
)
def test_a_condition_that_does_not_hold_changes_nothing(engine: Engine, failing: object) -> None:
    async def scene(store: Store) -> None:
        await store.multi([Create("/a", b"one")])
        with pytest.raises(Conflict) as conflict:
            await store.multi([Create("/b", b""), Put("/a", b"two", 0), failing, Create("/c", b"")])  # type: ignore[list-item]
        assert conflict.value.path in ("/a", "/absent")
        assert await store.get("/a") == Entry("/a", b"one", 0)
        assert await store.get("/b") is None
        assert await store.get("/c") is None

    engine.run(scene)


def test_a_check_guards_the_others_and_leaves_the_version_alone(engine: Engine) -> None:
    async def scene(store: Store) -> None:
        await store.multi([Create("/guard", b""), Create("/a", b"one")])
        await store.multi([Check("/guard", 0), Put("/a", b"two", 0)])
        assert await store.get("/guard") == Entry("/guard", b"", 0)
        assert await store.get("/a") == Entry("/a", b"two", 1)

    engine.run(scene)


def test_any_version_will_do_where_none_is_asked_for(engine: Engine) -> None:
    async def scene(store: Store) -> None:
        await store.multi([Create("/a", b"1")])
        await store.multi([Put("/a", b"2"), Put("/a", b"3")])
        assert await store.get("/a") == Entry("/a", b"3", 2)
        await store.multi([Delete("/a")])
        assert await store.get("/a") is None

    engine.run(scene)


def test_a_path_that_is_created_again_begins_at_version_0(engine: Engine) -> None:
    async def scene(store: Store) -> None:
        await store.multi([Create("/a", b"1")])
        await store.multi([Put("/a", b"2", 0)])
        await store.multi([Delete("/a", 1), Create("/a", b"3")])
        assert await store.get("/a") == Entry("/a", b"3", 0)

    engine.run(scene)


def test_of_many_who_read_and_put_at_once_exactly_one_wins_each_round(engine: Engine) -> None:
    async def scene(store: Store) -> None:
        await store.multi([Create("/counter", b"0")])

        async def attempt() -> bool:
            entry = await store.get("/counter")
            assert entry is not None
            try:
                await store.multi([Put("/counter", str(int(entry.value) + 1).encode(), entry.version)])
            except Conflict:
                return False
            return True

        won = sum(await asyncio.gather(*(attempt() for _ in range(20))))
        entry = await store.get("/counter")
        assert entry is not None
        assert won == int(entry.value) == entry.version >= 1

    engine.run(scene)


@pytest.mark.parametrize("name", ["plain", "a.b_c-1", "with/slash", "100%", "ünïcode", "", " "])
def test_any_name_can_be_part_of_a_path(engine: Engine, name: str) -> None:
    async def scene(store: Store) -> None:
        path = f"/groups/{quoted(name)}"
        await store.multi([Create(path, b"")])
        (entry,) = await store.children("/groups")
        assert entry.name == name

    assert unquoted(quoted(name)) == name
    assert "/" not in quoted(name)
    engine.run(scene)


def test_a_file_that_is_no_store_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "cluster.db"
    path.write_bytes(b"this is not a database" * 100)

    async def scene() -> None:
        tasks = RealTasks(asyncio.get_running_loop())
        try:
            with pytest.raises(OSError, match=r"cannot open the cluster store .*cluster\.db"):
                await SqliteStore.open(tasks, str(path))
        finally:
            tasks.close()

    asyncio.run(scene())


def test_two_processes_may_have_the_same_file_open(tmp_path: Path) -> None:
    async def scene() -> None:
        tasks = RealTasks(asyncio.get_running_loop())
        one = await SqliteStore.open(tasks, str(tmp_path / "cluster.db"))
        two = await SqliteStore.open(tasks, str(tmp_path / "cluster.db"))
        await one.multi([Create("/a", b"1")])
        assert await two.get("/a") == Entry("/a", b"1", 0)
        with pytest.raises(Conflict):
            await two.multi([Create("/a", b"2")])
        await one.close()
        await two.close()
        tasks.close()

    asyncio.run(scene())
