"""EndTxn (26): commit or abort a transaction.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588)
- v3: flexible encoding (KIP-482)
- v4: TRANSACTION_ABORTABLE (KIP-890)
- v5: KIP-890, an epoch for each transaction: the answer has that of the next one

Deviation: an end by version 5 is taken for a retry, by the epoch before, only where the last end was one by version 5.
Apache Kafka 4.3 takes it for one in any case: a producer that was replaced while it had no transaction open is told
that it has committed what its successor committed by version 4.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.transactions import ProducerIdentity
from moldau.broker.guard import may
from moldau.broker.identity import decide_identity
from moldau.broker.interface import ProducerIdBroker, Request, RequestContext
from moldau.coordinator.transaction.messages import End, Identity
from moldau.coordinator.transaction.transaction import EPOCH_PER_TRANSACTION
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 26
VERSIONS = (0, 5)

WRITE_ID = right("EndTxn", Operation.WRITE, Resource.TRANSACTIONAL_ID)

NO_PRODUCER_ID = NO_PRODUCER_EPOCH = -1
OWN_EPOCHS_SINCE_VERSION = 5
FENCED_SINCE_VERSION = 2


async def handle(broker: ProducerIdBroker, context: RequestContext, request: Request) -> ProducerIdentity:
    if not may(broker, context, WRITE_ID, request.transactional_id):
        return ProducerIdentity(WRITE_ID.error, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
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
    return ProducerIdentity(error, answer.producer_id, answer.producer_epoch)
