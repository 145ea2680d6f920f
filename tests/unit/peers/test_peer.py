"""Peer and Peers: connections that are made when they are needed, again and again but not too often."""

from __future__ import annotations

import gc
from itertools import pairwise

import pytest

from contract.conftest import EARLY_S, Engine, SimEngine
from moldau.peers.errors import Busy, Disconnected, UnsupportedVersion
from moldau.peers.peer import BACKOFF_JITTER, BACKOFF_S, BACKOFF_S_MAX, Peer
from moldau.peers.peers import Peers
from moldau.runtime.ports import Address, Runtime
from moldau.wire.apis import API_VERSIONS

from .brokers import BEAT, HEARTBEAT, METADATA, Broker, Served, beating

NOBODY = ("127.0.0.1", 1)
LONGEST_PAUSE_S = BACKOFF_S_MAX * (1 + BACKOFF_JITTER)


async def beat(peer: Peer, *, waits: bool = False, timeout_s: float = 5.0) -> int:
    answer = await peer.ask(HEARTBEAT, BEAT, timeout_s, waits=waits)
    return int(answer.error_code)


def speaking(versions: tuple[int, int], heard: list[int]):  # type: ignore[no-untyped-def]
    async def serve(served: Served) -> None:
        while (request := await served.request()) is not None:
            if request.api_key == API_VERSIONS:
                await served.tell_versions(request, versions)
            else:
                heard.append(request.version)
                await served.beat(request)
        served.stream.close()

    return serve


def test_it_connects_when_it_is_asked_and_once_for_all_who_wait(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, beating)
        peer = Peer(runtime, broker.address, "test")
        await runtime.tasks.sleep(0.01)
        assert not broker.connections
        asked = [runtime.tasks.spawn(beat(peer), name="asking") for _ in range(20)]
        assert [await one for one in asked] == [0] * 20
        assert await beat(peer) == 0
        assert len(broker.connections) == 1
        peer.close()
        broker.close()

    engine.run(main)


@pytest.mark.parametrize(("theirs", "chosen"), [((0, 2), 2), ((1, 4), 4), ((0, 9), 4)])
def test_it_speaks_the_newest_version_that_both_know(
    engine: Engine, theirs: tuple[int, int], chosen: int
) -> None:
    async def main(runtime: Runtime) -> None:
        heard: list[int] = []
        broker = Broker(runtime, speaking(theirs, heard))
        peer = Peer(runtime, broker.address, "test")
        assert peer.version_of(HEARTBEAT) == 4  # nothing is known of it yet
        await beat(peer)
        assert heard == [chosen]
        assert peer.version_of(HEARTBEAT) == chosen
        assert peer.version_of(HEARTBEAT, max_version=1) == 1
        peer.close()
        broker.close()

    engine.run(main)


def test_what_the_peer_does_not_serve_is_not_sent(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        heard: list[int] = []
        broker = Broker(runtime, speaking((7, 9), heard))
        peer = Peer(runtime, broker.address, "test")
        with pytest.raises(UnsupportedVersion):
            await beat(peer)
        with pytest.raises(UnsupportedVersion):
            peer.version_of(METADATA)
        assert peer.is_connected
        assert heard == []
        peer.close()
        broker.close()

    engine.run(main)


def test_a_lost_connection_is_made_again_when_it_is_needed(engine: Engine) -> None:
    async def one_beat(served: Served) -> None:
        for _ in range(2):
            request = await served.request()
            assert request is not None
            if request.api_key == API_VERSIONS:
                await served.tell_versions(request)
            else:
                await served.beat(request)
        if served.number == 0:
            served.stream.close()

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, one_beat)
        peer = Peer(runtime, broker.address, "test")
        await beat(peer)
        while peer.is_connected:
            await runtime.tasks.sleep(0.001)
        with pytest.raises(Disconnected):  # in the pause
            await beat(peer)
        assert await beat(peer, waits=True) == 0
        assert len(broker.connections) == 2
        peer.close()
        broker.close()

    engine.run(main)


def test_without_a_broker_a_caller_is_refused_at_once_or_waits_as_it_chose(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        peer = Peer(runtime, NOBODY, "test")
        with pytest.raises(Disconnected):
            await beat(peer)
        begun_s = runtime.clock.monotonic()
        with pytest.raises(Disconnected, match="not connected"):
            await beat(peer)
        assert runtime.clock.monotonic() - begun_s < BACKOFF_S / 2
        with pytest.raises(Disconnected, match="in time"):
            await beat(peer, waits=True, timeout_s=0.3)
        assert runtime.clock.monotonic() - begun_s >= 0.3 - EARLY_S
        peer.close()

    engine.run(main)


def test_who_waits_gets_through_when_the_broker_starts() -> None:
    async def main(runtime: Runtime) -> None:
        peer = Peer(runtime, ("127.0.0.1", 9092), "test")
        waiting = runtime.tasks.spawn(beat(peer, waits=True, timeout_s=60.0), name="waiting")
        await runtime.tasks.sleep(20)
        broker = Broker(runtime, beating, port=9092)
        begun_s = runtime.clock.monotonic()
        assert await waiting == 0
        assert runtime.clock.monotonic() - begun_s <= LONGEST_PAUSE_S + 0.1
        peer.close()
        broker.close()

    simulated(main)


def test_news_of_the_cluster_end_the_pause_of_a_broker_that_is_back() -> None:
    async def main(runtime: Runtime) -> None:
        peers = Peers(runtime, "test", lambda _: ("127.0.0.1", 9092))
        peer = peers.peer(1)
        waiting = runtime.tasks.spawn(beat(peer, waits=True, timeout_s=60.0), name="waiting")
        for _ in range(3):
            await runtime.tasks.sleep(7.3)
            peers.refresh()
            await runtime.tasks.sleep(0)
        await runtime.tasks.sleep(5.1)
        broker = Broker(runtime, beating, port=9092)
        begun_s = runtime.clock.monotonic()
        peers.refresh()
        assert await waiting == 0
        assert runtime.clock.monotonic() - begun_s < 0.02
        peers.close()
        broker.close()

    simulated(main)


def test_pauses_double_up_to_a_limit_and_differ_by_their_jitter() -> None:
    def pauses(seed: int) -> list[float]:
        attempts: list[float] = []

        async def refusing(served: Served) -> None:
            attempts.append(served.runtime.clock.monotonic())
            served.stream.close()

        async def main(runtime: Runtime) -> None:
            broker = Broker(runtime, refusing)
            peer = Peer(runtime, broker.address, "test")
            with pytest.raises(Disconnected):
                await beat(peer, waits=True, timeout_s=10.0)
            peer.close()
            broker.close()

        simulated(main, seed)
        return [after - before for before, after in pairwise(attempts)]

    found = pauses(1)
    for number, pause_s in enumerate(found[:-1]):
        due_s = min(BACKOFF_S_MAX, BACKOFF_S * 2**number)
        assert due_s * (1 - BACKOFF_JITTER) <= pause_s <= due_s * (1 + BACKOFF_JITTER) + 0.1
    assert len(found) > 10
    assert found == pauses(1)
    assert found != pauses(2)


def test_a_broker_that_hangs_up_after_its_versions_is_not_asked_in_a_tight_loop() -> None:
    async def fickle(served: Served) -> None:
        request = await served.request()
        if request is not None:
            await served.tell_versions(request)
        served.stream.close()

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, fickle)
        peer = Peer(runtime, broker.address, "test")
        ends_s = runtime.clock.monotonic() + 10
        while runtime.clock.monotonic() < ends_s:
            with pytest.raises(Disconnected):
                await beat(peer, waits=True)
        assert len(broker.connections) < 25
        peer.close()
        broker.close()

    simulated(main)


def test_another_address_ends_the_connection_and_the_pause(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker, other = Broker(runtime, beating), Broker(runtime, beating)
        peer = Peer(runtime, NOBODY, "test")
        with pytest.raises(Disconnected):
            await beat(peer)
        peer.on_address_changed(broker.address)
        assert await beat(peer) == 0
        peer.on_address_changed(other.address)
        assert not peer.is_connected
        assert await beat(peer) == 0
        assert (len(broker.connections), len(other.connections)) == (1, 1)
        peer.on_address_changed(None)
        with pytest.raises(Disconnected):
            await beat(peer)
        waiting = runtime.tasks.spawn(beat(peer, waits=True), name="waiting")
        await runtime.tasks.sleep(0)
        peer.on_address_changed(broker.address)
        assert await waiting == 0
        peer.close()
        broker.close()
        other.close()

    engine.run(main)


def test_who_waits_for_a_connection_is_told_when_there_is_no_address_any_more(engine: Engine) -> None:
    """A broker that asks the controller, and becomes it itself while it connects to the one before."""

    async def silent(served: Served) -> None:
        while await served.request() is not None:
            pass

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, silent)
        peer = Peer(runtime, broker.address, "test")
        asking = runtime.tasks.spawn(beat(peer, timeout_s=60.0), name="asking")
        await runtime.tasks.sleep(0.02)
        begun_s = runtime.clock.monotonic()
        peer.on_address_changed(None)
        with pytest.raises(Disconnected):
            await asking
        assert runtime.clock.monotonic() - begun_s < 1.0
        peer.close()
        broker.close()

    engine.run(main)


def test_close_fails_who_waits_and_who_comes_later(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        peer = Peer(runtime, NOBODY, "test")
        waiting = runtime.tasks.spawn(beat(peer, waits=True, timeout_s=60.0), name="waiting")
        await runtime.tasks.sleep(0.01)
        peer.close()
        for asking in (waiting, runtime.tasks.spawn(beat(peer, waits=True), name="late")):
            with pytest.raises(Disconnected):
                await asking
        assert peer.is_idle

    engine.run(main)


def test_a_peer_that_is_closed_leaves_no_garbage_with_its_requests(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, beating)
        peer = Peer(runtime, broker.address, "test")
        await beat(peer)
        gc.collect()
        gc.disable()
        try:
            for _ in range(200):
                await beat(peer)
            assert gc.collect() < 200, "less than an object a request: other tests may leave some meanwhile"
        finally:
            gc.enable()
        peer.close()
        broker.close()

    engine.run(main)


def test_peers_are_made_once_and_follow_the_cluster(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker, other = Broker(runtime, beating), Broker(runtime, beating)
        addresses: dict[int, Address] = {1: broker.address, 2: broker.address}
        peers = Peers(runtime, "test", addresses.get)
        first, second, lane = peers.peer(1), peers.peer(2), peers.peer(1, "fetcher")
        assert peers.peer(1) is first
        assert peers.peer(1, "fetcher") is lane is not first
        for peer in (first, second, lane):
            await beat(peer)
        assert len(broker.connections) == 3
        del addresses[2]
        addresses[1] = other.address
        peers.refresh()
        with pytest.raises(Disconnected):
            await beat(second)
        with pytest.raises(Disconnected, match="not known"):
            peers.peer(2)
        await beat(first)
        await beat(lane)
        assert len(other.connections) == 2
        peers.close()
        assert not first.is_connected
        broker.close()
        other.close()

    engine.run(main)


def test_who_has_the_peer_of_a_broker_that_was_gone_reaches_it_when_it_is_back(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker, again = Broker(runtime, beating), Broker(runtime, beating)
        addresses: dict[int, Address] = {1: broker.address}
        peers = Peers(runtime, "test", addresses.get)
        peer = peers.peer(1)
        await beat(peer)
        del addresses[1]
        peers.refresh()
        assert not peer.is_connected
        waiting = runtime.tasks.spawn(peer.connection(waits=True), name="waiting")
        await runtime.tasks.sleep(0)
        addresses[1] = again.address
        peers.refresh()
        await waiting
        await beat(peer)
        assert peers.peer(1) is peer
        assert len(again.connections) == 1
        peers.close()
        broker.close()
        again.close()

    engine.run(main)


def test_the_number_of_peers_is_bounded_and_one_in_use_is_kept(engine: Engine) -> None:
    async def holding(served: Served) -> None:
        while (request := await served.request()) is not None:
            if request.api_key == API_VERSIONS:
                await served.tell_versions(request)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, holding)
        peers = Peers(runtime, "test", lambda _: broker.address, peers_max=2)
        used, idle = peers.peer(1), peers.peer(2)
        await idle.connection()
        asking = [runtime.tasks.spawn(beat(used), name="asking")]
        while used.is_idle:
            await runtime.tasks.sleep(0)
        late = peers.peer(3)
        assert not idle.is_connected
        asking.append(runtime.tasks.spawn(beat(late), name="asking"))
        while late.is_idle:
            await runtime.tasks.sleep(0)
        with pytest.raises(Busy):
            peers.peer(4)
        assert peers.peer(1) is used
        peers.close()
        for one in asking:
            with pytest.raises(Disconnected):
                await one
        broker.close()

    engine.run(main)


def simulated(main, seed: int = 1) -> None:  # type: ignore[no-untyped-def]
    engine = SimEngine(seed)
    engine.run(main)
    engine.world.close()
    assert not engine.world.failures
