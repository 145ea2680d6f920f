"""A file of a web server: bounded in time and size, and nothing else than what was asked for."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from moldau.runtime.real.web import fetch

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
Answer = Callable[[socket.socket], None]


def whole(body: bytes) -> Answer:
    return lambda peer: peer.sendall(HEAD % len(body) + body)


def drip(peer: socket.socket) -> None:
    peer.sendall(HEAD % 1000)
    for _ in range(1000):
        peer.sendall(b"x")
        time.sleep(0.05)


def endless(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        peer.sendall(b"x" * 65536)


@pytest.fixture
def served() -> Iterator[Callable[[Answer], str]]:
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def serve(answer: Answer) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def work() -> None:
            try:
                peer, _ = listener.accept()
                with peer:
                    peer.recv(65536)
                    answer(peer)
            except OSError:
                pass  # the other side has heard enough

        threads.append(threading.Thread(target=work))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/keys?x=1"

    yield serve
    for listener in listeners:
        listener.close()
    for thread in threads:
        thread.join()


def test_a_file_is_fetched_whole(served: Callable[[Answer], str]) -> None:
    assert fetch(served(whole(b"x" * 100_000)), 5.0, 100_000) == b"x" * 100_000


BAD: dict[str, Answer] = {
    "too large": whole(b"x" * 1001),
    "endless": endless,
    "not there": lambda peer: peer.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    "elsewhere": lambda peer: peer.sendall(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n"),
    "nothing": lambda _peer: None,
    "no HTTP": lambda peer: peer.sendall(b"hello\r\n\r\n"),
    "a long line": lambda peer: peer.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n"),
    "less than it says": lambda peer: peer.sendall(HEAD % 500 + b"x"),
}


@pytest.mark.parametrize("what", BAD)
def test_all_else_is_refused(served: Callable[[Answer], str], what: str) -> None:
    with pytest.raises((OSError, ValueError)):
        fetch(served(BAD[what]), 5.0, 1000)


def dripping_head(peer: socket.socket) -> None:
    peer.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(1000):
        peer.sendall(b"x")
        time.sleep(0.05)


@pytest.mark.parametrize("answer", [drip, dripping_head, lambda _peer: time.sleep(2)])
def test_a_slow_server_is_left_in_time(served: Callable[[Answer], str], answer: Answer) -> None:
    began_s = time.monotonic()
    with pytest.raises(OSError):
        fetch(served(answer), 0.3, 1000)
    assert time.monotonic() - began_s < 1.5


@pytest.mark.parametrize("url", ["", "file:///etc/passwd", "ftp://x/y", "http://", "keys.json", "http://[x/"])
def test_no_other_address_is_taken(url: str) -> None:
    with pytest.raises(ValueError):
        fetch(url, 1.0, 1000)


def test_a_certificate_that_nobody_has_signed_is_refused(tmp_path: Path) -> None:
    from datetime import UTC, datetime

    from moldau.security.certificates import KeyKind, certificate_pem, key_pem, new_authority, new_key

    key = new_key(KeyKind.ECDSA)
    pair = new_authority("nobody", key, datetime.now(UTC), 1)
    file = tmp_path / "both.pem"
    file.write_bytes(certificate_pem(pair.certificate) + key_pem(pair.key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def work() -> None:
            peer, _ = listener.accept()
            with peer:
                try:
                    context.wrap_socket(peer, server_side=True).recv(1)
                except OSError:
                    pass

        thread = threading.Thread(target=work)
        thread.start()
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(f"https://127.0.0.1:{listener.getsockname()[1]}/keys", 5.0, 1000)
        thread.join()
