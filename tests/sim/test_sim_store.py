"""The simulated store as a host: cut off, crashed, with answers that get lost, and the same for one seed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from moldau.sim.fabric import Link
from moldau.sim.store_client import SimStore
from moldau.sim.store_host import PORT, StoreHost, StoreTree
from moldau.sim.store_wire import Talk
from moldau.sim.world import SimHost, World
from moldau.store.port import Check, Conflict, Create, Put, SessionEnded, Unavailable, Unknown

T = TypeVar("T")
TIMEOUT_S = 6.0


class Setting:
    def __init__(self, seed: int) -> None:
        self.world = World(seed, link=Link(partial_rate=0.1))
        self.tree = StoreTree()
        self.store_host = self.world.host("store")
        self.server = StoreHost(self.store_host.runtime, self.tree)

    async def open(self, name: str) -> tuple[SimHost, SimStore]:
        host = self.world.host(name)
        store = await self.on(host, SimStore.open(host.runtime, "store", session_timeout_s=TIMEOUT_S))
        return host, store

    async def on(self, host: SimHost, work: Coroutine[Any, Any, T]) -> T:
        return await host.runtime.tasks.spawn(work, name="scene")

    def restart_store(self) -> None:
        self.store_host.restart()
        self.server = StoreHost(self.store_host.runtime, self.tree)

    async def until_connected(self, store: SimStore) -> None:
        await asyncio.wait_for(store._connected.wait(), 60)


def test_whoever_is_cut_off_loses_its_session_and_learns_it_when_it_is_back() -> None:
    setting = Setting(1)

    async def scene() -> None:
        (_, owner), (_, other) = await setting.open("a"), await setting.open("b")
        ended: list[float] = []
        await owner.begin_session(lambda: ended.append(setting.world.loop.time()))
        await owner.multi([Create("/live/a", b"", ephemeral=True)])
        setting.world.net.cut("a", "store")
        cut_s = setting.world.loop.time()
        with pytest.raises(Unknown):
            await owner.multi([Create("/x", b"")])
        with pytest.raises(Unavailable):
            await owner.multi([Create("/x", b"")])
        with pytest.raises(Unavailable):
            await owner.get("/x")
        while await other.get("/live/a") is not None:
            await setting.world.sleep(0.1)
        assert TIMEOUT_S * 0.6 < setting.world.loop.time() - cut_s < TIMEOUT_S * 1.2
        assert not ended
        setting.world.net.heal("a", "store")
        await setting.until_connected(owner)
        assert len(ended) == 1
        assert owner.session_id is None

    setting.world.run(scene())
    assert not setting.world.failures
    setting.world.close()


def test_a_session_outlives_a_short_cut_and_a_crash_of_the_store() -> None:
    setting = Setting(2)

    async def scene() -> None:
        _, owner = await setting.open("a")
        await owner.begin_session(lambda: pytest.fail("it is alive"))
        await owner.multi([Create("/live/a", b"", ephemeral=True)])
        setting.world.net.cut("a", "store")
        await setting.world.sleep(TIMEOUT_S / 2)
        setting.world.net.heal("a", "store")
        await setting.world.sleep(TIMEOUT_S * 2)
        setting.store_host.crash()
        await setting.world.sleep(TIMEOUT_S * 2)
        setting.restart_store()
        await setting.world.sleep(TIMEOUT_S)
        await owner.multi([Check("/live/a", 0)])

    setting.world.run(scene())
    assert not setting.world.failures
    setting.world.close()


def test_a_reconnect_calls_every_watch() -> None:
    setting = Setting(3)

    async def scene() -> None:
        (_, writer), (_, reader) = await setting.open("a"), await setting.open("b")
        calls = asyncio.Event()
        reader.watch("/n", calls.set)
        await setting.world.sleep(1.0)
        setting.world.net.cut("b", "store")
        await setting.world.sleep(TIMEOUT_S * 2)
        await writer.multi([Create("/n", b"")])
        calls.clear()
        setting.world.net.heal("b", "store")
        await asyncio.wait_for(calls.wait(), 30)
        entry = await reader.get("/n")
        assert entry is not None

    setting.world.run(scene())
    setting.world.close()


@pytest.mark.parametrize("seed", range(40))
def test_what_is_unknown_is_found_out_by_a_mark_and_never_done_later(seed: int) -> None:
    """A counter that several raise under cuts, resets and crashes of the store: each step counts once."""
    setting = Setting(seed)
    world = setting.world
    random = world.random.fork("scene")

    async def disturb(names: list[str]) -> None:
        for _ in range(15):
            await world.sleep(random.between(0.0, 1.5))
            name = names[random.randrange(len(names))]
            match random.randrange(4):
                case 0:
                    world.net.cut(name, "store", one_way=random.chance(0.5))
                    await world.sleep(random.between(0.0, TIMEOUT_S))
                    world.net.heal()
                case 1:
                    world.net.reset(name, "store")
                case 2:
                    setting.store_host.crash()
                    await world.sleep(random.between(0.0, 1.0))
                    setting.restart_store()
                case _:
                    setting.server.expire(next(iter(setting.tree.sessions), ""))

    async def step(store: SimStore, mark: bytes) -> bool:
        entry = await store.get("/counter")
        assert entry is not None
        value = b"%d %s" % (int(entry.value.split()[0]) + 1, mark)
        try:
            await store.multi([Put("/counter", value, entry.version), Create(f"/marks/{mark.decode()}", b"")])
            return True
        except Conflict:
            return False
        except SessionEnded:
            return False

    async def found(store: SimStore, mark: bytes) -> bool:
        while True:
            try:
                return await store.get(f"/marks/{mark.decode()}") is not None
            except Unavailable:
                await world.sleep(0.1)

    async def climb(store: SimStore, name: str) -> int:
        done = 0
        for attempt in range(40):
            mark = f"{name}-{attempt}".encode()
            try:
                if store.session_id is None:
                    await store.begin_session(lambda: None)
                done += await step(store, mark)
            except Unknown:
                done += await found(store, mark)
            except Unavailable:
                await world.sleep(0.1)
            await world.sleep(random.between(0.0, 0.5))
        return done

    async def scene() -> None:
        names = ["a", "b", "c"]
        members = [await setting.open(name) for name in names]
        await members[0][1].multi([Create("/counter", b"0 none")])
        climbing = [
            host.runtime.tasks.spawn(climb(store, host.name), name=host.name) for host, store in members
        ]
        await disturb(names)
        done = [await task for task in climbing]
        await world.sleep(30.0)
        assert int(setting.tree.entries["/counter"].value.split()[0]) == sum(done)
        assert sum(done) > 5

    world.run(scene())
    assert not world.failures
    world.close()


def test_what_a_former_connection_still_brings_is_dropped() -> None:
    setting = Setting(5)

    async def scene() -> None:
        host = setting.world.host("a")
        answers: list[object] = []

        async def connect() -> Talk:
            stream = await host.runtime.net.connect("store", PORT, timeout_s=1.0)
            return Talk(stream, answers.append, lambda: None)

        old, new = await setting.on(host, connect()), await setting.on(host, connect())
        old.send((1, "hello", ("me", None)))
        await setting.world.sleep(0.1)
        new.send((1, "hello", ("me", None)))
        await setting.world.sleep(0.1)
        old.send((2, "multi", ([Create("/late", b"")], None)))
        new.send((2, "multi", ([Create("/new", b"")], None)))
        await setting.world.sleep(0.1)
        assert list(setting.tree.entries) == ["/new"]
        assert len(answers) == 3

    setting.world.run(scene())
    setting.world.close()


def test_one_seed_is_one_story() -> None:
    def digest() -> str:
        setting = Setting(7)

        async def scene() -> None:
            _, one = await setting.open("a")
            _, two = await setting.open("b")
            for store in (one, two):
                await store.begin_session(lambda: None)
            first = await one.stand("/election", b"a")
            second = await two.stand("/election", b"b")
            await first.won()
            setting.world.net.cut("a", "store")
            await second.won()

        setting.world.run(scene())
        digest = setting.world.digest()
        setting.world.close()
        return digest

    assert digest() == digest()
