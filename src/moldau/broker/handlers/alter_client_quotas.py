"""AlterClientQuotas (49): quotas of users, client ids and addresses set and taken away (KIP-546, KIP-612).

- v0: KIP-546
- v1: flexible encoding (KIP-482)

The decisions and their texts are in `controller.quotas`.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.limits import QUOTA_CHANGES_MAX
from moldau.broker.answers.quotas import AlterClientQuotasResponse, AlteredQuotas, QuotaEntity
from moldau.broker.guard import may
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.quotas import QuotaAlteration, QuotaOutcome
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 49
VERSIONS = (0, 1)

LOOKED_AT = QUOTA_CHANGES_MAX
"""Of the types and quotas of one entity: what has more is refused."""

ALTER_CONFIGS = right("AlterClientQuotas", Operation.ALTER_CONFIGS, Resource.CLUSTER)


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> AlterClientQuotasResponse:
    wanted = await paced(context, _alteration, request.entries)
    if not may(broker, context, ALTER_CONFIGS):
        denied = [QuotaOutcome(one.entity, ALTER_CONFIGS.error, None) for one in wanted]
        return AlterClientQuotasResponse(tuple(await paced(context, _answer, denied)))
    try:
        outcomes = await broker.controller.alter_quotas(wanted, validate_only=request.validate_only)
    except KafkaError as error:
        if error.code is ErrorCode.not_controller:
            raise
        # Nothing is written, and each hears why.
        outcomes = [QuotaOutcome(one.entity, error.code, error.message) for one in wanted]
    answers = await paced(context, _answer, outcomes)
    return AlterClientQuotasResponse(tuple(answers))


def _alteration(entry: Request) -> QuotaAlteration:
    parts, ops = entry.entity[:LOOKED_AT], entry.ops[:LOOKED_AT]
    return QuotaAlteration(
        {part.entity_type: part.entity_name for part in parts},
        [(op.key, None if op.remove else op.value) for op in ops],
        is_whole=len(parts) == len(entry.entity) and len(ops) == len(entry.ops),
    )


def _answer(outcome: QuotaOutcome) -> AlteredQuotas:
    entity = tuple(QuotaEntity(*part) for part in outcome.entity.items())
    return AlteredQuotas(outcome.error, outcome.message, entity)
