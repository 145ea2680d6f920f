"""What this machine charges for a request that means nothing: a Python loop that receives 1 KB and sends 60 bytes.

No broker in Python can need less for a request, and a slow or busy machine raises it as it raises every other number.
`python -m moldau.bench.floor PORT` is the process that is measured.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Sequence

from moldau.bench.measure import Meter
from moldau.bench.server import HOST, Server

REQUEST, ANSWER = bytes(1100), bytes(60)
RECEIVE_BYTES = 1 << 18


class FloorServer(Server):
    name = "Python"

    def command(self) -> Sequence[str]:
        return [sys.executable, "-m", "moldau.bench.floor", str(self.port)]

    def is_ready(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), 1).close()
        except OSError:
            return False
        return True


def cpu_us(server: FloorServer, count: int) -> float:
    with socket.create_connection((HOST, server.port), 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _exchange(connection, count // 10)
        with Meter(server) as meter:
            _exchange(connection, count)
    return meter.cpu_s * 1e6 / count


def _exchange(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        connection.sendall(REQUEST)
        connection.recv(len(ANSWER), socket.MSG_WAITALL)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    buffer = memoryview(bytearray(RECEIVE_BYTES))
    listener = socket.create_server((HOST, port))
    listener.setblocking(False)

    def on_connection() -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        loop.add_reader(connection.fileno(), on_request, connection)

    def on_request(connection: socket.socket) -> None:
        if connection.recv_into(buffer):
            connection.send(ANSWER)
        else:
            loop.remove_reader(connection.fileno())
            connection.close()

    loop.add_reader(listener.fileno(), on_connection)
    await asyncio.Event().wait()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
