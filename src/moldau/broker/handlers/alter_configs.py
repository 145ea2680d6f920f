"""AlterConfigs (33): the settings of a resource replaced as a whole; IncrementalAlterConfigs came after it.

The decisions and their texts are in `controller.configs`. Loggers are not among its resources.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.controller.configs import Alteration, Alterations, AlterOutcome

API_KEY = 33
VERSIONS = (0, 2)


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> object:
    resources = [
        Alterations(
            asked.resource_type,
            asked.resource_name,
            [Alteration(config.name, config.value) for config in asked.configs],
            replace=True,
        )
        for asked in request.resources
    ]
    outcomes = await broker.controller.alter_configs(resources, validate_only=request.validate_only)
    return SimpleNamespace(throttle_time=0, responses=tuple(map(answer_for, outcomes)))


def answer_for(outcome: AlterOutcome) -> SimpleNamespace:
    return SimpleNamespace(
        error_code=outcome.error,
        error_message=outcome.message,
        resource_type=outcome.type,
        resource_name=outcome.name,
    )
