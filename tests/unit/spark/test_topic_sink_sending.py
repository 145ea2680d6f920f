"""Every record is delivered or the task fails; a full queue is waited for; clients are kept, few and not for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from moldau.spark.topic_sink.clients import Kept
from moldau.spark.topic_sink.options import SinkOptions
from moldau.spark.topic_sink.rows import Cells, HeaderCells, Rows
from moldau.spark.topic_sink.sending import NotDelivered, Outlet
from moldau.testing import Cluster
from spark.sink_readers import committed, committed_messages


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(topics={"out": 2, "small": 1}, config={"auto.create.topics.enable": False}) as cluster:
        yield cluster


def outlet(servers: str, **options: str) -> Outlet:
    given = {"kafka.bootstrap.servers": servers, "topic": "out"}
    parsed = SinkOptions.of(
        given | {name.replace("_", "."): value for name, value in options.items()}, streaming=False
    )
    return Outlet(parsed.producer, parsed.max_block_ms)


def rows(*values: bytes | None, topic: str = "out", partition: int | None = None) -> Rows:
    partitions = None if partition is None else np.full(len(values), partition)
    return Rows(topic, None, Cells.of_values(values), None, partitions)


def test_a_queue_that_is_full_is_waited_for(cluster: Cluster) -> None:
    sink = outlet(cluster.bootstrap_servers, kafka_queue_buffering_max_messages="10")
    sink.send(rows(*[b"%d" % number for number in range(500)], topic="small"))
    sink.finish()
    assert sorted(committed(cluster.bootstrap_servers, "small")) == sorted(
        b"%d" % number for number in range(500)
    )


def test_a_queue_that_stays_full_fails_the_task() -> None:
    sink = outlet("127.0.0.1:1", kafka_queue_buffering_max_messages="10", kafka_max_block_ms="200")
    with pytest.raises(
        NotDelivered, match=r"queue is full, and nothing left it in 0\.2 s \(max\.block\.ms\)"
    ):
        sink.send(rows(*[b"x"] * 500))
    sink.close()


def test_brokers_that_never_answer_fail_the_task_after_the_delivery_timeout() -> None:
    sink = outlet("127.0.0.1:1", kafka_delivery_timeout_ms="300")
    sink.send(rows(b"x"))
    with pytest.raises(NotDelivered, match="was not delivered"):
        sink.finish()


@pytest.mark.parametrize(
    ("bad", "options"),
    [
        (rows(b"x", topic="nowhere"), {"kafka_max_block_ms": "100"}),
        (rows(b"x", partition=17), {"kafka_max_block_ms": "100"}),
        (rows(b"x" * 2_000_000), {}),
        (rows(b"x" * 2_000_000), {"kafka_max_request_size": "3000000"}),  # the broker's word
    ],
)
def test_a_record_that_cannot_be_delivered_fails_the_task(
    cluster: Cluster, bad: Rows, options: dict[str, str]
) -> None:
    sink = outlet(cluster.bootstrap_servers, **options)
    with pytest.raises(NotDelivered, match=rf"a record for .*{bad.topics}"):
        sink.send(bad)
        sink.finish()
    sink.close()


def test_records_are_what_the_columns_of_a_row_say(cluster: Cluster) -> None:
    many = Rows(
        ["whole", "other", "whole", "whole"],
        Cells.of_values([b"k", b"other", None, b""]),
        Cells.of_values([None, b"there", b"", b"v"]),
        HeaderCells.of_values([[("h", b"x"), ("h", None), ("", b"")], None, [], [("é", b"\0")]]),
        np.array([1, 0, 1, 1]),
    )
    for topic in ("whole", "other"):
        cluster.create_topic(topic, 2)
    sink = outlet(cluster.bootstrap_servers)
    sink.send(many)
    sink.finish()
    found = [
        (message.partition(), message.key(), message.value(), message.headers())
        for message in committed_messages(cluster.bootstrap_servers, "whole")
    ]
    assert found == [
        (1, b"k", None, [("h", b"x"), ("h", None), ("", b"")]),
        (1, None, b"", None),
        (1, b"", b"v", [("é", b"\0")]),
    ]
    (other,) = committed_messages(cluster.bootstrap_servers, "other")
    assert (other.partition(), other.key(), other.value()) == (0, b"other", b"there")


def test_a_full_queue_keeps_the_order_of_records_with_headers(cluster: Cluster) -> None:
    cluster.create_topic("ordered", 1)
    sink = outlet(cluster.bootstrap_servers, kafka_queue_buffering_max_messages="10")
    expected = [b"%d" % number for number in range(300)]
    headers = HeaderCells.of_values([[("n", value)] for value in expected])
    sink.send(Rows("ordered", None, Cells.of_values(expected), headers, None))
    sink.finish()
    found = committed_messages(cluster.bootstrap_servers, "ordered")
    assert [message.value() for message in found] == expected
    assert [message.headers() for message in found] == [[("n", value)] for value in expected]


def test_a_producer_that_was_let_go_is_freed_and_one_in_a_forked_process_is_left_alone() -> None:
    producer = outlet("127.0.0.1:1").producer
    child = os.fork()
    if child == 0:
        producer.__del__()
        os._exit(0 if producer._handle is not None else 1)
    assert os.waitpid(child, 0)[1] == 0
    producer.__del__()
    assert producer._handle is None


class Client:
    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_a_client_is_one_users_at_a_time() -> None:
    kept: Kept[Client] = Kept()
    client = Client()
    kept.give_back("a", client)
    assert kept.take("b") is None
    assert kept.take("a") is client
    assert kept.take("a") is None


def test_the_clients_used_longest_ago_are_closed() -> None:
    kept: Kept[Client] = Kept(kept_max=2)
    clients = {name: Client() for name in "abc"}
    for name, client in clients.items():
        kept.give_back(name, client)
    assert len(kept) == 2
    assert [client.is_open for client in clients.values()] == [False, True, True]


def test_a_client_that_nobody_wants_any_more_is_closed() -> None:
    now = [0.0]
    kept: Kept[Client] = Kept(idle_s_max=10, clock=lambda: now[0])
    old, newer = Client(), Client()
    kept.give_back("old", old)
    now[0] = 8.0
    kept.give_back("newer", newer)
    now[0] = 11.0
    assert kept.take("another") is None
    assert (old.is_open, newer.is_open) == (False, True)


def test_a_forked_process_inherits_no_client() -> None:
    kept: Kept[Client] = Kept()
    kept.give_back("a", Client())
    child = os.fork()
    if child == 0:
        os._exit(0 if kept.take("a") is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.take("a") is not None
