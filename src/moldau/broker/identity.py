"""Who a producer is from now on: a coordinator's decision that may need a new producer id.

Only the cluster's store gives new ids, so a decision that needs one is asked for again with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.base.errors import KafkaError
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment
from moldau.coordinator.transaction.messages import Identity, NeedsProducerId
from moldau.coordinator.transaction.shard import TransactionShard

Decide = Callable[[TransactionShard, int | None, Reply, Moment], Decision]
"""With a new producer id, None at first."""


async def decide_identity(broker: Any, transactional_id: str, decide: Decide) -> Identity:
    new_producer_id: int | None = None
    while True:
        answer: Identity | NeedsProducerId = await broker.coordinators.transactions.write(
            transactional_id,
            lambda shard, moment, reply, new_id=new_producer_id: decide(shard, new_id, reply, moment),
            Identity,
        )
        if isinstance(answer, Identity):
            return answer
        try:
            new_producer_id = await broker.controller.next_producer_id()
        except KafkaError as refusal:
            return Identity(refusal.code)
