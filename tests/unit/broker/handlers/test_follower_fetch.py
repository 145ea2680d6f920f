"""Fetch as followers use it: their sessions on the leader's side."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.raw import RawConnection, nested, request_class
from moldau.base.errors import ErrorCode
from moldau.testing import Cluster

FETCH_VERSION = 12
STRANGER = 2


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for future in admin.create_topics([NewTopic("t", 1, 1)]).values():
            future.result(10)
        yield cluster.bootstrap_servers


def fetch(session_id: int, session_epoch: int, *partitions: int) -> Any:
    cls = request_class(1, FETCH_VERSION)
    topics = nested(cls, "topics")
    wanted = tuple(
        nested(topics, "partitions")(partition=index, fetch_offset=0, partition_max_bytes=1000)
        for index in partitions
    )
    return cls(
        replica_id=STRANGER,
        max_wait=datetime.timedelta(0),
        min_bytes=1,
        max_bytes=1000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=(topics(topic="t", partitions=wanted),) if wanted else (),
        forgotten_topics_data=(),
    )


def errors(answer: Any) -> list[ErrorCode]:
    return [ErrorCode(one.error_code) for topic in answer.responses for one in topic.partitions]


def test_what_cannot_be_read_is_told_again_with_each_answer(address: str) -> None:
    with RawConnection(address) as connection:
        answer = connection.ask(fetch(0, 0, 0))
        assert answer.session_id > 0
        for epoch in range(1, 4):
            assert errors(answer) == [ErrorCode.not_leader_or_follower]
            answer = connection.ask(fetch(answer.session_id, epoch))


def test_a_broker_that_begins_a_session_ends_the_one_before(address: str) -> None:
    with RawConnection(address) as connection:
        first = connection.ask(fetch(0, 0, 0)).session_id
        assert connection.ask(fetch(0, 0, 0)).session_id != first
        answer = connection.ask(fetch(first, 1))
        assert answer.error_code == ErrorCode.fetch_session_id_not_found
