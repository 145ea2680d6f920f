"""AlterConfigs (33): the settings of a resource replaced as a whole; IncrementalAlterConfigs came after it.

- v0: the first
- v1: the client waits where it is throttled (KIP-219)
- v2: flexible encoding (KIP-482)

The decisions and their texts are in `controller.configs`. Loggers are not among its resources.
"""

from __future__ import annotations

from moldau.base.limits import CONFIGS_PER_RESOURCE_MAX
from moldau.broker.answers.configs import AlterConfigsResourceResponse, AlterConfigsResponse
from moldau.broker.config_rights import Rights, denial, rights_by_type
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.paced import paced
from moldau.controller.configs import Alteration, Alterations, AlterOutcome
from moldau.controller.slices import times_named
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 33
VERSIONS = (0, 2)

ALTER_CLUSTER = right("AlterConfigs", Operation.ALTER_CONFIGS, Resource.CLUSTER)
ALTER_TOPIC = right("AlterConfigs", Operation.ALTER_CONFIGS, Resource.TOPIC)
ALTER_GROUP = right("AlterConfigs", Operation.ALTER_CONFIGS, Resource.GROUP)
RIGHTS = rights_by_type(ALTER_CLUSTER, ALTER_TOPIC, ALTER_GROUP)

CONFIGS_LOOKED_AT = CONFIGS_PER_RESOURCE_MAX + 1
"""One more than may be is enough to be refused for: the rest is not looked at."""


def is_forwarded(_request: Request) -> bool:
    """It is the controller's to decide."""
    return True


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> AlterConfigsResponse:
    resources = await paced(context, _alterations, request.resources)
    denied = await denials(broker, context, RIGHTS, resources)
    resources = [asked for asked in resources if (asked.type, asked.name) not in denied]
    outcomes = await broker.controller.alter_configs(resources, validate_only=request.validate_only)
    return AlterConfigsResponse((*map(answer_for, outcomes), *denied.values()))


async def denials(
    broker: AdminBroker, context: RequestContext, rights: Rights, resources: list[Alterations]
) -> dict[tuple[int, str], AlterConfigsResourceResponse]:
    """What is said of resources that may not be altered. One that is there twice is refused for that alone."""
    denied: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
    if broker.guard is None:
        return denied
    times = await in_line(context, times_named(resources, lambda asked: (asked.type, asked.name)))
    for asked in resources:
        await context.breathe()
        place = asked.type, asked.name
        missing = denial(broker, context, rights, *place) if times[place] == 1 else None
        if missing is not None:
            denied[place] = AlterConfigsResourceResponse(missing.error, missing.message, *place)
    return denied


def _alterations(asked: Request) -> Alterations:
    return Alterations(
        asked.resource_type,
        asked.resource_name,
        [Alteration(config.name, config.value) for config in asked.configs[:CONFIGS_LOOKED_AT]],
        replace=True,
    )


def answer_for(outcome: AlterOutcome) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(outcome.error, outcome.message, outcome.type, outcome.name)
