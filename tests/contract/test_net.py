"""Net, Stream and Listener: every sentence of their ports, over every engine."""

from __future__ import annotations

import asyncio
import errno

import pytest

from moldau.runtime.ports import Buffer, Runtime, Stream

from .conftest import Engine
from .streams import HERE, connected, readable, receive, receive_to_the_end, send_all, writable

PATTERN = bytes(range(251)) * 4001
"""About a megabyte: more than any buffer between two programs holds, and not periodic in powers of two."""


def test_bytes_arrive_whole_and_in_order(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        sending = runtime.tasks.spawn(send_all(pair.client, PATTERN), name="sending")
        assert await receive(pair.server, len(PATTERN)) == PATTERN
        await sending
        pair.close()

    engine.run(main)


def test_both_directions_are_apart(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        await send_all(pair.client, b"question")
        await send_all(pair.server, b"answer")
        assert await receive(pair.server, 8) == b"question"
        assert await receive(pair.client, 6) == b"answer"
        pair.close()

    engine.run(main)


def test_receiving_without_anything_there_is_not_now(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        with pytest.raises(BlockingIOError):
            pair.server.recv_into(bytearray(10))
        pair.close()

    engine.run(main)


def test_the_end_of_the_stream_comes_after_all_bytes_and_stays(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        await send_all(pair.client, b"last words")
        pair.client.close()
        assert await receive_to_the_end(pair.server) == b"last words"
        assert pair.server.recv_into(bytearray(10)) == 0
        pair.close()

    engine.run(main)


def test_a_reader_that_does_not_read_stops_its_writer_until_it_does(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        sent = 0
        chunk = bytes(64 * 1024)
        blocked = 0
        while blocked < 20:  # the kernel moves bytes from one side to the other meanwhile
            try:
                sent += pair.client.send(chunk)
                assert sent < 64 * 1024 * 1024, "nothing held the writer back"
            except BlockingIOError:
                blocked += 1
                await runtime.tasks.sleep(0.001)
        reading = runtime.tasks.spawn(receive(pair.server, sent), name="reading")
        await writable(pair.client)
        assert len(await reading) == sent
        pair.close()

    engine.run(main)


def test_a_send_takes_a_part_where_there_is_no_room_for_all(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        huge = bytes(32 * 1024 * 1024)
        sent = pair.client.send(huge)
        assert 0 < sent < len(huge)
        assert await receive(pair.server, sent) == huge[:sent]
        pair.close()

    engine.run(main)


def test_sendmsg_sends_several_buffers_in_order(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        parts: list[Buffer] = [b"head", bytearray(b"middle"), memoryview(b"-tail-")[1:5], b""]
        sent = pair.client.sendmsg(parts)
        assert 0 < sent <= 14
        assert await receive(pair.server, sent) == b"headmiddletail"[:sent]
        pair.close()

    engine.run(main)


def test_send_more_arrives_without_waiting_for_a_full_packet_once_more_follows(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        first = pair.client.send_more(b"head")
        await send_all(pair.client, b"head"[first:] + b"tail")
        assert await receive(pair.server, 8) == b"headtail"
        pair.close()

    engine.run(main)


@pytest.mark.parametrize(("position", "length"), [(0, 300_000), (1, 4096), (123_457, 150_001)])
def test_sendfile_sends_exactly_the_range(engine: Engine, position: int, length: int) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        file = runtime.disk.open(f"{engine.folder}/segment", create=True)
        file.pwrite(PATTERN, 0)
        receiving = runtime.tasks.spawn(receive(pair.server, length), name="receiving")
        done = 0
        while done < length:
            try:
                done += pair.client.sendfile(file, position + done, length - done)
            except BlockingIOError:
                await writable(pair.client)
        assert await receiving == PATTERN[position : position + length]
        with pytest.raises(BlockingIOError):
            pair.server.recv_into(bytearray(1))
        pair.close()

    engine.run(main)


def test_sendfile_takes_nothing_at_the_end_of_the_file(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        file = runtime.disk.open(f"{engine.folder}/segment", create=True)
        file.pwrite(b"0123456789", 0)
        assert pair.client.sendfile(file, 10, 5) == 0
        sent = pair.client.sendfile(file, 7, 100)
        assert await receive(pair.server, sent) == b"789"[:sent]
        pair.close()

    engine.run(main)


def test_the_watchers_call_again_and_again_while_their_condition_holds(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        calls = {"readable": 0, "writable": 0}
        enough = asyncio.Event()

        def count(kind: str) -> None:
            calls[kind] += 1
            if min(calls.values()) >= 3:
                enough.set()

        await send_all(pair.client, b"unread")
        pair.server.watch_readable(lambda: count("readable"))
        pair.server.watch_writable(lambda: count("writable"))
        await enough.wait()
        pair.close()

    engine.run(main)


def test_an_unwatched_stream_calls_nobody(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        calls: list[str] = []
        await send_all(pair.client, b"unread")
        await readable(pair.server)
        pair.server.watch_readable(lambda: calls.append("readable"))
        pair.server.watch_writable(lambda: calls.append("writable"))
        pair.server.unwatch_readable()
        pair.server.unwatch_writable()
        pair.server.unwatch_readable()
        await runtime.tasks.sleep(0.01)
        assert calls == []
        pair.close()

    engine.run(main)


def test_a_new_watcher_replaces_the_old_one(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        called = asyncio.Event()
        pair.server.watch_readable(lambda: pytest.fail("the old watcher was called"))
        pair.server.watch_readable(called.set)
        await send_all(pair.client, b"x")
        await called.wait()
        pair.close()

    engine.run(main)


def test_closing_stops_watching_and_twice_is_once(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        pair.server.watch_readable(lambda: pytest.fail("called after close"))
        pair.server.close()
        pair.server.close()
        await send_all(pair.client, b"x")
        await runtime.tasks.sleep(0.01)
        with pytest.raises(OSError):
            pair.server.recv_into(bytearray(1))
        pair.close()

    engine.run(main)


def test_sending_to_a_closed_end_breaks_the_connection(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        pair.server.close()
        with pytest.raises(ConnectionError):
            for _ in range(100):
                pair.client.send(b"anybody there?")
                await runtime.tasks.sleep(0.002)
        pair.close()

    engine.run(main)


def test_closing_with_unread_bytes_resets_the_other_side(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        await send_all(pair.client, b"never read")
        await readable(pair.server)
        pair.server.close()
        await readable(pair.client)
        with pytest.raises(ConnectionResetError):
            pair.client.recv_into(bytearray(10))
        pair.close()

    engine.run(main)


def test_connecting_where_nobody_listens_is_refused(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        listener = runtime.net.listen(HERE, 0, lambda stream: None)
        port = listener.address[1]
        listener.close()
        with pytest.raises(ConnectionRefusedError) as caught:
            await runtime.net.connect(HERE, port, timeout_s=5)
        assert caught.value.errno == errno.ECONNREFUSED

    engine.run(main)


def test_connecting_to_an_unknown_name_says_so(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(OSError, match=r"no-such-host\.invalid") as caught:
            await runtime.net.connect("no-such-host.invalid", 9092, timeout_s=10)
        assert caught.value.errno == errno.EHOSTUNREACH

    engine.run(main)


@pytest.mark.parametrize("host", ["localhost", "", "127.0.0.1"])
def test_localhost_reaches_a_listener_on(engine: Engine, host: str) -> None:
    async def main(runtime: Runtime) -> None:
        accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        listener = runtime.net.listen(host, 0, accepted.set_result)
        client = await runtime.net.connect("localhost", listener.address[1], timeout_s=5)
        (await accepted).close()
        client.close()
        listener.close()

    engine.run(main)


def test_both_ends_know_their_addresses(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        assert pair.listener.address[0] == HERE
        assert pair.listener.address[1] > 0
        assert pair.server.local == pair.client.peer == pair.listener.address
        assert pair.server.peer == pair.client.local
        pair.close()

    engine.run(main)


def test_a_port_in_use_is_refused_with_its_errno(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        listener = runtime.net.listen(HERE, 0, lambda stream: None)
        with pytest.raises(OSError) as caught:
            runtime.net.listen(HERE, listener.address[1], lambda stream: None)
        assert caught.value.errno == errno.EADDRINUSE
        listener.close()
        runtime.net.listen(HERE, listener.address[1], lambda stream: None).close()

    engine.run(main)


def test_an_address_of_another_machine_cannot_be_served(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        with pytest.raises(OSError) as caught:
            runtime.net.listen("192.0.2.1", 0, lambda stream: None)
        assert caught.value.errno == errno.EADDRNOTAVAIL

    engine.run(main)


def test_a_listener_takes_many_connections_and_keeps_them_apart(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        accepted: list[Stream] = []
        listener = runtime.net.listen(HERE, 0, accepted.append)
        port = listener.address[1]
        clients = [await runtime.net.connect(HERE, port, timeout_s=5) for _ in range(100)]
        while len(accepted) < 100:
            await runtime.tasks.sleep(0.001)
        by_peer = {stream.peer: stream for stream in accepted}
        for number, client in enumerate(clients):
            await send_all(client, b"client %03d" % number)
        for number, client in enumerate(clients):
            assert await receive(by_peer[client.local], 10) == b"client %03d" % number
        for stream in (*clients, *accepted):
            stream.close()
        listener.close()

    engine.run(main)


def test_a_closed_listener_leaves_its_connections_alone(engine: Engine) -> None:
    async def main(runtime: Runtime) -> None:
        pair = await connected(runtime)
        pair.listener.close()
        await send_all(pair.client, b"still here")
        assert await receive(pair.server, 10) == b"still here"
        pair.close()

    engine.run(main)


def test_an_accept_that_fails_costs_only_its_own_connection(engine: Engine) -> None:
    engine.failures_expected = True

    async def main(runtime: Runtime) -> None:
        accepted: list[Stream] = []

        def accept(stream: Stream) -> None:
            accepted.append(stream)
            if len(accepted) == 1:
                raise ValueError("not this one")

        listener = runtime.net.listen(HERE, 0, accept)
        first = await runtime.net.connect(HERE, listener.address[1], timeout_s=5)
        assert await receive_to_the_end(first) == b""
        second = await runtime.net.connect(HERE, listener.address[1], timeout_s=5)
        await send_all(second, b"hello")
        while len(accepted) < 2:
            await runtime.tasks.sleep(0.001)
        assert await receive(accepted[1], 5) == b"hello"
        for stream in (first, second, *accepted):
            stream.close()
        listener.close()

    engine.run(main)
