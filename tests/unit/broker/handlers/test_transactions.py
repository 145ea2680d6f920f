"""The APIs of transactions over a connection: the parts that no foreign client sends."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.bench.raw import RawConnection, decode_answer, frame, nested, produce_request, request_class
from moldau.broker.handlers import produce
from moldau.coordinator.transaction.messages import Add
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster

ADD_PARTITIONS_TO_TXN = 24


@pytest.mark.parametrize("version", [4, 5])
def test_a_request_for_no_transaction_at_all_is_answered(version: int) -> None:
    """Apache Kafka 4.3 leaves it without an answer, and the connection without any for good."""
    with Cluster() as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        answer = connection.ask(request_class(ADD_PARTITIONS_TO_TXN, version)(transactions=()))
        assert (answer.error_code, answer.results_by_transaction) == (0, ())


def test_a_batch_that_waits_for_its_coordinator_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its own connection sends after it keeps its place."""
    asked, answered = threading.Event(), threading.Event()

    async def verify(broker: Any, add: Add, _take_guards: object) -> dict[TopicPartition, ErrorCode]:
        asked.set()
        while not answered.is_set():
            await broker.tasks.sleep(0.01)
        return dict.fromkeys(add.partitions, ErrorCode.none)

    monkeypatch.setattr(produce, "verify", verify)
    plain = batch(b"plain")
    open_one = batch(b"first", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)

    def request(records: bytes, transactional_id: str | None = None) -> Any:
        return replace(produce_request("orders", 0, records), transactional_id=transactional_id)

    with (
        Cluster(topics={"orders": 1}) as cluster,
        RawConnection(cluster.bootstrap_servers) as waiting,
        RawConnection(cluster.bootstrap_servers) as other,
    ):
        waiting.send(frame(request(open_one, "billing"), 1) + frame(request(plain), 2))
        assert asked.wait(60)
        offsets = [_offset(other.ask(request(plain))) for _ in range(2)]
        answered.set()
        offsets += [_offset(decode_answer(request(plain), waiting.receive())) for _ in range(2)]
    assert offsets == [0, 1, 2, 3]


def _offset(answer: Any) -> int:
    (partition,) = answer.responses[0].partition_responses
    assert not partition.error_code, partition
    return int(partition.base_offset)


def batch(value: bytes, **options: Any) -> bytes:
    return build_batch([Record(0, int(time.time() * 1000), b"key", value)], **options)


def test_a_producer_cannot_add_what_belongs_to_a_coordinator() -> None:
    with Cluster(topics={"orders": 1}) as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        request = request_class(ADD_PARTITIONS_TO_TXN, 3)
        topic = nested(request, "v3_and_below_topics")
        answer = connection.ask(
            request(
                v3_and_below_transactional_id="billing",
                v3_and_below_producer_id=1,
                v3_and_below_producer_epoch=0,
                v3_and_below_topics=tuple(
                    topic(name=name, partitions=(0,)) for name in ("orders", "__transaction_state")
                ),
            )
        )
    errors = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in answer.results_by_topic_v3_and_below
    }
    assert errors == {
        "orders": ErrorCode.operation_not_attempted,
        "__transaction_state": ErrorCode.topic_authorization_failed,
    }
