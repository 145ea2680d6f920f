"""The answers of the APIs of client quotas."""

from typing import NamedTuple

from moldau.base.errors import ErrorCode


class QuotaEntity(NamedTuple):
    """One type of an entity; without a name the default."""

    entity_type: str
    entity_name: str | None


class QuotaValue(NamedTuple):
    key: str
    value: float


class DescribedQuotas(NamedTuple):
    entity: tuple[QuotaEntity, ...]
    values: tuple[QuotaValue, ...]


class DescribeClientQuotasResponse(NamedTuple):
    entries: tuple[DescribedQuotas, ...] | None
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    throttle_time: int = 0


class AlteredQuotas(NamedTuple):
    error_code: ErrorCode
    error_message: str | None
    entity: tuple[QuotaEntity, ...]


class AlterClientQuotasResponse(NamedTuple):
    entries: tuple[AlteredQuotas, ...]
    throttle_time: int = 0
