"""IncrementalAlterConfigs (44): single settings set, deleted, appended to or taken from (KIP-339).

- v0: KIP-339
- v1: flexible encoding (KIP-482)

The decisions and their texts are in `controller.configs`; the levels of loggers are changed in this process at once.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode, KafkaError
from moldau.broker.answers.configs import AlterConfigsResponse
from moldau.broker.config_rights import rights_by_type
from moldau.broker.handlers.alter_configs import CONFIGS_LOOKED_AT, answer_for, denials
from moldau.broker.interface import AdminBroker, Request, RequestContext
from moldau.broker.loggers import alter_loggers
from moldau.broker.paced import paced
from moldau.controller.configs import NAMED_TWICE, Alteration, Alterations, AlterOutcome
from moldau.controller.slices import times_named
from moldau.metadata.records import ResourceType
from moldau.runtime.line import in_line
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 44
VERSIONS = (0, 1)

ALTER_CLUSTER = right("IncrementalAlterConfigs", Operation.ALTER_CONFIGS, Resource.CLUSTER)
ALTER_TOPIC = right("IncrementalAlterConfigs", Operation.ALTER_CONFIGS, Resource.TOPIC)
ALTER_GROUP = right("IncrementalAlterConfigs", Operation.ALTER_CONFIGS, Resource.GROUP)
RIGHTS = rights_by_type(ALTER_CLUSTER, ALTER_TOPIC, ALTER_GROUP)


def is_forwarded(request: Request) -> bool:
    """Settings are the controller's to decide on, but not a broker's loggers."""
    return any(asked.resource_type != ResourceType.BROKER_LOGGER for asked in request.resources)


async def handle(broker: AdminBroker, context: RequestContext, request: Request) -> AlterConfigsResponse:
    resources = await paced(context, _alterations, request.resources)
    denied = await denials(broker, context, RIGHTS, resources)
    resources = [asked for asked in resources if (asked.type, asked.name) not in denied]
    validate_only = request.validate_only
    kept = [asked for asked in resources if asked.type != ResourceType.BROKER_LOGGER]
    loggers = [asked for asked in resources if asked.type == ResourceType.BROKER_LOGGER]
    times = await in_line(context, times_named(loggers, lambda asked: asked.name))
    outcomes = iter(await broker.controller.alter_configs(kept, validate_only=validate_only) if kept else ())

    def outcome_for(asked: Alterations) -> AlterOutcome:
        if asked.type == ResourceType.BROKER_LOGGER:
            return _alter_loggers(broker, asked, validate_only, is_named_twice=times[asked.name] > 1)
        return next(outcomes)

    answers = await paced(context, outcome_for, resources)
    return AlterConfigsResponse((*map(answer_for, answers), *denied.values()))


def _alterations(asked: Request) -> Alterations:
    return Alterations(
        asked.resource_type,
        asked.resource_name,
        [
            Alteration(config.name, config.value, config.config_operation)
            for config in asked.configs[:CONFIGS_LOOKED_AT]
        ],
    )


def _alter_loggers(
    broker: AdminBroker, asked: Alterations, validate_only: bool, *, is_named_twice: bool
) -> AlterOutcome:
    """Whether what is named twice may be altered, nobody has asked (`denials`)."""
    try:
        if is_named_twice:
            raise KafkaError(ErrorCode.invalid_request, NAMED_TWICE)
        _check_node(broker, asked.name)
        alter_loggers(asked.changes, validate_only=validate_only)
        return AlterOutcome(asked.type, asked.name, ErrorCode.none, None, None)
    except KafkaError as error:
        return AlterOutcome(asked.type, asked.name, error.code, error.message, None)


def _check_node(broker: AdminBroker, name: str) -> None:
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal():
        raise KafkaError(ErrorCode.invalid_request, f"Node id must be an integer, but it is: {name}")
    if int(name) != broker.node_id:
        raise KafkaError(
            ErrorCode.invalid_request,
            f"Unexpected node id. Expected {broker.node_id}, but received {int(name)}",
        )
