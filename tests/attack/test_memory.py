"""Floods end in refusals or in waiting, at less than 300 MB over what an idle broker takes; then it serves as before.

A broker in a process of its own; its peak is the kernel's (VmHWM).
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .client import connect
from .requests import Values, frame
from .target import Target, create_topic

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("attack-memory"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc"),
]

MB = 1 << 20
GROWTH_BYTES_MAX = 300 * MB
PARTITIONS = 5_000
WIDE = "wide"


def memory_of(pid: int, line: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(words.split()[1]) * 1024 for words in status.splitlines() if words.startswith(line))


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    found = Target().start()
    try:
        with found.client(120) as client:
            create_topic(client, WIDE, PARTITIONS)
        yield found
    finally:
        found.stop()


@contextlib.contextmanager
def bounded(target: Target) -> Iterator[None]:
    """What happens within takes little memory, and an honest client is served while it goes on and afterwards."""
    idle = memory_of(target.pid, "VmRSS")
    with contextlib.suppress(OSError):
        Path(f"/proc/{target.pid}/clear_refs").write_text("5")  # the peak begins anew
    yield
    assert target.serves() == "yes"
    growth = memory_of(target.pid, "VmHWM") - idle
    print(f"peak: {growth / MB:.0f} MB above idle")
    assert growth < GROWTH_BYTES_MAX, f"{growth >> 20} MB"


@contextlib.contextmanager
def connections(target: Target, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(target.address)) for _ in range(count)]


def push(opened: list[socket.socket], data: bytes, *, idle_s: float = 1.0) -> int:
    """Send the same on all, as long as the broker takes anything; how much it took."""
    left = {connection: memoryview(data) for connection in opened}
    for connection in opened:
        connection.setblocking(False)
    total, last_s = 0, time.monotonic()
    while left and time.monotonic() - last_s < idle_s:
        for connection in list(left):
            try:
                sent = connection.send(left[connection][: 1 << 17])
            except BlockingIOError:
                continue
            except OSError:
                del left[connection]
                continue
            total, last_s = total + sent, time.monotonic()
            left[connection] = left[connection][sent:]
            if not left[connection]:
                del left[connection]
        time.sleep(0.001)
    return total


def test_answers_that_are_never_read(target: Target) -> None:
    asked = frame("Metadata", 9, {"topics": [{"name": WIDE}]}) * 1000
    with bounded(target), connections(target, 50) as opened:
        assert push(opened, asked)
        for _ in range(20):  # meanwhile it makes as many answers as it ever will
            assert target.serves() == "yes"
            time.sleep(0.1)


def test_giant_answers_that_are_never_read(target: Target) -> None:
    """30,000 partitions in each of 10 requests on each of 50 connections."""
    wanted = [{"partition_index": number % PARTITIONS, "timestamp": -1} for number in range(30_000)]
    values: Values = {"replica_id": -1, "topics": [{"name": WIDE, "partitions": wanted}]}
    with bounded(target), connections(target, 50) as opened:
        assert push(opened, frame("ListOffsets", 7, values) * 10)
        assert target.serves() == "yes"


def test_frames_of_100_mb_that_are_sent_by_halves(target: Target) -> None:
    half = (100_000_000).to_bytes(4, "big") + frame("Produce", 9, {})[4:] + bytes(20 * MB)
    with bounded(target), connections(target, 100) as opened:
        assert push(opened, half) > 100 * MB
        assert target.serves() == "yes"


def test_fetch_sessions_over_partitions_that_are_not_there(target: Target) -> None:
    wanted = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1 << 20} for number in range(45_000)
    ]
    values: Values = {"session_epoch": 0, "topics": [{"topic": "nothing", "partitions": wanted}]}
    data = frame("Fetch", 12, values)
    with bounded(target):
        with connections(target, 20) as opened:
            push(opened, data)
            for connection in opened:
                connection.settimeout(60)
                assert connection.recv(4)
        assert target.serves() == "yes"


def test_large_requests_on_many_connections_that_are_closed_at_once(target: Target) -> None:
    values: Values = {"topics": [{"name": f"no-such-topic-{number}"} for number in range(90_000)]}
    data = frame("Metadata", 9, values)
    with bounded(target):
        for _ in range(5):
            with connections(target, 20) as opened:
                push(opened, data)
        assert target.serves() == "yes"
