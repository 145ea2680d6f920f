"""A connection: frames in, answers out in order, slow readers held back, bad input ended."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base import limits
from moldau.base.invariant import InvariantBroken
from moldau.broker import backlog
from moldau.broker.backlog import Backlog
from moldau.broker.connection import Connection, SecuredConnection
from moldau.broker.intake import Intake
from moldau.broker.metrics.counters import Metrics
from moldau.broker.slot import Slot
from moldau.runtime.line import Line


class FakeStream:
    """A socket whose kernel buffers are lists that the test fills and drains."""

    local = ("127.0.0.1", 9092)
    peer = ("127.0.0.1", 50000)

    def __init__(self) -> None:
        self.incoming: deque[bytes] = deque()
        self.outgoing = bytearray()
        self.room = 1 << 30
        self.is_open = True
        self.is_ended = False
        self.readable: Callable[[], object] | None = None
        self.writable: Callable[[], object] | None = None

    def recv_into(self, buffer: Any) -> int:
        if not self.incoming:
            if self.is_ended:
                return 0
            raise BlockingIOError
        chunk = self.incoming.popleft()
        taken = chunk[: len(buffer)]
        if len(chunk) > len(taken):
            self.incoming.appendleft(chunk[len(taken) :])
        buffer[: len(taken)] = taken
        return len(taken)

    def send(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.outgoing += taken
        return len(taken)

    def sendmsg(self, buffers: list[bytes]) -> int:
        return self.send(b"".join(bytes(b) for b in buffers))

    def sendfile(self, file: Any, position: int, length: int) -> int:
        return self.send(file.pread(length, position))

    def watch_readable(self, callback: Callable[[], object]) -> None:
        self.readable = callback

    def unwatch_readable(self) -> None:
        self.readable = None

    def watch_writable(self, callback: Callable[[], object]) -> None:
        self.writable = callback

    def unwatch_writable(self) -> None:
        self.writable = None

    def close(self) -> None:
        self.is_open = False

    def give(self, *chunks: bytes) -> None:
        for chunk in chunks:
            self.incoming.append(chunk)
            while self.readable and self.incoming:  # a socket with bytes left stays readable
                self.readable()

    def drain(self) -> None:
        self.room = 1 << 30
        while self.writable and self.is_open:
            self.writable()


class FakeFile:
    path = "a.log"

    def __init__(self, data: bytes) -> None:
        self.data = data

    def pread(self, length: int, position: int) -> bytes:
        return self.data[position : position + length]


class FakeServer:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.clock = SimpleNamespace(monotonic=lambda: self.now_s)
        self.soon: deque[Callable[[], object]] = deque()
        self.later: list[Callable[[], object]] = []
        self.tasks = SimpleNamespace(call_soon=self.soon.append, call_later=self._call_later)
        self.line = Line(self.clock, self.tasks)  # type: ignore[arg-type]
        self.intake = Intake(self.clock, self.tasks, 10 << 20)  # type: ignore[arg-type]
        self.backlog = Backlog()
        self.metrics = Metrics()
        self.frame_bytes_max = 1 << 20
        self.receive_view = self.receive_buffer = memoryview(bytearray(limits.RECEIVE_BUFFER_BYTES))
        self.closed: list[Connection] = []
        self.failure: BaseException | None = None

    def _call_later(self, _delay_s: float, callback: Callable[[], object]) -> Any:
        self.later.append(callback)
        return SimpleNamespace(cancel=lambda: self.later.remove(callback))

    def on_connection_closed(self, connection: Connection) -> None:
        self.closed.append(connection)

    def refuse(self, connection: Connection, first: bytes, error: Exception) -> None:
        self.metrics.malformed_requests += 1
        connection.close(str(error))

    def end(self, connection: Connection) -> None:
        connection.close(None)

    def fail(self, error: BaseException) -> None:
        self.failure = error

    def turn(self) -> None:
        while self.soon:
            self.soon.popleft()()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def request(number: int, payload: bytes = b"") -> bytes:
    """Small numbers are produces (API key 0), those from OTHER on are not."""
    return frame(struct.pack(">q", number) + payload)


OTHER = 1 << 48


class Peer:
    """A connection whose dispatcher echoes each frame's number, unless told otherwise."""

    def __init__(
        self, server: FakeServer | None = None, kind: Callable[..., Connection] = Connection
    ) -> None:
        self.server = server or FakeServer()
        self.stream = FakeStream()
        self.seen: list[bytes] = []
        self.slots: list[Slot] = []
        self.behaviour: Callable[[bytes], Any] = lambda body: frame(body[:8])
        self.connection = kind(self.server, self.stream, "PLAINTEXT", self.dispatch)

    def dispatch(self, connection: Connection, view: memoryview) -> Any:
        body = bytes(view)
        self.seen.append(body)
        answer = self.behaviour(body)
        if answer == "park":
            self.slots.append(connection.park(is_produce=body[:2] == bytes(2)))
            return None
        return answer

    def numbers(self) -> list[int]:
        out, found = bytes(self.stream.outgoing), []
        while out:
            (size,) = struct.unpack_from(">i", out)
            found.append(struct.unpack_from(">q", out, 4)[0])
            out = out[4 + size :]
        return found


def test_several_frames_of_one_receive_are_answered_with_one_send() -> None:
    peer = Peer()
    peer.stream.give(request(1) + request(2) + request(3))
    assert peer.numbers() == [1, 2, 3]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 11, 17])
def test_frames_may_arrive_in_any_pieces(size: int) -> None:
    peer = Peer()
    data = b"".join(request(n, b"x" * n) for n in range(20))
    peer.stream.give(*(data[i : i + size] for i in range(0, len(data), size)))
    assert peer.numbers() == list(range(20))
    assert [len(body) for body in peer.seen] == [8 + n for n in range(20)]


def test_a_frame_larger_than_the_shared_buffer_arrives_whole() -> None:
    peer = Peer()
    payload = bytes(range(256)) * 3000
    data = request(1, payload) + request(2)
    peer.stream.give(*(data[i : i + 100_000] for i in range(0, len(data), 100_000)))
    assert peer.seen[0][8:] == payload and peer.numbers() == [1, 2]


def test_an_announced_size_costs_memory_only_as_it_arrives() -> None:
    peer = Peer()
    peer.server.frame_bytes_max = peer.connection.frame_bytes_max = 100 << 20
    peer.stream.give(struct.pack(">i", 100 << 20) + b"\0\0c")
    assert peer.connection._partial is not None
    assert len(peer.connection._partial) <= limits.PRIVATE_BUFFER_BYTES_MIN


@pytest.mark.parametrize("size", [-1, 0, 7, (1 << 20) + 1, 2**31 - 1])
def test_a_frame_of_a_forbidden_size_ends_the_connection(size: int) -> None:
    peer = Peer()
    peer.stream.give(request(1) + struct.pack(">i", size) + b"0123456789")
    assert not peer.stream.is_open and peer.server.closed == [peer.connection]


def test_a_parked_answer_holds_back_later_ones() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park" if body[7] == 1 else frame(body[:8])
    peer.stream.give(request(1) + request(2) + request(3))
    assert peer.numbers() == []
    peer.slots[0].fill(request(1))
    assert peer.numbers() == [1, 2, 3]


def test_parked_answers_filled_in_any_order_leave_in_request_order() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(*(request(n) for n in range(5)))
    for n in (3, 1, 4, 0, 2):
        peer.slots[n].fill(request(n))
    assert peer.numbers() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("first", "second"), [(OTHER, 1), (1, OTHER), (OTHER, OTHER + 1)])
def test_a_request_waits_for_the_one_before_it_unless_both_are_produces(first: int, second: int) -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(request(first) + request(second))
    assert len(peer.seen) == 1 and peer.stream.readable is None
    peer.slots[0].fill(request(first))
    peer.server.turn()
    assert len(peer.seen) == 2
    assert peer.stream.readable is not None
    peer.slots[1].fill(request(second))
    assert peer.numbers() == [first, second]


def test_a_request_that_comes_before_the_kept_ones_are_served_waits_behind_them() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(request(OTHER) + request(OTHER + 1))
    peer.slots[0].fill(request(OTHER))
    peer.stream.give(request(OTHER + 2))  # the client had its answer before the broker's next turn
    peer.server.turn()
    peer.slots[1].fill(request(OTHER + 1))
    peer.server.turn()
    assert peer.stream.is_open
    peer.slots[2].fill(request(OTHER + 2))
    assert peer.numbers() == [OTHER, OTHER + 1, OTHER + 2]


def test_a_client_that_has_stopped_reading_may_be_ended_as_idle() -> None:
    peer = Peer()
    peer.stream.room = 0
    peer.stream.give(request(1))
    assert peer.connection._queue and peer.connection.is_idle
    peer.behaviour = lambda body: "park"
    peer.stream.give(request(2))
    assert not peer.connection.is_idle


def test_a_request_without_an_answer_leaves_no_gap() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(request(1) + request(2))
    peer.slots[1].fill(request(2))
    peer.slots[0].fill(None)
    assert peer.numbers() == [2]


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    peer = Peer()
    peer.behaviour = lambda body: frame(body[:8] + bytes(100_000))
    peer.stream.room = 50_000
    peer.stream.give(*(request(n) for n in range(100)))
    assert peer.stream.readable is None
    assert len(peer.seen) < 20
    assert peer.connection._held_bytes < limits.OUTPUT_BYTES_HELD_MAX + 200_000


def test_a_client_that_reads_again_is_served_again_from_where_it_stopped() -> None:
    peer = Peer()
    peer.behaviour = lambda body: frame(body[:8] + bytes(100_000))
    peer.stream.room = 50_000
    peer.stream.give(b"".join(request(n) for n in range(100)))
    for _ in range(100):
        peer.stream.drain()
        peer.server.turn()
    assert peer.numbers() == list(range(100))
    assert peer.stream.readable is not None and peer.connection._held_bytes == 0


def test_too_many_parked_requests_pause_reading_until_some_are_answered() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(b"".join(request(n) for n in range(limits.ANSWERS_PARKED_MAX + 50)))
    assert len(peer.seen) == limits.ANSWERS_PARKED_MAX and peer.stream.readable is None
    for slot in list(peer.slots):
        slot.fill(request(0))
    peer.server.turn()
    assert len(peer.seen) == limits.ANSWERS_PARKED_MAX + 50 and peer.stream.readable is not None


def test_file_parts_go_out_between_their_head_and_tail_whatever_the_socket_takes() -> None:
    peer = Peer()
    data = bytes(range(256)) * 100
    part = SimpleNamespace(file=FakeFile(data), position=10, length=20_000)
    peer.behaviour = lambda body: [b"head", part, b"tail"]
    peer.stream.room = 7
    peer.stream.give(request(1))
    while peer.stream.writable:
        peer.stream.room = 777
        peer.stream.writable()
    assert bytes(peer.stream.outgoing) == b"head" + data[10:20_010] + b"tail"


def test_a_file_that_ends_too_early_ends_the_connection() -> None:
    peer = Peer()
    part = SimpleNamespace(file=FakeFile(b"abc"), position=0, length=10)
    peer.behaviour = lambda body: [b"head", part]
    peer.stream.give(request(1))
    peer.stream.drain()
    assert not peer.stream.is_open


def test_the_end_of_the_stream_cancels_what_waits() -> None:
    peer = Peer()
    peer.behaviour = lambda body: "park"
    peer.stream.give(request(1))
    cancelled: list[int] = []
    peer.slots[0].on_cancel = lambda: cancelled.append(1)
    peer.stream.is_ended = True
    assert peer.stream.readable is not None
    peer.stream.readable()
    assert cancelled == [1] and not peer.slots[0].is_wanted
    peer.slots[0].fill(request(1))
    assert peer.numbers() == []


def test_a_failing_handler_ends_only_its_connection() -> None:
    peer = Peer()
    peer.behaviour = lambda body: 1 // 0
    peer.stream.give(request(1))
    assert not peer.stream.is_open and peer.server.failure is None


def test_a_broken_invariant_stops_the_node() -> None:
    peer = Peer()

    def broken(body: bytes) -> bytes:
        raise InvariantBroken("offset given twice")

    peer.behaviour = broken
    peer.stream.give(request(1))
    assert isinstance(peer.server.failure, InvariantBroken)


def test_a_connection_that_has_used_its_share_goes_on_in_line() -> None:
    """Twenty requests in one buffer, each of which takes half a share: two are served in a turn."""
    peer = Peer()

    def dear(body: bytes) -> bytes:
        peer.server.now_s += limits.TURN_SHARE_S / 2
        return frame(body[:8])

    peer.behaviour = dear
    peer.stream.give(b"".join(request(n) for n in range(20)))
    assert len(peer.seen) == 2 and peer.stream.readable is None
    turns = 0
    while peer.server.soon:
        before = len(peer.seen)
        peer.server.soon.popleft()()
        assert len(peer.seen) - before <= 2
        turns += 1
    assert peer.numbers() == list(range(20)) and turns >= 10
    assert peer.stream.readable is not None


def test_a_connection_with_dear_requests_one_by_one_waits_in_line_too() -> None:
    peer = Peer()

    def dear(body: bytes) -> bytes:
        peer.server.now_s += 2 * limits.TURN_SHARE_S
        return frame(body[:8])

    peer.behaviour = dear
    peer.stream.give(request(1))
    assert peer.numbers() == [1] and peer.stream.readable is None
    peer.server.turn()
    assert peer.stream.readable is not None


def crowd(count: int, requests: int, taken_s: float) -> list[Peer]:
    """Connections to one server that ask at the same time, each for several things that take so long."""
    server = FakeServer()
    peers = [Peer(server) for _ in range(count)]

    def dear(body: bytes) -> bytes:
        server.now_s += taken_s
        return frame(body[:8])

    for peer in peers:
        peer.behaviour = dear
        peer.stream.give(b"".join(request(number) for number in range(requests)))
    return peers


def test_a_crowd_shares_one_turn_and_all_are_served_in_the_next_ones() -> None:
    """Each may take 2 ms of a turn, a hundred of them not 200: once 8 ms are used up each gets one request more."""
    taken_s = limits.TURN_SHARE_S / 20
    peers = crowd(100, 20, taken_s)
    server = peers[0].server
    in_full_turn = [len(peer.seen) for peer in peers].count(1)
    assert in_full_turn >= 100 - limits.TURN_S / limits.TURN_SHARE_S - 1
    assert server.now_s <= limits.TURN_S + limits.TURN_SHARE_S + 100 * taken_s
    server.turn()
    assert all(peer.numbers() == list(range(20)) for peer in peers)
    assert all(peer.stream.readable is not None for peer in peers)


def test_one_who_asks_little_goes_on_reading_in_a_turn_that_is_used_up() -> None:
    """It need not wait for a turn: that would be behind all who have used up theirs."""
    peers = crowd(100, 1, limits.TURN_SHARE_S / 20)
    assert all(peer.numbers() == [0] and peer.stream.readable is not None for peer in peers)


def test_little_of_an_answer_is_written_in_a_turn_that_is_used_up() -> None:
    server = FakeServer()
    peer = Peer(server)
    peer.behaviour = lambda body: [frame(bytes(1 << 20))]
    server.line.this_turn.spend(2 * limits.TURN_S)
    peer.stream.give(request(1))
    assert len(peer.stream.outgoing) == limits.WRITTEN_IN_A_FULL_TURN_BYTES_MAX
    server.turn()
    peer.stream.drain()
    assert len(peer.stream.outgoing) == 4 + (1 << 20)


def test_much_of_a_request_is_not_received_in_a_turn_that_is_used_up() -> None:
    server = FakeServer()
    peer = Peer(server)
    data = request(1, bytes(1 << 19))
    peer.stream.give(data[: 1 << 18])
    held = peer.connection._filled
    server.line.this_turn.spend(2 * limits.TURN_S)
    peer.stream.incoming.append(data[1 << 18 :])
    peer.connection.on_readable()
    assert peer.connection._filled == held and not peer.numbers()
    assert peer.stream.readable is None
    server.turn()
    assert peer.stream.readable is not None, "watched anew, lest a reset is missed"
    peer.stream.give(b"")
    assert peer.numbers() == [1]


class SecuredPeer(Peer):
    """Its stream has to decrypt, whether something comes of it or not."""

    def __init__(self, server: FakeServer, decrypting_s: float) -> None:
        super().__init__(server, SecuredConnection)
        received = self.stream.recv_into

        def recv_into(buffer: Any) -> int:
            server.now_s += decrypting_s
            return received(buffer)

        self.stream.recv_into = recv_into  # type: ignore[method-assign]


@pytest.mark.parametrize("data", [b"", request(1)[:5], request(1)])
def test_decrypting_counts_once_for_the_turn_whatever_comes_of_it(data: bytes) -> None:
    server = FakeServer()
    peer = SecuredPeer(server, limits.TURN_S / 4)

    def dear(body: bytes) -> bytes:
        server.now_s += limits.TURN_SHARE_S / 2
        return frame(body[:8])

    peer.behaviour = dear
    if data:
        peer.stream.incoming.append(data)
    peer.connection.on_readable()
    assert server.line.this_turn.used_s == pytest.approx(server.now_s)
    for _ in range(3):
        peer.connection.on_readable()
    assert server.line.this_turn.is_used_up


def test_a_large_request_over_tls_goes_on_in_a_turn_that_is_used_up() -> None:
    """How much of it is decrypted then is the stream's: it may never find a turn that is not."""
    server = FakeServer()
    peer = SecuredPeer(server, limits.TURN_S)
    data = request(1, bytes(1 << 17))
    for start in range(0, len(data), 1 << 14):
        server.line.this_turn.spend(limits.TURN_S)
        peer.stream.incoming.append(data[start : start + (1 << 14)])
        while peer.stream.incoming and peer.stream.readable is not None:
            peer.stream.readable()
    assert peer.numbers() == [1]


def test_only_a_produce_may_announce_more_than_is_decoded() -> None:
    size = limits.DECODED_REQUEST_BYTES_MAX + 1
    peer = Peer()
    peer.server.frame_bytes_max = peer.connection.frame_bytes_max = 100 << 20
    peer.stream.give(struct.pack(">i", size) + struct.pack(">hhi", 1, 13, 7))
    assert not peer.stream.is_open and peer.seen == []


def peers(count: int, *, bytes_max: int) -> list[Peer]:
    """Connections of one server whose intake has so much room."""
    found = [Peer() for _ in range(count)]
    server = found[0].server
    server.intake.bytes_max = bytes_max
    for peer in found:
        peer.server = peer.connection._server = server  # type: ignore[assignment]
        peer.connection.frame_bytes_max = 10 << 20
    return found


def give_in_turns(found: list[Peer], data: bytes, *, turns: int) -> None:
    """All send the same at the same pace, as long as the server goes along."""
    for peer in found:
        peer.stream.incoming.append(data)
    for _ in range(turns):
        for peer in found:
            if peer.stream.readable and peer.stream.incoming:
                peer.stream.readable()
        found[0].server.turn()


def pieces(data: bytes) -> list[bytes]:
    return [data[i : i + 50_000] for i in range(0, len(data), 50_000)]


LARGE = request(1, bytes(1_000_000))


def test_a_frame_that_arrives_slowly_gives_way_to_those_who_wait() -> None:
    slow, other = peers(2, bytes_max=100_000)
    server = slow.server
    slow.stream.give(*pieces(LARGE[:200_000]))
    other.stream.give(*pieces(LARGE))
    assert other.stream.readable is None and server.later
    server.now_s += limits.FRAME_S_MAX + 1
    server.later.pop()()
    assert not slow.stream.is_open and other.stream.is_open
    server.turn()
    while other.stream.readable and other.stream.incoming:
        other.stream.readable()
    assert len(other.seen) == 1 and server.intake.bytes_held == 0


def test_the_room_of_a_muted_connection_is_for_those_who_wait() -> None:
    """Over its quota, it would hold the half of a large frame for as long as it is muted."""
    muted, other = peers(2, bytes_max=100_000)
    server = muted.server
    muted.stream.give(*pieces(LARGE[:200_000]))
    muted.connection.mute(600.0)
    muted_timer = server.later.pop()
    other.stream.give(*pieces(LARGE))
    server.now_s += limits.FRAME_S_MAX + 1
    server.later.append(muted_timer)
    server.later.pop(0)()
    assert not muted.stream.is_open and other.stream.is_open
    assert muted_timer not in server.later
    server.turn()
    while other.stream.readable and other.stream.incoming:
        other.stream.readable()
    assert len(other.seen) == 1 and server.intake.bytes_held == 0


def test_a_request_that_is_kept_counts_until_it_is_answered_or_its_client_gone() -> None:
    peer = Peer()
    slot = peer.connection.park(held_bytes=1000)
    kept = peer.connection.park(held_bytes=500)
    assert peer.server.intake.bytes_held == 1500
    slot.fill(b"x")
    assert peer.server.intake.bytes_held == 500
    peer.connection.close(None)
    kept.fill(b"x")
    assert peer.server.intake.bytes_held == 0


def test_answers_that_nobody_takes_have_a_bound_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "BACKLOG_BYTES_HELD", 1000)
    monkeypatch.setattr(backlog, "BACKLOG_BYTES_MAX", 10_000)
    first, second, third = Peer(), Peer(), Peer()
    for peer, size in ((first, 600), (second, 9_000), (third, 500)):
        peer.connection._server = first.server  # type: ignore[assignment]
        peer.behaviour = lambda body, size=size: frame(bytes(size))
        peer.stream.room = 0
    first.stream.give(request(1), request(2))
    assert len(first.seen) == 2 and first.server.backlog.bytes_held == 2 * 604
    first.stream.give(request(3))
    assert len(first.seen) == 2  # it is served nothing more before it takes what it was given
    second.stream.give(request(1))
    assert not second.stream.is_open and first.stream.is_open
    third.stream.give(request(1))
    assert third.stream.is_open and first.server.backlog.bytes_held == 2 * 604 + 504
    first.stream.drain()
    assert first.stream.readable is not None
    first.stream.readable()
    assert len(first.seen) == 3
    third.connection.close(None)
    first.stream.drain()
    assert first.server.backlog.bytes_held == 0


def test_frames_that_arrive_together_and_have_no_room_together_are_all_served() -> None:
    found = peers(6, bytes_max=4 << 20)
    data = request(1, bytes(2 << 20))
    give_in_turns(found, data, turns=300)
    assert [len(peer.seen) for peer in found] == [1] * 6
    assert found[0].server.intake.bytes_held == 0


def test_a_small_request_in_two_pieces_is_served_while_the_intake_is_full() -> None:
    holder, client = peers(2, bytes_max=1 << 20)
    give_in_turns([holder], struct.pack(">i", 8 << 20) + bytes(4 << 20), turns=300)
    holder.server.intake.take(holder.server.intake.bytes_max - holder.server.intake.bytes_held)
    whole = request(7, bytes(100))
    client.stream.give(whole[:20], whole[20:])
    client.server.turn()
    assert client.numbers() == [7] and holder.stream.is_open


def test_a_whole_request_that_waits_behind_another_is_not_one_that_arrives_slowly() -> None:
    """A client with a long poll under way asks something else; meanwhile others fill the intake."""
    client, ahead, other = peers(3, bytes_max=100_000)
    client.behaviour = lambda body: "park"
    client.stream.give(request(OTHER), request(OTHER + 1))
    assert len(client.seen) == 1  # the second is kept
    for peer in (ahead, other):
        peer.stream.give(struct.pack(">i", 1 << 19) + bytes(100_000), bytes(100_000))
    assert other.stream.readable is None
    client.server.now_s += limits.FRAME_S_MAX + 1
    client.server.later.pop()()
    assert client.stream.is_open and other.stream.is_open and not ahead.stream.is_open


def test_who_was_closed_while_it_waited_for_room_is_not_heard_of_again() -> None:
    holder, waiter = peers(2, bytes_max=1 << 20)
    give_in_turns([holder], struct.pack(">i", 8 << 20) + bytes(4 << 20), turns=300)
    give_in_turns([waiter], struct.pack(">i", 8 << 20) + bytes(4 << 20), turns=300)
    waiter.connection.close(None)
    holder.connection.close(None)
    holder.server.turn()
    assert holder.server.intake.bytes_held == 0 and waiter.stream.readable is None
    assert waiter.seen == holder.seen == []


def test_a_muted_connection_is_answered_and_not_read_until_all_its_pauses_are_over() -> None:
    peer = Peer()

    def answer_then_pause(body: bytes) -> bytes:
        if body[7] < 3:
            peer.connection.mute(1.0)
        return frame(body[:8])

    peer.behaviour = answer_then_pause
    peer.connection.mute(1.0)
    peer.stream.give(request(1) + request(2))
    assert peer.numbers() == [] and peer.stream.readable is None
    peer.server.now_s = 1.0
    peer.server.later.pop(0)()
    peer.server.turn()
    peer.stream.give()
    assert peer.stream.readable is not None
    peer.stream.readable()
    assert peer.numbers() == [1] and peer.stream.readable is None, (
        "its own pause, and what came behind it waits"
    )
    peer.server.now_s = 1.5
    peer.connection.mute(1.0)
    peer.server.now_s = 2.0
    peer.server.later.pop(0)()
    peer.server.turn()
    assert peer.numbers() == [1]
    peer.server.now_s = 2.5
    peer.server.later.pop(0)()
    peer.server.turn()
    assert peer.numbers() == [1, 2] and peer.stream.readable is None


def test_a_muted_connection_that_is_closed_stays_closed_and_leaves_no_timer() -> None:
    peer = Peer()
    peer.connection.mute(1.0)
    peer.connection.mute(2.0)
    assert len(peer.server.later) == 1
    peer.connection.close(None)
    assert not peer.server.later
    assert not peer.stream.is_open and peer.stream.readable is None


def test_a_dispatch_that_is_replaced_serves_from_the_next_frame_on() -> None:
    """As after an authentication: what lies behind it in the same buffer is served by the other."""
    peer = Peer()

    def first(connection: Connection, view: memoryview) -> bytes:
        connection.dispatch = peer.dispatch
        connection.frame_bytes_min = 8
        return frame(b"12345678")

    peer.connection.dispatch = first
    peer.connection.frame_bytes_min = 0
    peer.stream.give(frame(b"") + request(2))
    assert peer.seen == [request(2)[4:]] and peer.stream.is_open
