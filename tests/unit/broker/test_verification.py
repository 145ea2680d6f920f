"""A batch that comes while the transaction before is being ended: asked for again, under guards that still hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker import verification
from moldau.broker.verification import verify
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.log.producers import Producers
from moldau.metadata.records import NO_LEADER

PLACE = TopicPartition("orders", 0)
ADD = Add("a transaction", 7, 1, (PLACE,), EPOCH_PER_TRANSACTION)
BACKOFF_MS = 20
GIVE_UP_MS = 100


class Broker:
    """A coordinator that is busy for the first few times it is asked, on a clock that only sleeping moves."""

    def __init__(self, busy_times: int) -> None:
        self.busy_times = busy_times
        self.now_s = 0.0
        self.happens = lambda: None
        self.config = {
            "add.partitions.to.txn.retry.backoff.ms": BACKOFF_MS,
            "add.partitions.to.txn.retry.backoff.max.ms": GIVE_UP_MS,
        }
        self.clock = SimpleNamespace(monotonic=lambda: self.now_s)
        self.tasks = SimpleNamespace(sleep=self.sleep)
        self.node_id = 1
        self.coordinators = SimpleNamespace(
            transactions=SimpleNamespace(write=self.write), leader_of=lambda _topic, _key: self.node_id
        )

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.happens()

    async def write(self, *_: Any) -> ErrorCode:
        self.busy_times -= 1
        return ErrorCode.none if self.busy_times < 0 else ErrorCode.concurrent_transactions


def test_a_guard_holds_though_the_marker_of_the_transaction_before_came_meanwhile() -> None:
    producing = Producers()
    broker = Broker(busy_times=2)
    broker.happens = lambda: producing.end_transaction(7, 1, 0, 0, 0)
    guards = []
    outcomes = asyncio.run(
        verify(broker, ADD, lambda: guards.append(producing.begin_verification(7, 1, 0, True)))
    )
    assert outcomes == {PLACE: ErrorCode.none}
    assert len(guards) == 3 and not producing.is_verified(7, 1, guards[0])
    assert producing.is_verified(7, 1, guards[-1])


@pytest.mark.parametrize("busy_times", [GIVE_UP_MS // BACKOFF_MS + 1, 1000])
def test_a_coordinator_that_stays_busy_is_told_to_the_client(busy_times: int) -> None:
    outcomes = asyncio.run(verify(Broker(busy_times), ADD, lambda: None))
    assert outcomes == {PLACE: ErrorCode.concurrent_transactions}


class Peer:
    """A coordinator elsewhere, with one answer."""

    def __init__(self, **answer: Any) -> None:
        self._answer = SimpleNamespace(**{"error_code": 0, "results_by_transaction": ()} | answer)
        self.request: Any = None

    async def ask(self, api_key: int, request: Any, _timeout_s: float) -> Any:
        assert api_key == 24
        self.request = request
        return self._answer


def result(add: Add, *errors: ErrorCode) -> SimpleNamespace:
    """For the partitions of one transaction, all of one topic, from 0 on."""
    rows = tuple(
        SimpleNamespace(partition_index=index, partition_error_code=int(error))
        for index, error in enumerate(errors)
    )
    topic = SimpleNamespace(name="orders", results_by_partition=rows)
    return SimpleNamespace(transactional_id=add.transactional_id, topic_results=(topic,))


def send(peer: Any, *adds: Add) -> list[dict[TopicPartition, ErrorCode]]:
    return asyncio.run(verification._send(peer, adds))


def test_one_request_asks_about_several_transactions_each_in_its_own_way() -> None:
    old = ADD._replace(transactional_id="old", version=0)
    peer = Peer(
        results_by_transaction=(result(old, ErrorCode.transaction_abortable), result(ADD, ErrorCode.none))
    )
    assert send(peer, ADD, old) == [{PLACE: ErrorCode.none}, {PLACE: ErrorCode.transaction_abortable}]
    asked = [(one.transactional_id, one.verify_only) for one in peer.request.transactions]
    assert asked == [("a transaction", False), ("old", True)]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ErrorCode.cluster_authorization_failed, ErrorCode.invalid_txn_state),
        (ErrorCode.not_coordinator, ErrorCode.not_coordinator),
    ],
)
def test_an_error_of_the_whole_request_is_that_of_every_partition(
    error: ErrorCode, outcome: ErrorCode
) -> None:
    assert send(Peer(error_code=int(error)), ADD) == [{PLACE: outcome}]


@pytest.mark.parametrize("error", [ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted])
def test_a_coordinator_that_has_not_heard_of_a_topic_yet_is_asked_again(error: ErrorCode) -> None:
    (outcomes,) = send(Peer(results_by_transaction=(result(ADD, error),)), ADD)
    assert outcomes[PLACE] in verification.PASSING


def test_a_partition_that_is_not_answered_for_is_not_verified() -> None:
    assert send(Peer(), ADD) == [{PLACE: ErrorCode.network_exception}]


@pytest.mark.parametrize("leader", [NO_LEADER, 2])
@pytest.mark.parametrize("version", [0, 2])
def test_a_client_tries_again_when_the_coordinator_cannot_be_asked(leader: int, version: int) -> None:
    async def lose(_broker_id: int, add: Add) -> dict[TopicPartition, ErrorCode]:
        return dict.fromkeys(add.partitions, ErrorCode.network_exception)

    broker = Broker(busy_times=0)
    broker.coordinators.leader_of = lambda _topic, _key: leader
    broker.coordinators.verifications = SimpleNamespace(ask=lose)
    (error,) = asyncio.run(verify(broker, ADD._replace(version=version), lambda: None)).values()
    told, _ = verification.as_produce_error(error, own_epochs=version == 2, knows_abortable=True)
    assert told is ErrorCode.not_enough_replicas
