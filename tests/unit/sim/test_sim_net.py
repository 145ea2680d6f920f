"""Faults of the simulated network look like what TCP makes of real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from moldau.runtime.ports import Stream
from moldau.sim.fabric import Link
from moldau.sim.world import SimHost, World


class Connection:
    """One connection from host `a` to host `b`, and what has arrived at either end."""

    def __init__(self, world: World, **link: Any) -> None:
        self.world = world
        self.a = world.host("a")
        self.b = world.host("b")
        world.net.set_link("a", "b", Link(**link))
        self.client: Stream
        self.server: Stream

    async def open(self) -> None:
        accepted: asyncio.Future[Stream] = self.world.loop.create_future()
        self.b.runtime.net.listen("", 9092, accepted.set_result)
        self.client = await connect(self.a, "b")
        self.server = await accepted


async def connect(host: SimHost, target: str, *, port: int = 9092, timeout_s: float = 5) -> Stream:
    connecting = host.runtime.net.connect(target, port, timeout_s=timeout_s)
    return await host.runtime.tasks.spawn(connecting, name="connect")


def drain(stream: Stream) -> bytes:
    received = bytearray()
    buffer = bytearray(100_000)
    try:
        while count := stream.recv_into(buffer):
            received += buffer[:count]
    except BlockingIOError:
        pass
    return bytes(received)


Scenario = Callable[[Connection], Coroutine[Any, Any, None]]


@pytest.fixture(params=range(3))
def play(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    with World(seed=request.param) as world:

        def run(scenario: Scenario, **link: Any) -> None:
            connection = Connection(world, **link)

            async def whole() -> None:
                await connection.open()
                await scenario(connection)

            world.run(whole())

        yield run


def test_bytes_wait_at_a_cut_path_until_it_is_healed(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.cut("a", "b")
        assert c.client.send(b"hello") == 5
        await asyncio.sleep(60)
        assert drain(c.server) == b""
        c.world.net.heal("a", "b")
        await asyncio.sleep(1)
        assert drain(c.server) == b"hello"

    play(scenario, partial_rate=0)


def test_a_path_that_is_cut_one_way_still_carries_the_other(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.cut("a", "b", one_way=True)
        c.client.send(b"lost")
        c.server.send(b"heard")
        await asyncio.sleep(10)
        assert drain(c.server) == b""
        assert drain(c.client) == b"heard"
        c.world.net.heal()
        await asyncio.sleep(1)
        assert drain(c.server) == b"lost"

    play(scenario, partial_rate=0)


def test_without_acknowledgements_the_senders_buffer_stays_full(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.cut("b", "a", one_way=True)
        assert c.client.send(bytes(2000)) == 1000
        await asyncio.sleep(1)
        assert len(drain(c.server)) == 1000
        with pytest.raises(BlockingIOError):
            c.client.send(b"x")
        c.world.net.heal()
        await asyncio.sleep(1)
        assert c.client.send(b"x") == 1

    play(scenario, partial_rate=0, buffer_bytes=1000)


def test_a_connection_times_out_after_a_long_cut(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.cut("a", "b")
        c.client.send(b"hello")
        await asyncio.sleep(61)
        with pytest.raises(TimeoutError):
            c.client.recv_into(bytearray(1))

    play(scenario, give_up_s=60.0)


def test_connecting_through_a_cut_times_out_or_waits_for_the_healing(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.cut("a", "b", one_way=True)
        with pytest.raises(TimeoutError):
            await connect(c.a, "b", timeout_s=3)
        with pytest.raises(TimeoutError):
            await connect(c.a, c.b.address, timeout_s=3)
        c.world.loop.call_later(5, c.world.net.heal)
        (await connect(c.a, "b", timeout_s=30)).close()

    play(scenario)


def test_a_reset_is_told_once_to_both_ends(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.world.net.reset("a", "b")
        for stream in (c.client, c.server):
            with pytest.raises(ConnectionResetError):
                stream.recv_into(bytearray(1))
            assert stream.recv_into(bytearray(1)) == 0
            with pytest.raises(BrokenPipeError):
                stream.send(b"x")

    play(scenario)


def test_resets_by_rate_end_a_connection_in_the_middle(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        with pytest.raises(ConnectionResetError):
            for _ in range(1000):
                c.client.send(b"x")
                await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            drain(c.server)
            drain(c.server)

    play(scenario, reset_rate=0.05)


def test_a_slow_reader_holds_its_writer_at_the_buffers_size(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        sent = 0
        with pytest.raises(BlockingIOError):
            while True:
                sent += c.client.send(bytes(300))
        assert sent == 1000
        woken = asyncio.Event()
        c.client.watch_writable(woken.set)
        await asyncio.sleep(10)
        assert not woken.is_set()
        assert len(drain(c.server)) == 1000
        await woken.wait()
        c.client.unwatch_writable()

    play(scenario, partial_rate=0, buffer_bytes=1000)


def test_order_is_kept_however_the_parts_fall(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        data = bytes(range(256)) * 40
        received = bytearray()
        position = 0
        while len(received) < len(data):
            if position < len(data):
                try:
                    position += c.client.send(data[position : position + 100])
                except BlockingIOError:
                    pass
            await asyncio.sleep(0.0005)
            received += drain(c.server)
        assert received == data

    play(scenario, partial_rate=0.5, buffer_bytes=300, delay_s=(0.0, 0.01))


def test_a_host_without_power_is_silent_and_resets_old_connections_when_it_is_back(
    play: Callable[..., None],
) -> None:
    async def scenario(c: Connection) -> None:
        c.b.crash()
        c.client.send(b"anybody?")
        await asyncio.sleep(30)
        with pytest.raises(BlockingIOError):
            c.client.recv_into(bytearray(1))
        with pytest.raises(TimeoutError):
            await connect(c.a, "b", timeout_s=3)
        c.b.restart()
        await asyncio.sleep(1)
        with pytest.raises(ConnectionResetError):
            c.client.recv_into(bytearray(1))
        with pytest.raises(ConnectionRefusedError):
            await connect(c.a, "b")

    play(scenario)


def test_a_killed_process_closes_its_connections_and_frees_its_port(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.server.send(b"last words")
        c.b.kill()
        await asyncio.sleep(1)
        assert drain(c.client) == b"last words"
        assert c.client.recv_into(bytearray(1)) == 0
        with pytest.raises(ConnectionRefusedError):
            await connect(c.a, "b")
        c.b.restart().net.listen("", 9092, lambda stream: None)
        (await connect(c.a, "b")).close()

    play(scenario, partial_rate=0)


def test_connections_that_are_over_are_forgotten(play: Callable[..., None]) -> None:
    async def scenario(c: Connection) -> None:
        c.b.runtime.net.listen("", 9093, lambda stream: stream.close())
        for _ in range(50):
            stream = await connect(c.a, "b", port=9093)
            stream.send(b"to nobody")
            stream.close()
        await asyncio.sleep(10)
        assert list(c.a.station.streams) == [c.client]
        assert list(c.b.station.streams) == [c.server]
        assert len(c.world.net._pipes) == 2

    play(scenario)


def test_a_listener_on_the_loopback_is_not_seen_by_others() -> None:
    with World(seed=1) as world:
        world.host("a")
        b = world.host("b")

        async def scenario() -> None:
            b.runtime.net.listen("127.0.0.1", 9092, lambda stream: None)
            with pytest.raises(ConnectionRefusedError):
                await connect(world.hosts["a"], "b")
            (await connect(b, "localhost")).close()

        world.run(scenario())
