"""What the cluster for tests changes for consumer groups (KIP-848): how many heartbeats a rebalance takes, and how soon
these follow each other.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from moldau.testing import Cluster
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_response, encode_request_frame
from moldau.wire.frames import SIZE, parse_response_header

TIMEOUT_S = 30
MILLISECOND = timedelta(milliseconds=1)
PARTITIONS = 4
HEARTBEAT_MS_MAX = 250
"""A rebalance takes three or four of them: a second, at most."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"orders": PARTITIONS}) as running:
        yield running


class Member:
    """A consumer that does at once what its heartbeats tell it to."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        host, _, port = cluster.bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")
        self._group = group
        self._id = str(uuid4())
        self._epoch = 0
        self.owned: dict[UUID, tuple[int, ...]] = {}
        self.interval_ms = 0
        self._ask("FindCoordinator", 4, key_type=0, coordinator_keys=(group,))

    def _ask(self, api: str, version: int, **fields: Any) -> Any:
        key = APIS_BY_NAME[api].key
        self._socket.sendall(encode_request_frame(key, version, 1, "member", SimpleNamespace(**fields)))
        frame = memoryview(self._file.read(SIZE.unpack(self._file.read(SIZE.size))[0]))
        return decode_response(key, version, frame, parse_response_header(frame, key, version)[1])

    def heartbeat(self) -> None:
        owned = tuple(SimpleNamespace(topic_id=topic, partitions=here) for topic, here in self.owned.items())
        answer = self._ask(
            "ConsumerGroupHeartbeat",
            1,
            group_id=self._group,
            member_id=self._id,
            member_epoch=self._epoch,
            instance_id=None,
            rack_id=None,
            rebalance_timeout=300_000,
            subscribed_topic_names=("orders",),
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=owned,
        )
        assert answer.error_code == 0, answer
        self._epoch, self.interval_ms = answer.member_epoch, answer.heartbeat_interval // MILLISECOND
        if answer.assignment is not None:
            self.owned = {one.topic_id: one.partitions for one in answer.assignment.topic_partitions}

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


def test_a_rebalance_takes_few_heartbeats_that_follow_soon(cluster: Cluster) -> None:
    """Nobody waits between the heartbeats here: what needs time instead would be a fourth round."""
    members = [Member(cluster, "few"), Member(cluster, "few")]
    one, other = members
    while one.count < PARTITIONS:
        one.heartbeat()
    rounds = 0
    while (one.count, other.count) != (PARTITIONS // 2, PARTITIONS // 2):
        rounds += 1
        assert rounds <= 3
        for member in reversed(members):
            member.heartbeat()
    for member in members:
        assert 0 < member.interval_ms <= HEARTBEAT_MS_MAX
        member.close()


def test_a_silent_member_is_missed_no_sooner_than_by_kafka(cluster: Cluster) -> None:
    """Short intervals, but not a short session: a machine under load is no reason to lose partitions."""
    broker = cluster._member(1).broker
    assert broker is not None
    assert broker.config["group.consumer.session.timeout.ms"] == 45_000


def test_a_test_may_set_a_shorter_session_and_longer_heartbeats() -> None:
    config = {"group.consumer.session.timeout.ms": 6000, "group.consumer.heartbeat.interval.ms": 1000}
    with Cluster(config=config, topics={"orders": PARTITIONS}) as cluster:
        member = Member(cluster, "own")
        while member.count < PARTITIONS:
            member.heartbeat()
        assert member.interval_ms == 1000
        member.close()
