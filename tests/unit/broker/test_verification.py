"""A batch that comes while the transaction before is being ended: asked for again, under guards that still hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.broker.verification import verify
from moldau.coordinator.transaction.messages import Add
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.log.producers import Producers

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
