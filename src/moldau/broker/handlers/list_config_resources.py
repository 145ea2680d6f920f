"""ListConfigResources (74): the names of everything that can carry configuration, by kind.

Version 0 is the older ListClientMetricsResources and lists those only.
"""

from __future__ import annotations

from types import SimpleNamespace

from moldau.base.errors import ErrorCode
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ResourceType

API_KEY = 74
VERSIONS = (0, 1)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> object:
    if context.version == 0:
        asked: tuple[int, ...] = (ResourceType.CLIENT_METRICS,)
    else:
        asked = tuple(dict.fromkeys(request.resource_types)) or tuple(ResourceType)
    known = set(ResourceType)
    if any(type_ not in known for type_ in asked):
        return _answer(ErrorCode.unsupported_version, [])
    return _answer(
        ErrorCode.none,
        [
            SimpleNamespace(resource_name=name, resource_type=int(type_))
            for type_ in asked
            for name in _names(broker.image, ResourceType(type_))
        ],
    )


def _names(image: ClusterImage, type_: ResourceType) -> list[str]:
    match type_:
        case ResourceType.TOPIC:
            return sorted(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:
            return image.configured(type_)


def _answer(error: ErrorCode, resources: list[SimpleNamespace]) -> object:
    return SimpleNamespace(throttle_time=0, error_code=error, config_resources=tuple(resources))
