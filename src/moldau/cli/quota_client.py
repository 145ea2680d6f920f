"""The requests about client quotas, which confluent-kafka has no calls for."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import NamedTuple

from moldau.base.errors import ErrorCode
from moldau.cli.cluster_client import ClusterClient
from moldau.cli.errors import CliError, Exit

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Entity = Mapping[str, str | None]
"""By type; None is the default."""


class Quotas(NamedTuple):
    """Of one entity."""

    entity: dict[str, str | None]
    values: dict[str, float]


class QuotaClient(ClusterClient):
    def quotas(self, entity: Entity, *, strict: bool = False) -> list[Quotas]:
        """Those whose entity has these parts; `strict`: and no others. Sorted."""
        components = tuple(
            SimpleNamespace(entity_type=type_, match_type=DEFAULT if name is None else EXACT, match=name)
            for type_, name in entity.items()
        )
        answer = self._ask("DescribeClientQuotas", components=components, strict=strict)
        self._check(answer.error_code, answer.error_message, "The quotas cannot be listed")
        found = [
            Quotas(
                {part.entity_type: part.entity_name for part in entry.entity},
                {value.key: float(value.value) for value in entry.values},
            )
            for entry in answer.entries or ()
        ]
        return sorted(found, key=lambda one: [(type_, name or "") for type_, name in one.entity.items()])

    def change_quotas(
        self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """None takes a quota away."""
        entry = SimpleNamespace(
            entity=tuple(
                SimpleNamespace(entity_type=type_, entity_name=name) for type_, name in entity.items()
            ),
            ops=tuple(
                SimpleNamespace(key=key, value=0.0 if value is None else value, remove=value is None)
                for key, value in changes.items()
            ),
        )
        answer = self._ask("AlterClientQuotas", entries=(entry,), validate_only=validate_only)
        (outcome,) = answer.entries
        if outcome.error_code:
            error = ErrorCode(int(outcome.error_code))
            said = outcome.error_message or error.name.replace("_", " ")
            code = Exit.USAGE if error is ErrorCode.invalid_request else Exit.FAILED
            raise CliError(f"The quotas are not changed: {said.rstrip('.')}.", code=code)
