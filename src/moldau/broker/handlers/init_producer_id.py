"""InitProducerId (22): an id and an epoch for a producer, plain or with a transactional id.

- v0: KIP-98
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)
- v3: KIP-360, a producer that goes on after an error says who it was
- v4: PRODUCER_FENCED, which is INVALID_PRODUCER_EPOCH before (KIP-588)
- v5: TRANSACTION_ABORTABLE (KIP-890)

Ids come from blocks that are reserved in the cluster store before use, so none is ever given twice. With a
transactional id the coordinator gives the same id with the next epoch, which fences the producer of before; a
transaction that this one left open is aborted, and the client told to come again (CONCURRENT_TRANSACTIONS).
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.transactions import ProducerIdentity
from moldau.broker.guard import may, may_quietly, may_some
from moldau.broker.identity import decide_identity
from moldau.broker.interface import ProducerIdBroker, Request, RequestContext
from moldau.coordinator.transaction.messages import Identity, Init
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right
from moldau.wire.times import milliseconds

API_KEY = 22
VERSIONS = (0, 5)

WRITE_ID = right("InitProducerId", Operation.WRITE, Resource.TRANSACTIONAL_ID)
WRITE_IDEMPOTENT = right("InitProducerId", Operation.IDEMPOTENT_WRITE, Resource.CLUSTER)
WRITE_SOME = right("InitProducerId", Operation.WRITE, Resource.TOPIC)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
FENCED_SINCE_VERSION = 4


async def handle(broker: ProducerIdBroker, context: RequestContext, request: Request) -> ProducerIdentity:
    refusal = _refusal(broker, context, request.transactional_id)
    if refusal:
        return _answer(context.version, Identity(refusal))
    expected_id: int = getattr(request, "producer_id", NO_PRODUCER_ID)
    expected_epoch: int = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
    is_half_named = (expected_id == NO_PRODUCER_ID) != (expected_epoch == NO_PRODUCER_EPOCH)
    if is_half_named or request.transactional_id == "":
        return _answer(context.version, Identity(ErrorCode.invalid_request))
    if request.transactional_id is None:
        return _answer(context.version, await _plain(broker))
    timeout_ms = milliseconds(request.transaction_timeout)
    if not 0 < timeout_ms <= broker.config["transaction.max.timeout.ms"]:
        return _answer(context.version, Identity(ErrorCode.invalid_transaction_timeout))
    init = Init(request.transactional_id, timeout_ms, expected_id, expected_epoch)
    identity = await decide_identity(
        broker,
        init.transactional_id,
        lambda shard, new_id, reply, moment: shard.init(init, new_id, reply, moment),
    )
    return _answer(context.version, identity)


def _refusal(broker: ProducerIdBroker, context: RequestContext, transactional_id: str | None) -> ErrorCode:
    if transactional_id is not None:
        return ErrorCode.none if may(broker, context, WRITE_ID, transactional_id) else WRITE_ID.error
    if may_quietly(broker, context, WRITE_IDEMPOTENT) or may_some(broker, context, WRITE_SOME):
        return ErrorCode.none
    return WRITE_SOME.error


async def _plain(broker: ProducerIdBroker) -> Identity:
    try:
        return Identity(ErrorCode.none, await broker.next_producer_id(), 0)
    except KafkaError as refusal:
        return Identity(refusal.code)


def _answer(version: int, identity: Identity) -> ProducerIdentity:
    error = identity.error
    if error is ErrorCode.producer_fenced and version < FENCED_SINCE_VERSION:
        error = ErrorCode.invalid_producer_epoch
    return ProducerIdentity(error, identity.producer_id, identity.producer_epoch)
