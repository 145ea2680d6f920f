"""Members of groups stay members when their broker is stopped for longer than their session, and goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw import RawConnection, decode_answer, frame, nested, request_class
from bench.server import MoldauServer

TOPIC, PARTITIONS = "work", 4
SESSION_S = 1.0
PAUSE_S = 2 * SESSION_S
PATIENCE_S = 30.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.session.timeout.ms": 500,
    "group.consumer.session.timeout.ms": int(SESSION_S * 1000),
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
}
FIND_COORDINATOR, JOIN, HEARTBEAT, SYNC = 10, 11, 12, 14
FOR_GROUPS = 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[MoldauServer]:
    with MoldauServer(tmp_path / "broker", SETTINGS) as server:
        yield server


def stop_for_longer_than_a_session(server: MoldauServer) -> None:
    server.pause()
    time.sleep(PAUSE_S)
    server.resume()


class Member(Consumer):
    """Counts how often it was given partitions, and how often they were taken from it."""

    def __init__(self, server: MoldauServer) -> None:
        super().__init__(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "group.id": "newer",
                "group.protocol": "consumer",
                "log_level": 0,
            }
        )
        self.given = self.taken = 0
        self.subscribe([TOPIC], on_assign=self._give, on_revoke=self._take, on_lost=self._take)

    def _give(self, *_: Any) -> None:
        self.given += 1

    def _take(self, *_: Any) -> None:
        self.taken += 1


def poll_until(members: list[Member], is_so: Callable[[], bool], patience_s: float) -> bool:
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s and not is_so():
        for member in members:
            member.poll(0.05)
    return is_so()


def test_members_of_the_newer_protocol_keep_their_partitions_over_a_stop(server: MoldauServer) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
    members = [Member(server), Member(server)]
    try:
        assert poll_until(members, lambda: [len(one.assignment()) for one in members] == [2, 2], PATIENCE_S)
        before = [(one.given, one.taken) for one in members]
        stop_for_longer_than_a_session(server)
        has_changed = poll_until(
            members, lambda: [(one.given, one.taken) for one in members] != before, 2 * SESSION_S
        )
        assert not has_changed
        described = admin.describe_consumer_groups(["newer"])["newer"].result(30)
        assert [len(one.assignment.topic_partitions) for one in described.members] == [2, 2]
    finally:
        for one in members:
            one.close()


def test_a_heartbeat_of_the_classic_protocol_that_waited_for_a_stopped_broker_counts(
    server: MoldauServer,
) -> None:
    """Over a connection of its own: a client's library ends its session itself when it hears nothing for that long."""
    with RawConnection(server.bootstrap_servers, timeout_s=PATIENCE_S) as connection:
        member_id = join(connection)
        beat = request_class(HEARTBEAT, 3)(
            group_id="classic", generation_id=1, member_id=member_id, group_instance_id=None
        )
        server.pause()
        connection.send(frame(beat))
        time.sleep(PAUSE_S)
        server.resume()

        assert decode_answer(beat, connection.receive()).error_code == 0
        for _ in range(5):
            time.sleep(SESSION_S / 2)
            assert connection.ask(beat).error_code == 0


def join(connection: RawConnection) -> str:
    """The one member of a group, with what it was assigned."""
    find = request_class(FIND_COORDINATOR, 2)(key="classic", key_type=FOR_GROUPS)
    while connection.ask(find).error_code:
        time.sleep(0.1)
    kind = request_class(JOIN, 3)
    joined = connection.ask(
        kind(
            group_id="classic",
            session_timeout=timedelta(seconds=SESSION_S),
            rebalance_timeout=timedelta(seconds=PATIENCE_S),
            member_id="",
            protocol_type="consumer",
            protocols=(nested(kind, "protocols")(name="range", metadata=b""),),
        )
    )
    assert joined.error_code == 0
    sync = request_class(SYNC, 3)(
        group_id="classic",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=None,
        assignments=(),
    )
    assert connection.ask(sync).error_code == 0
    return str(joined.member_id)
