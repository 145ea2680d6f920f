"""AlterConfigs (33): the settings of a resource replaced as a whole; IncrementalAlterConfigs came after it.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)

The decisions and their texts are in `controller.configs`. Loggers are not among its resources.
"""

from __future__ import annotations

from moldau.base.limits import CONFIGS_PER_RESOURCE_MAX
from moldau.broker.answers.configs import AlterConfigsResourceResponse, AlterConfigsResponse
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.configs import Alteration, Alterations, AlterOutcome

API_KEY = 33
VERSIONS = (0, 2)

CONFIGS_LOOKED_AT = CONFIGS_PER_RESOURCE_MAX + 1
"""One more than may be is enough to be refused for: the rest is not looked at."""


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> AlterConfigsResponse:
    resources = await paced(context, _alterations, request.resources)
    outcomes = await broker.controller.alter_configs(resources, validate_only=request.validate_only)
    return AlterConfigsResponse(tuple(map(answer_for, outcomes)))


def _alterations(asked: Request) -> Alterations:
    return Alterations(
        asked.resource_type,
        asked.resource_name,
        [Alteration(config.name, config.value) for config in asked.configs[:CONFIGS_LOOKED_AT]],
        replace=True,
    )


def answer_for(outcome: AlterOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(outcome.error, outcome.message, outcome.type, outcome.name)
