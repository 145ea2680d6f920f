"""PeerConnection against brokers that answer, lag, lie and go away, over every network."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc

import pytest

from contract.conftest import EARLY_S, Engine, SimEngine
from contract.streams import readable
from moldau.base.limits import PEER_BYTES_QUEUED_MAX, PEER_FRAME_BYTES_AT_ONCE, PEER_REQUESTS_IN_FLIGHT_MAX
from moldau.peers.connection import SPARE_UNUSED_MAX, PeerConnection
from moldau.peers.errors import BadAnswer, Busy, Disconnected, TimedOut
from moldau.runtime.ports import Runtime
from moldau.wire.frames import SIZE, response_frame

from .brokers import (
    BEAT,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    RAW,
    RAW_VERSION,
    Broker,
    Served,
    beating,
    deaf,
    echoing,
    silent,
)

PATTERN = bytes(range(251)) * 4001


async def fails(future: asyncio.Future[object], kind: type[Exception]) -> str:
    with pytest.raises(kind) as caught:
        await future
    assert caught.type is kind
    return str(caught.value)


def test_a_request_is_answered(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, beating)
        connection = await broker.connect()
        answer = await connection.ask(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 5.0)
        assert answer.error_code == 0
        connection.close()
        broker.close()

    engine.run(main)


def test_thousands_of_pipelined_requests_are_answered_in_their_order(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        bodies = [b"%d" % number * (number % 50) for number in range(4000)]
        answers = [connection.send_raw(RAW, RAW_VERSION, body) for body in bodies]
        assert connection.in_flight == 4000
        assert [bytes(await answer) for answer in answers] == bodies
        assert connection.in_flight == 0
        connection.close()
        broker.close()

    engine.run(main)


def test_large_requests_and_answers_pass_in_whatever_pieces(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        bodies = [PATTERN, b"", PATTERN[:100_000], b"x", PATTERN * 2]
        answers = [connection.send_raw(RAW, RAW_VERSION, body) for body in bodies]
        for answer, body in zip(answers, bodies, strict=True):
            assert await answer == body
        connection.close()
        broker.close()

    engine.run(main)


def test_a_raw_answer_stays_as_it_is_while_others_arrive(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        small = await connection.ask_raw(RAW, RAW_VERSION, b"small")
        large = await connection.ask_raw(RAW, RAW_VERSION, PATTERN)
        for _ in range(20):
            await connection.ask_raw(RAW, RAW_VERSION, bytes(len(PATTERN)))
            await connection.ask_raw(RAW, RAW_VERSION, b"other")
        assert (small, large) == (b"small", PATTERN)
        connection.close()
        broker.close()

    engine.run(main)


def test_a_request_that_is_not_answered_in_time_ends_the_connection(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, silent)
        connection = await broker.connect()
        begun_s = runtime.clock.monotonic()
        patient = connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 60.0)
        hasty = connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 0.05)
        assert "Heartbeat was not answered in time" in await fails(hasty, TimedOut)
        await fails(patient, TimedOut)
        assert 0.05 - EARLY_S <= runtime.clock.monotonic() - begun_s < 5.0
        assert connection.is_closed
        await fails(connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT), Disconnected)
        broker.close()

    engine.run(main)


def test_an_answer_in_time_leaves_the_later_deadlines_in_force(engine: Engine) -> None:
    async def first_only(served: Served) -> None:
        request = await served.request()
        assert request is not None
        await served.beat(request)
        await silent(served)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, first_only)
        connection = await broker.connect()
        await connection.ask(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 2.0)
        begun_s = runtime.clock.monotonic()
        await fails(connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 0.1), TimedOut)
        assert 0.1 - EARLY_S <= runtime.clock.monotonic() - begun_s < 1.5
        broker.close()

    engine.run(main)


def test_a_request_whose_caller_has_gone_does_not_shift_the_answers(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        gone = connection.send_raw(RAW, RAW_VERSION, b"first")
        stays = connection.send_raw(RAW, RAW_VERSION, b"second")
        gone.cancel()
        assert await stays == b"second"
        connection.close()
        broker.close()

    engine.run(main)


@pytest.mark.parametrize("sent", [0, 2, 4, 6, 50_000])
def test_a_connection_that_ends_in_mid_answer_fails_its_requests(engine: Engine, sent: int) -> None:
    async def cut(served: Served) -> None:
        request = await served.request()
        assert request is not None
        await served.send(response_frame(RAW, RAW_VERSION, request.correlation_id, PATTERN)[:sent])
        served.stream.close()

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, cut)
        connection = await broker.connect()
        first, second = (connection.send_raw(RAW, RAW_VERSION, b"") for _ in range(2))
        await fails(first, Disconnected)
        await fails(second, Disconnected)
        assert connection.is_closed
        broker.close()

    engine.run(main)


def test_a_reset_that_comes_with_the_last_answer_is_found_by_the_next_request(engine: Engine) -> None:
    async def leaving(served: Served) -> None:
        request = await served.request()
        assert request is not None
        await readable(served.stream)  # bytes that it never reads: its end is a reset
        await served.echo(request)
        served.stream.close()

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, leaving)
        connection = await broker.connect()
        answer = connection.send_raw(RAW, RAW_VERSION, b"last", 5.0)
        connection.send_bytes(b"unread")
        try:
            assert await answer == b"last"
        except Disconnected:
            pass  # the reset was faster
        await runtime.tasks.sleep(0.05)
        begun_s = runtime.clock.monotonic()
        await fails(connection.send_raw(RAW, RAW_VERSION, b"", 5.0), Disconnected)
        assert runtime.clock.monotonic() - begun_s < 2.0
        assert connection.is_closed
        broker.close()

    engine.run(main)


LIES = {
    "a negative length": (SIZE.pack(-5), "answer of -5 bytes"),
    "no room for an id": (SIZE.pack(3) + b"abc", "answer of 3 bytes"),
    "longer than allowed": (SIZE.pack(1001) + bytes(1001), "answer of 1001 bytes"),
    "another id": (response_frame(HEARTBEAT, HEARTBEAT_VERSION, 7, bytes(7)), "request 7 where 1 is due"),
    "a cut message": (response_frame(HEARTBEAT, HEARTBEAT_VERSION, 1, b"\0\0"), "too early"),
    "tagged fields without end": (SIZE.pack(5) + b"\0\0\0\1\xff", "malformed response header"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_no_broker_may_answer_ends_the_connection(engine: Engine, lie: str) -> None:
    async def lying(served: Served) -> None:
        await served.request()
        await served.send(LIES[lie][0])
        await silent(served)

    async def main(runtime: Runtime) -> None:
        ends: list[type[Disconnected]] = []
        broker = Broker(runtime, lying)
        connection = await broker.connect(frame_bytes_max=1000)
        connection.on_closed = lambda _, error: ends.append(type(error))
        first, second = (connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 5.0) for _ in range(2))
        assert LIES[lie][1] in await fails(first, BadAnswer)
        await fails(second, BadAnswer)
        assert ends == [BadAnswer]
        broker.close()

    engine.run(main)


def test_an_answer_that_nobody_waits_for_ends_the_connection(engine: Engine) -> None:
    async def chatty(served: Served) -> None:
        await served.send(response_frame(RAW, RAW_VERSION, 1, b"hello"))

    async def main(runtime: Runtime) -> None:
        ended: asyncio.Future[Disconnected] = asyncio.get_running_loop().create_future()
        broker = Broker(runtime, chatty)
        connection = await broker.connect()
        connection.on_closed = lambda _, error: ended.set_result(error)
        assert type(await ended) is BadAnswer
        broker.close()

    engine.run(main)


def test_a_peer_that_does_not_read_is_sent_no_more_than_the_bound(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, deaf)
        connection = await broker.connect()
        body = bytes(256 * 1024)
        answers = [connection.send_raw(RAW, RAW_VERSION, body, 60.0) for _ in range(400)]
        assert not connection.has_room
        assert connection._queued_bytes < PEER_BYTES_QUEUED_MAX + 2 * len(body)
        await fails(answers[-1], Busy)
        begun_s = runtime.clock.monotonic()
        with pytest.raises(Busy, match="no room in time"):
            await connection.ask_raw(RAW, RAW_VERSION, body, 0.05)
        assert 0.05 - EARLY_S <= runtime.clock.monotonic() - begun_s < 5.0
        connection.close()
        await fails(answers[0], Disconnected)
        broker.close()

    engine.run(main)


def test_callers_wait_for_room_and_are_served_in_their_order(engine: Engine) -> None:
    async def slow_to_begin(served: Served) -> None:
        await served.runtime.tasks.sleep(0.05)
        await echoing(served)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, slow_to_begin)
        connection = await broker.connect()
        sent = [connection.send_raw(RAW, RAW_VERSION, b"") for _ in range(PEER_REQUESTS_IN_FLIGHT_MAX)]
        await fails(connection.send_raw(RAW, RAW_VERSION, b""), Busy)
        order: list[int] = []

        async def ask(number: int) -> None:
            answer = await connection.ask_raw(RAW, RAW_VERSION, b"%d" % number, 15.0)
            order.append(int(bytes(answer)))

        asked = [runtime.tasks.spawn(ask(number), name=f"ask {number}") for number in range(100)]
        await runtime.tasks.sleep(0)
        asked[3].cancel()
        for number, task in enumerate(asked):
            if number != 3:
                await task
        assert order == [number for number in range(100) if number != 3]
        assert all(answer.done() for answer in sent)
        assert connection.in_flight == 0
        assert connection.has_room
        connection.close()
        broker.close()

    engine.run(main)


def test_a_caller_that_goes_when_its_turn_has_come_leaves_it_to_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.peers.connection.PEER_REQUESTS_IN_FLIGHT_MAX", 1)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        answer = connection.send_raw(RAW, RAW_VERSION, b"")
        goes, stays = (
            runtime.tasks.spawn(connection.ask_raw(RAW, RAW_VERSION, name, 5.0), name="asking")
            for name in (b"goes", b"stays")
        )
        await runtime.tasks.sleep(0)
        answer.add_done_callback(lambda _: goes.cancel())  # after it was called, before it runs
        assert await stays == b"stays"
        assert goes.cancelled()
        assert connection.has_room
        connection.close()
        broker.close()

    engine.run(main)


def test_a_length_without_its_bytes_costs_no_memory_beyond_the_bound(engine: Engine) -> None:
    announced = 200 * 1024 * 1024

    async def boasting(served: Served) -> None:
        await served.request()
        await served.send(SIZE.pack(announced) + bytes(10))
        await silent(served)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, boasting)
        connection = await broker.connect()
        tracemalloc.start()
        try:
            await fails(connection.send(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 0.2), TimedOut)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < PEER_FRAME_BYTES_AT_ONCE + 1024 * 1024
        broker.close()

    engine.run(main)


def test_an_answer_longer_than_is_allocated_at_once_arrives_whole(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.peers.connection.PEER_FRAME_BYTES_AT_ONCE", 20_000)

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        assert await connection.ask_raw(RAW, RAW_VERSION, PATTERN) == PATTERN
        connection.close()
        broker.close()

    engine.run(main)


def test_large_answers_take_the_memory_of_one_at_a_time() -> None:
    size = 8 * 1024 * 1024
    answer_frame = response_frame(RAW, RAW_VERSION, 1, bytes(size))

    async def large(served: Served) -> None:
        while (request := await served.request()) is not None:
            head = SIZE.pack(size + 4) + request.correlation_id.to_bytes(4, "big")
            assert len(answer_frame) == size + len(head)
            await served.send(head)
            await served.send(memoryview(answer_frame)[8:])  # type: ignore[arg-type]
        served.stream.close()

    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, large)
        connection = await broker.connect()
        tracemalloc.start()
        try:
            for _ in range(6):
                received = len(await connection.ask_raw(RAW, RAW_VERSION, b""))
                assert received == size
            await runtime.tasks.sleep(0)  # the turn of the loop that brought the last answer holds it
            left, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < size + 1024 * 1024
        assert left < 256 * 1024
        connection.close()
        broker.close()

    engine = SimEngine(1)
    engine.run(main)
    engine.world.close()


def test_a_buffer_that_is_given_back_serves_the_next_large_answer(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()

        async def asked(size: int) -> object:
            answer = await connection.ask_raw(RAW, RAW_VERSION, PATTERN[:size])
            assert bytes(answer) == PATTERN[:size]
            buffer = answer.obj
            connection.give_back(answer)
            return buffer

        first = await asked(900_000)
        assert await asked(300_000) is first
        assert await asked(900_000) is first
        assert await asked(10) is not first
        assert await asked(400_000) is first
        assert await asked(901_000) is not first, "it is too short"
        assert await asked(200_000) is not first, "and this one is too long to be kept for so little"
        kept = await asked(300_000)
        for _ in range(SPARE_UNUSED_MAX + 1):
            await asked(10)
        assert await asked(300_000) is not kept
        connection.close()
        broker.close()

    engine.run(main)


def test_a_buffer_that_somebody_still_looks_at_is_not_used_again(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, echoing)
        connection = await broker.connect()
        answer = await connection.ask_raw(RAW, RAW_VERSION, PATTERN)
        records = answer[10:2000]
        connection.give_back(answer)
        await connection.ask_raw(RAW, RAW_VERSION, bytes(len(PATTERN)))
        assert records == PATTERN[10:2000]
        connection.close()
        broker.close()

    engine.run(main)


def test_answered_and_failed_requests_leave_no_garbage(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        broker = Broker(runtime, beating)
        connection = await broker.connect()
        await connection.ask(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 5.0)
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                await connection.ask(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 5.0)
            connection.close()
            for _ in range(50):
                try:
                    await connection.ask(HEARTBEAT, HEARTBEAT_VERSION, BEAT, 5.0)
                except Disconnected:
                    pass
            assert gc.collect() == 0
        finally:
            gc.enable()
        broker.close()

    engine.run(main)


@pytest.mark.parametrize("piece", [1, 2, 3, 5, 7, 11])
def test_answers_arrive_in_pieces_of_any_size(piece: int) -> None:
    """Over a network that gives so many bytes at a time."""

    class Trickle:
        """A stream of which each receive takes a few bytes."""

        def __init__(self, data: bytes) -> None:
            self.data = data
            self.readable = lambda: None

        def recv_into(self, buffer: memoryview) -> int:
            if not self.data:
                raise BlockingIOError
            count = min(piece, len(buffer), len(self.data))
            buffer[:count] = self.data[:count]
            self.data = self.data[count:]
            return count

        def watch_readable(self, callback) -> None:  # type: ignore[no-untyped-def]
            self.readable = callback

        def send(self, data: bytes) -> int:
            return len(data)

        def close(self) -> None:
            pass

    async def main(runtime: Runtime) -> None:
        bodies = [b"a" * length for length in (0, 1, 2, 3, 4, 5, 20_000, 0, 1)]
        frames = [response_frame(RAW, RAW_VERSION, number + 1, body) for number, body in enumerate(bodies)]
        stream = Trickle(b"".join(frames))
        connection = PeerConnection(runtime, stream, "test")  # type: ignore[arg-type]
        answers = [connection.send_raw(RAW, RAW_VERSION, b"") for _ in bodies]
        while stream.data:
            stream.readable()
        assert [bytes(await answer) for answer in answers] == bodies
        connection.close()

    engine = SimEngine(1)
    engine.run(main)
    engine.world.close()


def test_one_seed_has_one_digest() -> None:
    def digest(seed: int) -> str:
        async def main(runtime: Runtime) -> None:
            broker = Broker(runtime, echoing)
            connection = await broker.connect()
            for number in range(20):
                answers = [connection.send_raw(RAW, RAW_VERSION, PATTERN[: number * 3000]) for _ in range(5)]
                for answer in answers:
                    await answer
            connection.close()
            broker.close()

        engine = SimEngine(seed)
        engine.run(main)
        try:
            return engine.world.digest()
        finally:
            engine.world.close()

    assert digest(7) == digest(7)
    assert digest(7) != digest(8)
