"""Sockets of the operating system: options, addresses, and a process that has no descriptor left."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

import pytest

from moldau.runtime.ports import Buffer, Runtime, Stream
from moldau.runtime.real import net as real_net
from moldau.runtime.real import run
from moldau.runtime.real.net import RealListener, RealStream


async def accepted_by(runtime: Runtime, listen_on: str, connect_to: str) -> tuple[RealStream, Stream]:
    accepted: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    listener = runtime.net.listen(listen_on, 0, accepted.set_result)
    client = await runtime.net.connect(connect_to, listener.address[1], timeout_s=5)
    server = await accepted
    listener.close()
    assert isinstance(client, RealStream)
    return client, server


def test_sockets_get_no_delay_and_a_larger_send_buffer() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "127.0.0.1", "127.0.0.1")
        assert isinstance(server, RealStream)
        for stream in (client, server):
            option = stream._socket.getsockopt
            assert option(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert option(socket.SOL_SOCKET, socket.SO_SNDBUF) >= real_net.SEND_BUFFER_BYTES
            stream.close()

    run(main)


def test_the_data_calls_are_the_sockets_own() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "127.0.0.1", "127.0.0.1")
        assert client.recv_into == client._socket.recv_into
        assert client.send == client._socket.send
        assert client.sendmsg == client._socket.sendmsg
        client.close()
        server.close()

    run(main)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_ipv6_literals_work() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "::1", "::1")
        assert server.local[0] == client.peer[0] == "::1"
        client.close()
        server.close()

    run(main)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_interface_means_both_families_and_plain_addresses(address: str) -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "", address)
        assert server.local[0] == address
        assert server.peer == client.local
        client.close()
        server.close()

    run(main)


def test_the_streams_of_systems_without_sendmsg_send_what_it_would() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "127.0.0.1", "127.0.0.1")
        sent: list[bytes] = []

        def send(data: Buffer) -> int:
            sent.append(bytes(data))
            return len(data)

        client.send = send
        assert client._joined_send([b"a", b"", memoryview(b"bc")]) == 3
        large = bytes(real_net.PLAIN_SENDFILE_BYTES)
        assert client._joined_send([b"", large, b"tail"]) == len(large)
        assert sent == [b"abc", large]
        client.close()
        server.close()

    run(main)


def test_a_closed_stream_cannot_watch_the_next_socket_of_its_number() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await accepted_by(runtime, "127.0.0.1", "127.0.0.1")
        client.close()
        with pytest.raises((OSError, ValueError)):
            client.watch_readable(lambda: None)
        server.close()

    run(main)


class Exhausted:
    """A listening socket whose process has no descriptor left for the first few connections."""

    def __init__(self, listening: socket.socket, refusals: int) -> None:
        self._listening = listening
        self._refusals = refusals
        self.attempts = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.attempts += 1
        if self.attempts <= self._refusals:
            raise OSError(errno.EMFILE, "Too many open files")
        return self._listening.accept()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)


def plain_of(runtime: Runtime) -> Any:
    """How its network makes streams of sockets."""
    net: Any = runtime.net
    return net._plain


def test_a_listener_without_descriptors_rests_and_logs_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_net, "ACCEPT_PAUSE_S", 0.02)

    async def main(runtime: Runtime) -> int:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[Stream] = loop.create_future()
        listening = real_net._listening_sockets("127.0.0.1", 0)[0]
        exhausted: Any = Exhausted(listening, refusals=3)
        listener = RealListener(loop, [exhausted], accepted.set_result, plain_of(runtime))
        client = await runtime.net.connect("127.0.0.1", listener.address[1], timeout_s=5)
        (await accepted).close()
        client.close()
        listener.close()
        return int(exhausted.attempts)

    with caplog.at_level(logging.WARNING):
        assert run(main) <= 5
    assert len([record for record in caplog.records if "accepted" in record.getMessage()]) == 1


def test_a_listener_can_be_closed_while_it_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real_net, "ACCEPT_PAUSE_S", 0.01)

    async def main(runtime: Runtime) -> None:
        loop = asyncio.get_running_loop()
        listening = real_net._listening_sockets("127.0.0.1", 0)[0]
        exhausted: Any = Exhausted(listening, refusals=1)
        listener = RealListener(loop, [exhausted], lambda stream: None, plain_of(runtime))
        client = await runtime.net.connect("127.0.0.1", listener.address[1], timeout_s=5)
        while not exhausted.attempts:
            await runtime.tasks.sleep(0.001)
        listener.close()
        await runtime.tasks.sleep(0.03)
        assert exhausted.attempts == 1
        client.close()

    run(main)


def test_a_connection_that_takes_too_long_is_a_timeout_with_its_errno(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(self: object, host: str, port: int) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(real_net.RealNet, "_connect", never)

    async def main(runtime: Runtime) -> None:
        with pytest.raises(TimeoutError, match=r"somewhere:9092 did not answer within 0\.01 s") as caught:
            await runtime.net.connect("somewhere", 9092, timeout_s=0.01)
        assert caught.value.errno == errno.ETIMEDOUT

    run(main)


def test_the_backlog_is_emptied_in_one_event() -> None:
    async def main(runtime: Runtime) -> None:
        accepted: list[Stream] = []
        listener = runtime.net.listen("127.0.0.1", 0, accepted.append)
        clients = [socket.create_connection(listener.address) for _ in range(20)]
        await runtime.tasks.sleep(0)
        await runtime.tasks.sleep(0.01)
        assert len(accepted) == 20
        for client in clients:
            client.close()
        for stream in accepted:
            stream.close()
        listener.close()

    run(main)
