"""InitProducerId (22): an id for an idempotent producer.

Ids come from blocks that are reserved in the cluster store before use, so none is ever given twice. A transactional
id needs a transaction coordinator, which is not served yet: INVALID_REQUEST.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError

API_KEY = 22
VERSIONS = (0, 5)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def handle(broker: Any, context: Any, request: Any) -> object:
    named_id = getattr(request, "producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID
    named_epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH) != NO_PRODUCER_EPOCH
    if request.transactional_id is not None or named_id != named_epoch:
        return _answer(ErrorCode.invalid_request, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    try:
        producer_id = await broker.controller.next_producer_id()
    except KafkaError as error:
        return _answer(error.code, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    return _answer(ErrorCode.none, producer_id, 0)


def _answer(error: ErrorCode, producer_id: int, producer_epoch: int) -> object:
    return SimpleNamespace(
        throttle_time=0, error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
    )
