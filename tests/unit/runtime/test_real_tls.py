"""TLS streams: what a stream's users rely on holds whatever OpenSSL does inside, and handshakes hold up nobody."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from certificates import CLIENT, SERVER, Authority, Issued
from contract.streams import HERE, readable, receive, receive_to_the_end, send_all, writable
from moldau.runtime.ports import Runtime, Stream
from moldau.runtime.real import close_runtime, new_event_loop, real_runtime, tls_context, tls_turn
from moldau.runtime.real.tls import (
    BARREN_RECORDS_MAX,
    OUT_BYTES_MAX,
    RECEIVE_BYTES_MAX,
    RECORD_BYTES,
    RealTlsStream,
)
from moldau.runtime.real.tls_context import RealTlsContext
from moldau.runtime.tls import ClientAuth, TlsContext, TlsError, TlsSettings, TlsSettingsError, TlsStream
from tls_records import ANSWERED_CHANGE_OF_KEYS, CHANGE_OF_KEYS, ONE_BYTE, client_secret, records

PATTERN = bytes(range(251)) * 4001
PATIENCE_S = 20.0
AUTHORITY, STRANGER = Authority("Ours"), Authority("Another")
BROKER = AUTHORITY.issue("CN=broker")
ALICE = AUTHORITY.issue("CN=alice,O=Acme", hosts=(), usages=(CLIENT,))
SERVING = TlsSettings(True, BROKER.chain_pem, BROKER.key_pem, AUTHORITY.pem)
ASKING = TlsSettings(False, trusted_pem=AUTHORITY.pem)


def showing(issued: Issued) -> TlsSettings:
    return replace(ASKING, chain_pem=issued.chain_pem, key_pem=issued.key_pem)


def serving(issued: Issued, auth: ClientAuth = ClientAuth.NONE) -> TlsSettings:
    return replace(SERVING, chain_pem=issued.chain_pem, key_pem=issued.key_pem, client_auth=auth)


MUTUAL = serving(BROKER, ClientAuth.REQUIRED)


class Place:
    """A listener, and what became of those who came."""

    def __init__(self, runtime: Runtime, settings: TlsSettings = SERVING) -> None:
        self.runtime = runtime
        self.context: TlsContext = runtime.net.tls_context(settings)
        self.made: asyncio.Queue[tuple[TlsStream, TlsError | None]] = asyncio.Queue()
        self.listener = runtime.net.listen_tls(HERE, 0, self._accept, lambda: self.context)

    @property
    def port(self) -> int:
        return self.listener.address[1]

    def _accept(self, stream: TlsStream) -> None:
        stream.secure(lambda error: self.made.put_nowait((stream, error)))

    async def connect(self, settings: TlsSettings = ASKING, host: str = HERE) -> Stream:
        context = self.runtime.net.tls_context(settings)
        return await self.runtime.net.connect(host, self.port, timeout_s=PATIENCE_S, tls=context)

    async def accepted(self) -> TlsStream:
        stream, error = await self.made.get()
        assert error is None
        return stream

    async def refused(self) -> str:
        _, error = await self.made.get()
        assert error is not None
        return str(error)

    async def pair(self, settings: TlsSettings = ASKING) -> tuple[Stream, TlsStream]:
        client = await self.connect(settings)
        return client, await self.accepted()


def run(main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        runtime = real_runtime()
        try:
            async with asyncio.timeout(PATIENCE_S * 2):
                await main(runtime)
        finally:
            close_runtime(runtime)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(whole())


def python_client(settings: ssl.SSLContext | None = None) -> ssl.SSLContext:
    context = settings or ssl.create_default_context(cadata=AUTHORITY.pem.decode())
    context.check_hostname = False
    return context


# ---- bytes ----


def test_bytes_arrive_whole_and_in_order_both_ways() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        there = runtime.tasks.spawn(send_all(client, PATTERN), name="there")
        back = runtime.tasks.spawn(send_all(server, PATTERN[::-1]), name="back")
        got = runtime.tasks.spawn(receive(client, len(PATTERN)), name="receiving")
        assert await receive(server, len(PATTERN)) == PATTERN
        assert await got == PATTERN[::-1]
        await there
        await back

    run(main)


def test_a_buffer_is_filled_over_several_records() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        for start in range(0, 10 * 1000, 1000):
            assert client.send(PATTERN[start : start + 1000]) == 1000
        await runtime.tasks.sleep(0.1)
        buffer = bytearray(100_000)
        assert server.recv_into(buffer) == 10_000
        assert buffer[:10_000] == PATTERN[:10_000]
        with pytest.raises(BlockingIOError):
            server.recv_into(buffer)

    run(main)


def test_a_reader_is_called_for_bytes_that_the_socket_has_no_more() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        client.send(PATTERN[:RECORD_BYTES])
        got, small, done = bytearray(), bytearray(100), asyncio.Event()

        def on_readable() -> None:
            with contextlib.suppress(BlockingIOError):
                got.extend(small[: server.recv_into(small)])
            if len(got) == RECORD_BYTES:
                done.set()

        server.watch_readable(on_readable)
        await asyncio.wait_for(done.wait(), PATIENCE_S)
        assert got == PATTERN[:RECORD_BYTES]
        calls = len(got)
        await runtime.tasks.sleep(0.05)
        assert len(got) == calls

    run(main)


def test_a_reader_that_paused_is_called_for_what_is_left_when_it_watches_again() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        client.send(b"first" + b"second")
        await readable(server)
        assert server.recv_into(bytearray(5)) == 5
        server.unwatch_readable()
        await runtime.tasks.sleep(0.02)
        await asyncio.wait_for(readable(server), PATIENCE_S)
        assert server.recv_into(bytearray(100)) == 6

    run(main)


def test_one_call_decrypts_no_more_than_a_bound_and_the_rest_is_called_for() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        data = bytes(RECEIVE_BYTES_MAX * 2)
        sending = runtime.tasks.spawn(send_all(client, data), name="sending")
        got = 0
        while got < len(data):
            await readable(server)
            count = server.recv_into(bytearray(len(data)))
            assert count <= RECEIVE_BYTES_MAX
            got += count
        await sending

    run(main)


@pytest.mark.parametrize("size", [1, 100, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 300_000])
def test_a_write_that_was_not_taken_is_taken_up_where_it_stopped(size: int) -> None:
    """The pieces that are offered grow between the attempts, as a queue of answers does."""

    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        total = 8_000_000 // size * size if size > 1000 else 400 * size
        data = (PATTERN * (total // len(PATTERN) + 1))[:total]
        reading = runtime.tasks.spawn(receive(client, total), name="reading")
        position, offered = 0, size
        while position < total:
            try:
                taken = server.send(memoryview(data)[position : position + offered])
                assert 0 < taken <= offered
                position += taken
                offered = size
            except BlockingIOError:
                offered += size
                await writable(server)
        assert await reading == data

    run(main)


def test_buffers_sent_with_one_call_arrive_in_order_whatever_their_sizes() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        sizes = (0, 1, 50, RECORD_BYTES, 3, 70_000, 200)
        buffers = [PATTERN[i : i + size] for i, size in enumerate(sizes)]
        whole = b"".join(buffers)
        left = [memoryview(buffer) for buffer in buffers]
        while left:
            count = server.sendmsg(left)
            while left and count >= len(left[0]):
                count -= len(left.pop(0))
            if left:
                left[0] = left[0][count:]
        assert await receive(client, len(whole)) == whole

    run(main)


def test_parts_of_files_are_sent(tmp_path: Any) -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        path = str(tmp_path / "data")
        runtime.disk.write_atomic(path, PATTERN)
        file = runtime.disk.open(path)
        reading = runtime.tasks.spawn(receive(client, len(PATTERN) - 100), name="reading")
        position = 100
        while position < len(PATTERN):
            try:
                position += server.sendfile(file, position, len(PATTERN) - position)
            except BlockingIOError:
                await writable(server)
        assert await reading == PATTERN[100:]
        assert server.sendfile(file, len(PATTERN), 10) == 0
        file.close()

    run(main)


# ---- ends ----


def test_the_end_comes_after_all_bytes_and_stays() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        client.send(b"last words")
        client.close()
        assert await receive_to_the_end(server) == b"last words"
        assert server.recv_into(bytearray(10)) == 0
        server.close()
        server.close()
        with pytest.raises(OSError, match="secured"):
            server.recv_into(bytearray(10))

    run(main)


def test_an_end_without_a_farewell_is_an_end() -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        client, server = await place.pair()
        assert isinstance(client, RealTlsStream)
        client.send(b"last words")
        client.break_off()
        assert await receive_to_the_end(server) == b"last words"
        assert server.recv_into(bytearray(10)) == 0

    run(main)


def test_a_farewell_without_an_end_is_an_end() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        assert isinstance(client, RealTlsStream)
        assert client._tls is not None
        with contextlib.suppress(ssl.SSLWantReadError):
            client._tls.unwrap()
        assert client._flush()
        assert await asyncio.wait_for(receive_to_the_end(server), PATIENCE_S) == b""

    run(main)


def test_what_is_not_tls_ends_an_open_stream_as_a_broken_connection() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        assert isinstance(client, RealTlsStream)
        client._socket.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        await readable(server)
        for _ in range(2):
            with pytest.raises(ConnectionError):
                server.recv_into(bytearray(10))

    run(main)


def test_a_client_that_is_gone_is_a_connection_error() -> None:
    async def main(runtime: Runtime) -> None:
        client, server = await Place(runtime).pair()
        client.close()
        await runtime.tasks.sleep(0.05)
        with pytest.raises(ConnectionError):
            for _ in range(100):
                server.send(PATTERN[:1000])
                await runtime.tasks.sleep(0.001)

    run(main)


# ---- who is let in ----


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_that_shows_a_good_certificate_is_known_by_it(version: str) -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime, replace(MUTUAL, versions=(version,)))
        _, server = await place.pair(showing(ALICE))
        assert server.certificate is not None
        assert b"alice" in server.certificate
        assert place.listener.address[1] == server.local[1]

    run(main)


def test_a_client_may_go_without_a_certificate_where_it_is_only_requested() -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime, serving(BROKER, ClientAuth.REQUESTED))
        _, server = await place.pair()
        assert server.certificate is None
        _, server = await place.pair(showing(ALICE))
        assert server.certificate is not None

    run(main)


def test_nobody_is_asked_where_certificates_are_not_needed() -> None:
    async def main(runtime: Runtime) -> None:
        _, server = await Place(runtime).pair(showing(ALICE))
        assert server.certificate is None

    run(main)


BAD_CLIENTS = {
    "none": (None, "shows no certificate"),
    "of another authority": (
        STRANGER.issue("CN=mallory", usages=(CLIENT,)),
        "unable to get local issuer|verify",
    ),
    "that signed itself": (AUTHORITY.issue("CN=mallory", signs_itself=True), "self-signed|self signed"),
    "that has expired": (AUTHORITY.issue("CN=alice", lasts=timedelta(days=-1)), "expired"),
    "for servers only": (AUTHORITY.issue("CN=alice", usages=(SERVER,)), "purpose|unsuitable"),
}


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
@pytest.mark.parametrize("auth", [ClientAuth.REQUIRED, ClientAuth.REQUESTED])
@pytest.mark.parametrize("bad", BAD_CLIENTS)
def test_a_client_with_a_certificate_that_is_not_good_is_not_let_in(
    bad: str, auth: ClientAuth, version: str
) -> None:
    issued, words = BAD_CLIENTS[bad]
    if issued is None and auth is ClientAuth.REQUESTED:
        pytest.skip("it may have none")

    async def main(runtime: Runtime) -> None:
        place = Place(runtime, replace(serving(BROKER, auth), versions=(version,)))
        try:
            client = await place.connect(ASKING if issued is None else showing(issued))
        except TlsError:
            assert version == "TLSv1.2"
        else:  # TLS 1.3: it learns of it when it reads
            with pytest.raises((ConnectionError, BlockingIOError)):
                await readable(client)
                if client.recv_into(bytearray(10)) == 0:
                    raise ConnectionResetError
        _, error = await place.made.get()
        assert error is not None
        assert any(word in str(error) for word in words.split("|")), str(error)

    run(main)


BAD_SERVERS = {
    "of another authority": (STRANGER.issue("CN=broker"), "unable to get local issuer"),
    "that signed itself": (AUTHORITY.issue("CN=broker", signs_itself=True), "self-signed"),
    "that has expired": (AUTHORITY.issue("CN=broker", lasts=timedelta(days=-1)), "expired"),
    "for clients only": (AUTHORITY.issue("CN=broker", usages=(CLIENT,)), "unsuitable certificate purpose"),
    "of another host": (AUTHORITY.issue("CN=broker", hosts=("elsewhere.example",)), "IP address mismatch"),
}


@pytest.mark.parametrize("bad", BAD_SERVERS)
def test_a_server_with_a_certificate_that_is_not_good_is_not_talked_to(bad: str) -> None:
    issued, words = BAD_SERVERS[bad]

    async def main(runtime: Runtime) -> None:
        place = Place(runtime, serving(issued))
        with pytest.raises(TlsError, match=words):
            await place.connect()
        assert await place.refused()

    run(main)


def test_the_host_name_is_not_looked_for_where_it_is_not_asked_for() -> None:
    issued, _ = BAD_SERVERS["of another host"]

    async def main(runtime: Runtime) -> None:
        place = Place(runtime, serving(issued))
        await place.connect(replace(ASKING, checks_host=False))
        await place.accepted()

    run(main)


def test_older_versions_and_other_ciphers_than_allowed_are_refused() -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime, replace(SERVING, versions=("TLSv1.3",)))
        with pytest.raises(TlsError, match="version"):
            await place.connect(replace(ASKING, versions=("TLSv1.2",)))
        assert "no version of TLS in common" in await place.refused()
        place = Place(
            runtime, replace(SERVING, versions=("TLSv1.2",), ciphers=("ECDHE-ECDSA-AES256-GCM-SHA384",))
        )
        with pytest.raises(TlsError):
            await place.connect(
                replace(ASKING, versions=("TLSv1.2",), ciphers=("ECDHE-ECDSA-AES128-GCM-SHA256",))
            )
        assert "no cipher suite in common" in await place.refused()

    run(main)


def test_keys_that_do_not_serve_are_refused_with_a_reason() -> None:
    async def main(runtime: Runtime) -> None:
        other = AUTHORITY.issue("CN=other")
        with pytest.raises(TlsSettingsError, match="does not belong to the first certificate"):
            runtime.net.tls_context(replace(SERVING, key_pem=other.key_pem))
        with pytest.raises(TlsSettingsError, match="private key is encrypted"):
            runtime.net.tls_context(replace(SERVING, key_pem=BROKER.encrypted_key_pem("secret")))
        with pytest.raises(TlsSettingsError, match="OpenSSL does not take"):
            runtime.net.tls_context(replace(SERVING, chain_pem=b"nonsense", key_pem=b""))

    run(main)


def test_no_key_stays_on_a_disk_where_the_system_has_no_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []
    original = tls_context.os.unlink

    def unlink(path: str) -> None:
        modes.append(stat.S_IMODE(Path(path).stat().st_mode))
        original(path)

    monkeypatch.setattr(tls_context.sys, "platform", "darwin")
    monkeypatch.setattr(tls_context.os, "unlink", unlink)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    RealTlsContext(SERVING)
    assert modes == [0o600]
    with pytest.raises(TlsSettingsError):
        RealTlsContext(replace(SERVING, key_pem=ALICE.key_pem))
    assert list(tmp_path.iterdir()) == []


def test_a_new_context_is_for_those_who_come_after_it() -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        before, server = await place.pair()
        place.context = runtime.net.tls_context(serving(STRANGER.issue("CN=broker")))
        with pytest.raises(TlsError, match="local issuer"):
            await place.connect()
        await send_all(before, b"still here")
        assert await receive(server, 10) == b"still here"

    run(main)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_connections_that_have_ended_leave_no_session_behind(version: str) -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime, replace(MUTUAL, versions=(version,)))
        for _ in range(20):
            client, server = await place.pair(showing(ALICE))
            client.close()
            assert await receive_to_the_end(server) == b""
            server.close()
        context: Any = place.context
        assert context.sessions_remembered <= 1

    run(main)


def test_no_session_is_resumed() -> None:
    """Whoever comes shows its certificate: one that has expired since does not get in again."""

    async def main(runtime: Runtime) -> None:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            place = Place(runtime)
            context = python_client()
            context.minimum_version = context.maximum_version = version
            session = None
            for _ in range(2):
                with socket.create_connection((HERE, place.port)) as raw:

                    def secure(raw: socket.socket, session: Any) -> ssl.SSLSocket:
                        return context.wrap_socket(raw, server_hostname="localhost", session=session)  # noqa: B023

                    secured = await runtime.tasks.in_thread(secure, raw, session)
                    assert not secured.session_reused
                    session = secured.session
                    (await place.accepted()).close()
                    secured.close()

    run(main)


# ---- half-open, slow and strange clients ----


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP without TLS"),
        (b"\x00\x00\x00\x12\x00\x12\x00\x00" + bytes(14), "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05" + bytes(5), "handshake"),
        (b"\x16\x03\x01\xff\xff" + bytes(70_000), "handshake"),
        (b"", "ended"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "ended|pieces"),
    ],
)
def test_what_is_no_handshake_ends_at_once_with_the_reason(first: bytes, words: str) -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        with socket.create_connection((HERE, place.port)) as client:
            client.sendall(first)
            client.shutdown(socket.SHUT_WR)
            said = await asyncio.wait_for(place.refused(), PATIENCE_S)
        assert any(word in said for word in words.split("|")), said

    run(main)


def test_a_client_that_sends_byte_by_byte_takes_no_thread_until_its_record_is_whole() -> None:
    async def main(runtime: Runtime) -> None:
        steps = 0
        original = RealTlsStream.step

        def counted(stream: RealTlsStream) -> Any:
            nonlocal steps
            steps += 1
            return original(stream)

        place = Place(runtime)
        hello = client_hello()
        with pytest.MonkeyPatch.context() as patch, socket.create_connection((HERE, place.port)) as client:
            patch.setattr(RealTlsStream, "step", counted)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for position in range(len(hello) - 1):
                client.send(hello[position : position + 1])
                await runtime.tasks.sleep(0.0005)
            assert steps == 0
            client.send(hello[-1:])
            while steps == 0:
                await runtime.tasks.sleep(0.001)
            assert await runtime.tasks.in_thread(client.recv, 1) == b"\x16"  # a ServerHello

    run(main)


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = python_client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def test_half_open_handshakes_and_a_flood_of_them_do_not_hold_up_the_loop() -> None:
    """Signatures with a large key take milliseconds each: none of them is computed on the loop."""

    async def main(runtime: Runtime) -> None:
        place = Place(runtime, serving(AUTHORITY.issue("CN=broker", rsa_bits=4096)))
        other = Place(runtime)
        client, server = await other.pair()
        hello = client_hello()
        crowd = [socket.create_connection((HERE, place.port)) for _ in range(100)]
        for one in crowd[::2]:
            one.sendall(hello)  # the others say nothing
        longest_s = 0.0
        for _ in range(50):
            start_s = time.perf_counter()
            client.send(b"ping")
            assert await receive(server, 4) == b"ping"
            longest_s = max(longest_s, time.perf_counter() - start_s)
            await runtime.tasks.sleep(0.005)
        for one in crowd:
            one.close()
        assert longest_s < 0.1

    run(main)


def test_nonsense_before_and_after_a_handshake_ends_that_connection_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chance = random.Random(14)

    def spoilt(data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(chance.randrange(1, 8)):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        return bytes(changed[: chance.randrange(1, len(changed) + 1)])

    async def main(runtime: Runtime) -> None:
        place = Place(runtime, MUTUAL)
        hello = client_hello()
        for _ in range(300):
            with socket.create_connection((HERE, place.port)) as client:
                client.sendall(spoilt(hello) + chance.randbytes(chance.randrange(100)))
                client.shutdown(socket.SHUT_WR)
                assert await place.refused()
        for _ in range(100):
            client, server = await place.pair(showing(ALICE))
            assert isinstance(client, RealTlsStream)
            client.send(b"x" * chance.randrange(1, 100))
            assert client._tls is not None
            client._tls.write(b"y" * 1000)
            client._socket.send(spoilt(client._outgoing.read()))
            client.break_off()
            with contextlib.suppress(ConnectionError):
                await receive_to_the_end(server)
            server.close()
            client.close()

    run(main)
    assert [record for record in caplog.records if record.exc_info] == []


MIXED = {
    "changes of keys": [*[CHANGE_OF_KEYS] * BARREN_RECORDS_MAX, ONE_BYTE],
    "changes of keys that are answered": [*[ANSWERED_CHANGE_OF_KEYS] * BARREN_RECORDS_MAX, ONE_BYTE],
    "bytes": [ONE_BYTE],
}


@pytest.mark.parametrize("kind", MIXED)
def test_changes_of_keys_and_tiny_records_by_the_thousand_hold_up_nobody(tmp_path: Path, kind: str) -> None:
    """OpenSSL left alone with a socket would take a hundred milliseconds for these in one call."""
    rounds = 10_000 // len(MIXED[kind])

    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        with socket.create_connection((HERE, place.port)) as raw:
            secured = await runtime.tasks.in_thread(handshake, raw, tmp_path / "keys")
            server = await place.accepted()
            data = records(client_secret(tmp_path / "keys"), MIXED[kind] * rounds)
            longest_s, received, buffer = 0.0, 0, bytearray(256 * 1024)
            sending = runtime.tasks.in_thread(socket.socket.sendall, secured, data + b"end")
            done = asyncio.Event()

            def on_readable() -> None:
                nonlocal longest_s, received
                start_s = time.thread_time()
                with contextlib.suppress(BlockingIOError):
                    received += (count_now := server.recv_into(buffer))
                    if not count_now:
                        done.set()
                        server.unwatch_readable()
                longest_s = max(longest_s, time.thread_time() - start_s)

            server.watch_readable(on_readable)
            await sending
            socket.socket.shutdown(secured, socket.SHUT_WR)
            await asyncio.wait_for(done.wait(), PATIENCE_S)
            secured.close()
        assert received == rounds
        assert longest_s < 0.02

    run(main)


def test_streams_that_have_much_share_a_turn_and_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_turn, "DECRYPTING_S_MAX", 1e-9)

    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        pairs = [await place.pair() for _ in range(10)]
        for client, _ in pairs:
            for _ in range(60):
                client.send(b"x")
        await runtime.tasks.sleep(0.1)
        buffer = bytearray(1000)
        assert [server.recv_into(buffer) for _, server in pairs] == [60, *[4] * 9]
        left = dict.fromkeys((server for _, server in pairs[1:]), 56)
        done = asyncio.Event()

        def on_readable(server: TlsStream) -> None:
            with contextlib.suppress(BlockingIOError):
                left[server] -= server.recv_into(buffer)
            if not any(left.values()):
                done.set()

        for server in left:
            server.watch_readable(partial(on_readable, server))
        await asyncio.wait_for(done.wait(), PATIENCE_S)

    run(main)


def test_records_that_carry_nothing_end_the_connection_when_too_many_come_in_a_row(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        with socket.create_connection((HERE, place.port)) as raw:
            secured = await runtime.tasks.in_thread(handshake, raw, tmp_path / "keys")
            server = await place.accepted()
            inners = [ONE_BYTE, *[CHANGE_OF_KEYS] * (BARREN_RECORDS_MAX + 1), ONE_BYTE]
            socket.socket.sendall(secured, records(client_secret(tmp_path / "keys"), inners))
            assert await receive(server, 1) == b"x"
            with pytest.raises(ConnectionAbortedError, match="too many records that carry nothing"):
                await receive(server, 1)
            secured.close()

    run(main)


def test_a_client_that_reads_no_answers_to_its_changes_of_keys_is_not_decrypted_any_more(
    tmp_path: Path,
) -> None:
    """What OpenSSL answers is held up to a bound, and what the client sends arrives whole once it reads."""
    rounds = 2000

    async def main(runtime: Runtime) -> None:
        place = Place(runtime)
        with socket.socket() as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await runtime.tasks.in_thread(raw.connect, (HERE, place.port))
            secured = await runtime.tasks.in_thread(handshake, raw, tmp_path / "keys")
            server = await place.accepted()
            assert isinstance(server, RealTlsStream)
            server._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            inners = MIXED["changes of keys that are answered"] * rounds
            data = records(client_secret(tmp_path / "keys"), inners)
            sending = runtime.tasks.in_thread(socket.socket.sendall, secured, data)
            got, calls, held, done = bytearray(), 0, 0, asyncio.Event()

            def on_readable() -> None:
                nonlocal calls, held
                calls += 1
                with contextlib.suppress(BlockingIOError):
                    buffer = bytearray(100_000)
                    got.extend(buffer[: server.recv_into(buffer)])
                held = max(held, len(server._out) + server._outgoing.pending)
                if len(got) == rounds:
                    done.set()

            server.watch_readable(on_readable)
            while held <= OUT_BYTES_MAX:
                await runtime.tasks.sleep(0.001)
            await runtime.tasks.sleep(0.2)
            before = calls, len(got)
            await runtime.tasks.sleep(0.1)
            assert (calls, len(got)) == before
            assert len(got) < rounds
            reading = runtime.tasks.in_thread(read_to_the_end, secured)
            await sending
            await asyncio.wait_for(done.wait(), PATIENCE_S)
            assert held < OUT_BYTES_MAX + 1024
            server.close()
            await reading
            secured.close()

    run(main)


def read_to_the_end(secured: ssl.SSLSocket) -> None:
    with contextlib.suppress(ConnectionError):
        while socket.socket.recv(secured, 65536):
            pass


def handshake(raw: socket.socket, key_log: Path) -> ssl.SSLSocket:
    context = python_client()
    context.keylog_filename = str(key_log)
    secured = context.wrap_socket(raw, server_hostname="localhost")
    assert secured.cipher()[0] == "TLS_AES_256_GCM_SHA384"  # type: ignore[index]
    return secured


def test_a_handshake_that_is_given_up_leaves_nothing_open() -> None:
    async def main(runtime: Runtime) -> None:
        context = runtime.net.tls_context(ASKING)
        kept: list[Stream] = []
        silent = runtime.net.listen(HERE, 0, kept.append)
        with pytest.raises(TimeoutError):
            await runtime.net.connect(HERE, silent.address[1], timeout_s=0.05, tls=context)
        place = Place(runtime)
        with socket.create_connection((HERE, place.port)) as client:
            client.sendall(client_hello())
            await runtime.tasks.sleep(0.05)
        assert "ended" in await place.refused()

    run(main)


def test_a_client_that_joins_small_writes_does_not_wait_for_an_acknowledgement() -> None:
    """Without tickets nothing follows its last message of the handshake: it would be acknowledged after 40 ms, and its
    first request, which Nagle's algorithm holds back, would come as late."""
    count = 12

    def first_byte_s(port: int, nodelay: int) -> float:
        with socket.create_connection((HERE, port)) as raw:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, nodelay)
            began_s = time.perf_counter()
            with python_client().wrap_socket(raw, server_hostname="localhost") as secured:
                secured.sendall(b"x")
                assert secured.recv(1) == b"x"
                return time.perf_counter() - began_s

    async def main(runtime: Runtime) -> None:
        place = Place(runtime)

        async def echo() -> None:
            for _ in range(2 * count):
                server = await place.accepted()
                server.send(await receive(server, 1))

        echoing = asyncio.ensure_future(echo())
        took_s: dict[int, list[float]] = {0: [], 1: []}
        for nodelay in (0, 1) * count:
            took_s[nodelay].append(await runtime.tasks.in_thread(first_byte_s, place.port, nodelay))
        await echoing
        assert median(took_s[0]) < 4 * median(took_s[1])

    run(main)
