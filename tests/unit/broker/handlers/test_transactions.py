"""The APIs of transactions over a connection: the parts that no foreign client sends."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from bench.raw import RawConnection, decode_answer, frame, nested, produce_request, request_class
from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker import producing
from moldau.broker.handlers import list_transactions
from moldau.broker.paced import ELEMENTS_PER_PAUSE
from moldau.coordinator.reply import Reply
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import State, Transaction
from moldau.records.record import Record, build_batch
from moldau.testing import Cluster

ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS, LIST_TRANSACTIONS = 24, 27, 66


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

    monkeypatch.setattr(producing, "verify", verify)
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


def test_a_partition_that_is_named_often_for_one_end_of_a_transaction_gets_one_marker() -> None:
    request = request_class(WRITE_TXN_MARKERS, 1)
    marker = nested(request, "markers")
    topic = nested(marker, "topics")

    def ended(producer_id: int, times: int) -> Any:
        return marker(
            producer_id=producer_id,
            producer_epoch=0,
            transaction_result=False,
            topics=(topic(name="orders", partition_indexes=(0,) * times),) * 2,
            coordinator_epoch=0,
        )

    with Cluster(topics={"orders": 1}) as cluster, RawConnection(cluster.bootstrap_servers) as connection:
        answer = connection.ask(request(markers=(ended(7, 1000), ended(8, 1000), ended(7, 1000))))
        next_offset = _offset(connection.ask(produce_request("orders", 0, batch(b"after"))))
    outcomes = [
        (one.producer_id, row.name, [(row.partition_index, row.error_code) for row in row.partitions])
        for one in answer.markers
        for row in one.topics
    ]
    assert outcomes == [(7, "orders", [(0, 0)]), (8, "orders", [(0, 0)])]
    assert next_offset == 2


class Ids:
    """A coordinator with transactional ids `id-<number>`, whose producer ids are the numbers; and their reader."""

    config: dict[str, Any] = {}
    version = 2
    guard = None

    def __init__(self, count: int) -> None:
        states = list(State)
        self._found = [
            (f"id-{number}", Transaction(number, 0, 1000, states[number % 2], start_ms=number))
            for number in range(count)
        ]
        self.clock = self.coordinators = self.transactions = self
        self.pauses = 0

    def wall_ms(self) -> int:
        return len(self._found)

    def read_all(self, _look: object, failed: Any) -> list[Reply]:
        reply = Reply(failed)
        reply.answer(self._found)
        return [reply]

    async def breathe(self) -> None:
        self.pauses += 1

    def listed(self, **filters: Any) -> list[str]:
        values = {"state_filters": (), "producer_id_filters": (), "duration_filter": -1} | filters
        request = SimpleNamespace(**{"transactional_id_pattern": None, **values})
        answer = asyncio.run(list_transactions.handle(self, self, request))  # type: ignore[arg-type]
        assert not answer.error_code
        return [one.transactional_id for one in answer.transaction_states]


class Counting(int):
    """A producer id that knows how often it was compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counting.compared += 1
        return int.__eq__(self, other)  # type: ignore[arg-type]


def test_transactions_are_listed_by_filters_of_all_kinds() -> None:
    ids = Ids(10)
    assert ids.listed() == [f"id-{number}" for number in range(10)]
    assert ids.listed(producer_id_filters=(3, 5, 99)) == ["id-3", "id-5"]
    assert ids.listed(state_filters=("Ongoing", "Unheard"), producer_id_filters=(2, 3)) == ["id-3"]
    assert ids.listed(state_filters=("Unheard",)) == []
    assert ids.listed(duration_filter=7) == ["id-0", "id-1", "id-2"]
    assert ids.listed(transactional_id_pattern="id-[4-6]", state_filters=("Ongoing",)) == ["id-5"]


def test_many_filters_over_many_transactions_compare_each_once_and_let_others_run() -> None:
    count = 3_200
    ids = Ids(count)
    Counting.compared = 0
    listed = ids.listed(producer_id_filters=tuple(map(Counting, range(count))))

    assert len(listed) == count
    assert Counting.compared <= 2 * count
    assert ids.pauses >= count // ELEMENTS_PER_PAUSE
