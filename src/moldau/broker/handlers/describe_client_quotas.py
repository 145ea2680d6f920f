"""DescribeClientQuotas (48): the quotas of the entities that a filter means (KIP-546), as this broker knows them.

- v0: KIP-546
- v1: flexible encoding (KIP-482)

The filter and its errors are in `controller.quotas`.
"""

from __future__ import annotations

from moldau.base.errors import KafkaError
from moldau.broker.answers.quotas import (
    DescribeClientQuotasResponse,
    DescribedQuotas,
    QuotaEntity,
    QuotaValue,
)
from moldau.broker.guard import may
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.controller.quotas import QuotaComponent, QuotaEntry, find_quotas
from moldau.runtime.line import Slices
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 48
VERSIONS = (0, 1)

COMPONENTS_LOOKED_AT = 4
"""There are three types, and none may be named twice: with the fourth the filter is refused at the latest."""

DESCRIBE_CONFIGS = right("DescribeClientQuotas", Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)


def handle(
    broker: ClusterView, context: RequestContext, request: Request
) -> Slices[DescribeClientQuotasResponse]:
    if not may(broker, context, DESCRIBE_CONFIGS):
        return DescribeClientQuotasResponse(None, DESCRIBE_CONFIGS.error)
    looked_at = request.components[:COMPONENTS_LOOKED_AT]
    components = [QuotaComponent(one.entity_type, one.match_type, one.match) for one in looked_at]
    try:
        found = yield from find_quotas(broker.image, components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(None, error.code, error.message)
    return DescribeClientQuotasResponse(tuple(map(_described, found)), error_message="")  # as Kafka


def _described(found: QuotaEntry) -> DescribedQuotas:
    entity = tuple(QuotaEntity(*part) for part in found.entity.items())
    return DescribedQuotas(entity, tuple(QuotaValue(*pair) for pair in found.values))
