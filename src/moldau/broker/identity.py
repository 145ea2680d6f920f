"""Who a producer is from now on: a coordinator's decision that may need a new producer id.

Only the cluster's store gives new ids, so a decision that needs one is asked for again with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from moldau.base.errors import KafkaError
from moldau.broker.interface import ProducerIdBroker
from moldau.coordinator.reply import Reply
from moldau.coordinator.shard import Decision, Moment
from moldau.coordinator.transaction.messages import Identity, NeedsProducerId

if TYPE_CHECKING:
    from moldau.coordinator.transaction.shard import TransactionShard

Decide = Callable[["TransactionShard", int | None, Reply, Moment], Decision]
"""With a new producer id, None at first."""


async def decide_identity(broker: ProducerIdBroker, transactional_id: str, decide: Decide) -> Identity:
    new_producer_id: int | None = None
    while True:
        ask = partial(_with_id, decide, new_producer_id)
        answer: Identity | NeedsProducerId = await broker.coordinators.transactions.write(
            transactional_id, ask, Identity
        )
        if isinstance(answer, Identity):
            return answer
        try:
            new_producer_id = await broker.next_producer_id()
        except KafkaError as refusal:
            return Identity(refusal.code)


def _with_id(
    decide: Decide, new_id: int | None, shard: TransactionShard, moment: Moment, reply: Reply
) -> Decision:
    return decide(shard, new_id, reply, moment)
