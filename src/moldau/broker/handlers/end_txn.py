"""EndTxn (26): commit or abort a transaction. From version 5 on the answer has the epoch of the next one (KIP-890).

Deviation: an end by version 5 is taken for a retry, by the epoch before, only where the last end was one by version 5.
Apache Kafka 4.3 takes it for one in any case: a producer that was replaced while it had no transaction open is told
that it has committed what its successor committed by version 4.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.identity import decide_identity
from moldau.broker.interface import ProducerIdBroker, Request, RequestContext
from moldau.coordinator.transaction.messages import End, Identity
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION

API_KEY = 26
VERSIONS = (0, 5)

OWN_EPOCHS_SINCE_VERSION = 5
FENCED_SINCE_VERSION = 2


async def handle(broker: ProducerIdBroker, context: RequestContext, request: Request) -> object:
    version = EPOCH_PER_TRANSACTION if context.version >= OWN_EPOCHS_SINCE_VERSION else 0
    end = End(
        request.transactional_id, request.producer_id, request.producer_epoch, request.committed, version
    )
    answer = Identity(ErrorCode.invalid_request)
    if end.transactional_id:
        answer = await decide_identity(
            broker,
            end.transactional_id,
            lambda shard, new_id, reply, moment: shard.end(end, new_id, reply, moment),
        )
    error = answer.error
    if error is ErrorCode.producer_fenced and context.version < FENCED_SINCE_VERSION:
        error = ErrorCode.invalid_producer_epoch
    return SimpleNamespace(
        throttle_time=0,
        error_code=error,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )
