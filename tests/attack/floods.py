"""Answers that nobody reads, and connections without an end."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial

from . import target as content
from .attack import HOLD_S, Attack, CarryOut, Outcome, Prepare, several, unread
from .client import connect, volley
from .requests import frame
from .target import Target, create_topic, produce

CONNECTIONS_MAX = 9_000
HALF_FRAMES = 100
HALF_FRAME_BYTES = 20_000_000
FRAME_BYTES = 100_000_000
HTTP_HEADS = 100
PATIENCE_S = 4.0
PIPELINED = 1_000
LOADED_TOPIC = "attack-loaded"
LOADED_BATCHES = 50


def loaded_topic(target: Target) -> None:
    """50 MB of records."""
    with target.client() as client:
        create_topic(client, LOADED_TOPIC, 1)
        for _ in range(LOADED_BATCHES):
            produce(client, LOADED_TOPIC, 0, content.small_batch(value=bytes(1_000_000)))


def unread_answers() -> Iterator[Attack]:
    for what, make in _LARGE.items():
        for connections in (1, 50):
            where = "a connection that never reads" if connections == 1 else "50 connections that never read"
            yield Attack(
                f"{what}, {PIPELINED:,} pipelined on {where}",
                unread(partial(_many, make), connections),
                is_quick=connections == 50,
            )


def _many(make: Callable[[Target], bytes], target: Target) -> bytes:
    return make(target) * PIPELINED


def _all_metadata(target: Target) -> bytes:
    target.ensure(content.wide_topic)
    return frame("Metadata", 12, {"topics": None, "allow_auto_topic_creation": False})


def _all_configs(_: Target) -> bytes:
    wanted = {"resource_type": 4, "resource_name": "1", "configuration_keys": None}
    return frame("DescribeConfigs", 4, {"resources": [wanted], "include_documentation": True})


def _heavy_groups(target: Target) -> bytes:
    target.ensure(content.heavy_group)
    return frame("DescribeGroups", 5, {"groups": [content.HEAVY_GROUP] * 10})


def _fetch(target: Target) -> bytes:
    target.ensure(loaded_topic)
    wanted = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}]
    return frame("Fetch", 12, {"topics": [{"topic": LOADED_TOPIC, "partitions": wanted}]})


def _log_dirs(target: Target) -> bytes:
    target.ensure(content.wide_topic)
    return frame("DescribeLogDirs", 4, {"topics": None})


_LARGE: dict[str, Callable[[Target], bytes]] = {
    "Metadata of 10,000 partitions": _all_metadata,
    "DescribeConfigs of a broker": _all_configs,
    "DescribeGroups, 9 MB": _heavy_groups,
    "Fetch of 50 MB": _fetch,
    "DescribeLogDirs of 10,000 partitions": _log_dirs,
}


def connections() -> Iterator[Attack]:
    yield Attack(f"{CONNECTIONS_MAX:,} idle connections", idle_connections(CONNECTIONS_MAX))
    yield Attack("2,000 idle connections", idle_connections(2_000), is_quick=True)
    yield Attack(
        "2,000 idle connections to a broker with 1,024 descriptors",
        idle_connections(2_000),
        is_quick=True,
        open_files_max=1024,
    )
    yield Attack(
        "1,000 connections opened and closed, ten times", opened_and_closed(10, 1_000), is_quick=True
    )
    yield Attack(
        f"{HALF_FRAMES} connections that send 20 MB of a frame of 100 MB", half_frames, is_quick=True
    )
    yield Attack(f"{HALF_FRAMES} connections that announce 100 MB", announced_frames, is_quick=True)
    yield Attack(
        f"{HTTP_HEADS} half-sent HTTP heads; /health must answer", http_heads, is_quick=True, on_kafka=False
    )


def idle_connections(count: int) -> Prepare:
    def prepare(target: Target) -> CarryOut:
        def carry_out(deadline_s: float) -> Outcome:
            with ExitStack() as stack:
                opened = 0
                with suppress(OSError):
                    while opened < count and time.monotonic() < deadline_s:
                        stack.enter_context(connect(target.address, timeout_s=2))
                        opened += 1
                serves = _served_soon(target, time.monotonic() + PATIENCE_S)
            return Outcome(0, f"{opened:,} open", complaint=_beside(serves))

        return carry_out

    return prepare


def _served_soon(target: Target, until_s: float) -> str:
    """An honest client that is sent away tries again, as they do."""
    while (serves := target.serves()) != "yes" and time.monotonic() < until_s:
        time.sleep(0.1)
    return serves


def _beside(serves: str) -> str:
    """What an honest client met meanwhile."""
    return "" if serves == "yes" else f"honest client: {serves}"


def opened_and_closed(rounds: int, count: int) -> Prepare:
    def prepare(target: Target) -> CarryOut:
        def carry_out(deadline_s: float) -> Outcome:
            done = 0
            while done < rounds and time.monotonic() < deadline_s:
                with several(target.address, count):
                    done += 1
            return Outcome(0, f"{done} rounds", is_late=done < rounds)

        return carry_out

    return prepare


def half_frames(target: Target) -> CarryOut:
    return _partial_frames(target, bytes(HALF_FRAME_BYTES))


def announced_frames(target: Target) -> CarryOut:
    return _partial_frames(target, bytes(10))


def _partial_frames(target: Target, part: bytes) -> CarryOut:
    """The size, the head of a Produce, and not all of the rest; an honest client works beside."""
    data = struct.pack(">ihhih", FRAME_BYTES, 0, 9, 1, -1) + b"\0" + part

    def carry_out(deadline_s: float) -> Outcome:
        with several(target.address, HALF_FRAMES) as opened:
            until = min(deadline_s, time.monotonic() + 3 * HOLD_S)
            sent = volley(opened, data, deadline_s=until, answers=0, reads=False)
            time.sleep(HOLD_S / 3)
            serves = target.serves()
        return Outcome(sent.sent_bytes, f"{sent.closed} closed", complaint=_beside(serves))

    return carry_out


def http_heads(target: Target) -> CarryOut:
    assert target.http_address is not None
    address = target.http_address

    def carry_out(_: float) -> Outcome:
        with several(address, HTTP_HEADS) as opened:
            for connection in opened:
                with suppress(OSError):
                    connection.sendall(b"GET /health HTTP/1.1\r\nHost:")
            time.sleep(0.2)
            health = _health(address)
        complaint = "" if " 200 " in health else f"/health: {health}"
        return Outcome(HTTP_HEADS * 27, f"/health: {health}", complaint=complaint)

    return carry_out


def _health(address: str) -> str:
    """The status line, or what came instead."""
    with suppress(OSError), connect(address, timeout_s=5) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\n\r\n")
        return _first_line(connection) or "closed without an answer"
    return "no answer"


def _first_line(connection: socket.socket) -> str:
    return connection.makefile("rb").readline().decode(errors="replace").strip()
