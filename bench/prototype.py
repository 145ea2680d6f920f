"""The least that a broker in Python can do for a request, measured beside Moldau: the yardstick of its budgets.

The budgets for single requests were set on another machine, as multiples of what a prototype of the hot path needed
there. Time per request depends on the machine, and on its neighbours, more than on the broker: here the same steps
run as a process of their own, in the same run as everything else, and what counts is how often Moldau needs their time.

It keeps one log and serves two requests, as `raw.py` makes them: Produce v9 with one batch (receive, parse, CRC, offset
in place, append, answer) and Fetch v12 of one partition (parse, look up the position, read, answer; or wait for the
time-out).
It leaves out everything else: other versions, topics, checks, producers, indexes, restarts, flow control, errors.
`python -m bench.prototype PORT FOLDER` is the process that is measured.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence

from crc32c import crc32c

from bench.measure import Meter, Reading
from bench.raw import RawConnection, fetch_request, frame, produce_request
from bench.raw_load import (
    FETCH_EMPTY,
    FETCH_SMALL,
    IN_FLIGHT,
    MESSAGE_BYTES,
    POLL_WAIT_MS,
    PRODUCE_ONE_BY_ONE,
    PRODUCE_PIPELINED,
    batch_of,
    exchange,
    fetch_all,
)
from bench.server import HOST, Server

TOPIC = "prototype"
RECEIVE_BYTES = 1 << 18

_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_PRODUCE = struct.Struct(">BhiBB")  # no transactional id, acks, timeout, topics, length of the topic's name
_FETCH = struct.Struct(
    ">iiiibiiBB"
)  # replica, wait, min and max bytes, isolation, session, epoch, topics, name
_FETCH_PARTITION = struct.Struct(">iiqiqi")  # index, leader epoch, offset, last epoch, log start, max bytes
_BATCH = struct.Struct(">qiiBIhiqqqhii")
_OFFSET_AND_EPOCH = struct.Struct(">qii")
_PRODUCED = struct.Struct(f">iixBB{len(TOPIC)}sBihqqqBxxxix")
_FETCHED = struct.Struct(f">iixihiBB{len(TOPIC)}sBihqqqBiBB")


class PrototypeServer(Server):
    name = "Prototype"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "bench.prototype", str(self.port), str(self.folder)]

    def is_ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True


def small_requests(server: Server, count: int) -> Iterator[Reading]:
    """The same loads as `raw_load` has for brokers."""
    with RawConnection(server.bootstrap_servers) as connection:
        request = frame(produce_request(TOPIC, 0, batch_of(1)))
        exchange(connection, request, count // 10, 1)
        for name, in_flight in ((PRODUCE_ONE_BY_ONE, 1), (PRODUCE_PIPELINED, IN_FLIGHT)):
            with Meter(server) as meter:
                exchange(connection, request, count, in_flight)
            yield Reading(name, meter.cpu_s * 1e6 / count, "us")
        fetches = [frame(fetch_request(TOPIC, 0, offset, bytes_max=1200)) for offset in range(count // 2)]
        with Meter(server) as meter:
            fetch_all(connection, fetches, MESSAGE_BYTES)
        yield Reading(FETCH_SMALL, meter.cpu_s * 1e6 / len(fetches), "us")
        polls = count // 20
        empty = frame(fetch_request(TOPIC, 0, 1 << 40, wait_ms=POLL_WAIT_MS))
        with Meter(server) as meter:
            exchange(connection, empty, polls, 1)
        yield Reading(FETCH_EMPTY, meter.cpu_s * 1e6 / polls, "us")


class Prototype:
    """One log in one file, served on the running loop."""

    def __init__(self, folder: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._file = os.open(os.path.join(folder, "log"), os.O_RDWR | os.O_CREAT, 0o644)
        self._size = 0
        self._next_offset = 0
        self._positions: dict[int, tuple[int, int]] = {}
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))

    def on_readable(self, connection: socket.socket) -> None:
        buffer = self._buffer
        filled = connection.recv_into(buffer)
        if not filled:
            self._loop.remove_reader(connection.fileno())
            connection.close()
            return
        position = 0
        answers = []
        while position < filled:
            end = position + 4 + _SIZE.unpack_from(buffer, position)[0]
            while end > filled:  # rare: the load's requests are small and few
                filled += connection.recv_into(buffer[filled:])
            api_key, _, correlation_id, name_bytes = _HEADER.unpack_from(buffer, position + 4)
            body = position + 15 + name_bytes
            if api_key == 0:
                answers.append(self._produce(correlation_id, body))
            else:
                answer = self._fetch(connection, correlation_id, body)
                if answer is not None:
                    answers.append(answer)
            position = end
        if answers:
            connection.send(b"".join(answers) if len(answers) > 1 else answers[0])

    def _produce(self, correlation_id: int, position: int) -> bytes:
        buffer = self._buffer
        _, _acks, _timeout, _, length = _PRODUCE.unpack_from(buffer, position)
        topic = str(buffer[position + 9 : position + 8 + length], "utf-8")
        start = position + 8 + length + 7  # behind partitions, index and the two bytes of the records' length
        header = _BATCH.unpack_from(buffer, start)
        stop = start + 12 + header[1]
        if crc32c(buffer[start + 21 : stop]) != header[4]:
            raise ValueError("a damaged batch")
        offset = self._next_offset
        _OFFSET_AND_EPOCH.pack_into(buffer, start, offset, header[1], 0)
        os.pwrite(self._file, buffer[start:stop], self._size)
        self._positions[offset] = (self._size, stop - start)
        self._size += stop - start
        self._next_offset = offset + header[6] + 1
        return _PRODUCED.pack(
            _PRODUCED.size - 4,
            correlation_id,
            2,
            len(topic) + 1,
            topic.encode(),
            2,
            0,
            0,
            offset,
            -1,
            0,
            1,
            0,
        )

    def _fetch(self, connection: socket.socket, correlation_id: int, position: int) -> bytes | None:
        _, wait_ms, _, _, _, _, _, _, length = _FETCH.unpack_from(self._buffer, position)
        topic = str(self._buffer[position + _FETCH.size : position + _FETCH.size - 1 + length], "utf-8")
        _, _, offset, _, _, _ = _FETCH_PARTITION.unpack_from(self._buffer, position + _FETCH.size + length)
        place = self._positions.get(offset)
        if place is None:
            self._loop.call_later(wait_ms / 1000, self._answer_empty, connection, correlation_id, topic)
            return None
        return self._fetched(correlation_id, topic, os.pread(self._file, place[1], place[0]))

    def _answer_empty(self, connection: socket.socket, correlation_id: int, topic: str) -> None:
        connection.send(self._fetched(correlation_id, topic, b""))

    def _fetched(self, correlation_id: int, topic: str, records: bytes) -> bytes:
        end = self._next_offset
        length = len(records) + 1
        head = _FETCHED.pack(
            _FETCHED.size - 4 + len(records) + 3, correlation_id, 0, 0, 0, 2, len(topic) + 1, topic.encode(),
            2, 0, 0, end, end, 0, 0, -1, length & 0x7F | 0x80, length >> 7,
        )  # fmt: skip
        return b"".join((head, records, b"\0\0\0"))


async def serve(port: int, folder: str) -> None:
    loop = asyncio.get_running_loop()
    prototype = Prototype(folder)
    listener = socket.create_server((HOST, port))
    listener.setblocking(False)

    def on_connection() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop.add_reader(connection.fileno(), prototype.on_readable, connection)

    loop.add_reader(listener.fileno(), on_connection)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
