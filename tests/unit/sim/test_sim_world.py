"""One seed, one run: in this process and in any other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from moldau.runtime.ports import Runtime, Stream
from moldau.sim.drive import DiskFaults
from moldau.sim.fabric import Link
from moldau.sim.loop import START_S
from moldau.sim.random import SimRandom
from moldau.sim.world import SimHost, World


def echo(runtime: Runtime) -> None:
    """A server that appends what it gets to a file and sends it back."""
    file = runtime.disk.open("/log", create=True)

    def accept(stream: Stream) -> None:
        buffer = bytearray(4096)

        def serve() -> None:
            try:
                count = stream.recv_into(buffer)
                if not count:
                    stream.close()
                    return
                file.pwrite(buffer[:count], file.size())
                stream.send(buffer[:count])
            except OSError:
                stream.close()

        stream.watch_readable(serve)

    runtime.net.listen("", 9092, accept)


async def talk(runtime: Runtime, server: str) -> None:
    for _ in range(20):
        try:
            stream = await runtime.net.connect(server, 9092, timeout_s=1)
            for _ in range(20):
                stream.send(runtime.random.bytes(1 + runtime.random.randrange(500)))
                await runtime.tasks.sleep(0.005)
            stream.close()
        except OSError:
            await runtime.tasks.sleep(0.1)


def turbulent_run(seed: int) -> str:
    """Two clients, one server, and everything that can go wrong."""
    faults = DiskFaults(write_error_rate=0.01, sync_error_rate=0.1, cold_rate=0.1, short_write_rate=0.1)
    with World(seed, link=Link(reset_rate=0.001, partial_rate=0.3)) as world:
        server = world.host("server", disk=faults, wall_skew_ms=-3000)
        clients = [world.host(f"client-{number}") for number in range(2)]

        async def scenario() -> None:
            echo(server.runtime)
            talking = [
                client.runtime.tasks.spawn(talk(client.runtime, "server"), name="talk") for client in clients
            ]
            random = world.random.fork("scenario")
            for _ in range(6):
                await world.sleep(random.between(0.05, 0.3))
                match random.randrange(3):
                    case 0:
                        world.net.cut("client-0", "server", one_way=random.chance(0.5))
                    case 1:
                        world.net.heal()
                    case 2:
                        server.crash()
                        await world.sleep(random.between(0.0, 0.5))
                        echo(server.restart())
            world.net.heal()
            for task in talking:
                await task

        world.run(scenario())
        return world.digest()


def test_one_seed_gives_one_digest_and_another_seed_another() -> None:
    assert turbulent_run(7) == turbulent_run(7)
    assert turbulent_run(7) != turbulent_run(8)


def test_the_digest_is_the_same_in_other_processes() -> None:
    def elsewhere(hash_seed: str) -> str:
        code = "import test_sim_world; print(test_sim_world.turbulent_run(7))"
        return subprocess.run(
            [sys.executable, "-c", code],
            cwd=os.path.dirname(__file__),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()

    assert elsewhere("1") == elsewhere("2") == turbulent_run(7)


def test_the_trace_tells_what_happened_last() -> None:
    with World(1) as world:
        host = world.host("a")
        host.runtime.disk.open("/log", create=True)
        host.crash()
        assert [line.split()[1:3] for line in world.trace.lines] == [["a", "open"], ["a", "crash"]]


def test_a_fork_does_not_depend_on_what_others_draw() -> None:
    quiet, busy = SimRandom(5), SimRandom(5)
    for _ in range(100):
        busy.random()
        busy.fork("other").random()
    assert quiet.fork("x").bytes(16) == busy.fork("x").bytes(16)
    assert quiet.fork("x").bytes(16) != SimRandom(6).fork("x").bytes(16)


def test_wall_clocks_are_skewed_and_monotonic_ones_are_not() -> None:
    with World(1) as world:
        straight, late = world.host("a"), world.host("b", wall_skew_ms=-5000)
        assert straight.runtime.clock.wall_ms() - late.runtime.clock.wall_ms() == 5000
        assert straight.runtime.clock.monotonic() == late.runtime.clock.monotonic()


def test_a_name_is_given_once() -> None:
    with World(1) as world:
        world.host("a")
        with pytest.raises(ValueError, match="already"):
            world.host("a")


def test_a_paused_process_does_nothing_and_goes_on_with_time_passed() -> None:
    with World(1) as world:
        stopped, other = world.host("stopped"), world.host("other")
        ticks: dict[str, list[float]] = {"stopped": [], "other": []}

        async def tick(host: SimHost) -> None:
            for _ in range(10):
                await host.runtime.tasks.sleep(0.1)
                ticks[host.name].append(round(world.loop.time() - START_S, 1))

        async def scenario() -> None:
            for host in (stopped, other):
                host.runtime.tasks.spawn(tick(host), name="ticks")
            await world.sleep(0.22)
            stopped.pause()
            await world.sleep(1.0)
            assert stopped.is_paused and ticks["stopped"] == [0.1, 0.2]
            stopped.go_on()
            await world.sleep(1.0)

        world.run(scenario())
        assert ticks["stopped"] == [0.1, 0.2, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9]
        assert ticks["other"][-1] == 1.0


def test_a_paused_host_takes_connections_and_bytes_which_its_process_sees_later() -> None:
    with World(1) as world:
        server, client = world.host("server"), world.host("client")
        echo(server.runtime)
        answered_s: list[float] = []

        async def ask() -> None:
            stream = await client.runtime.net.connect("server", 9092, timeout_s=0.1)
            stream.send(b"x")
            stream.watch_readable(lambda: (answered_s.append(world.loop.time()), stream.unwatch_readable()))

        async def scenario() -> None:
            server.pause()
            client.runtime.tasks.spawn(ask(), name="ask")
            await world.sleep(2.0)
            assert not answered_s
            server.go_on()
            await world.sleep(1.0)

        world.run(scenario())
        assert len(answered_s) == 1 and answered_s[0] > START_S + 2.0


def test_a_process_that_is_killed_in_a_pause_never_goes_on() -> None:
    with World(1) as world:
        host = world.host("host")
        ran: list[int] = []

        async def scenario() -> None:
            host.runtime.tasks.call_later(0.1, ran.append, 1)
            host.pause()
            await world.sleep(0.5)
            host.kill()
            host.go_on()
            host.restart().tasks.call_later(0.1, ran.append, 2)
            await world.sleep(0.5)

        world.run(scenario())
        assert ran == [2]


def test_a_delayed_path_is_slow_in_that_direction_until_it_is_healed() -> None:
    with World(1, link=Link(delay_s=(0.001, 0.001), partial_rate=0.0)) as world:
        world.host("a"), world.host("b")
        world.net.delay("a", "b", 0.5)
        assert world.net.delay_s("a", "b") > 0.5 > world.net.delay_s("b", "a")
        world.net.heal("b", "a")
        assert world.net.delay_s("a", "b") < 0.5
