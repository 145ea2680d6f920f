"""ListConfigResources (74): the names of everything that can carry configuration, by kind.

- v0: ListClientMetricsResources (KIP-1000), which lists those only
- v1: KIP-1142, all kinds
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.broker.answers.configs import ConfigResource, ListConfigResourcesResponse
from moldau.broker.guard import may
from moldau.broker.interface import ClusterView, Request, RequestContext
from moldau.metadata.image import ClusterImage
from moldau.metadata.records import ResourceType
from moldau.security.acls import Operation, Resource
from moldau.security.rights import right

API_KEY = 74
VERSIONS = (0, 1)

DESCRIBE_CONFIGS = right("ListConfigResources", Operation.DESCRIBE_CONFIGS, Resource.CLUSTER)


def handle(broker: ClusterView, context: RequestContext, request: Request) -> ListConfigResourcesResponse:
    if not may(broker, context, DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(DESCRIBE_CONFIGS.error)
    known = tuple(type_ for type_ in ResourceType if type_.is_configuration)
    if context.version == 0:
        asked: tuple[int, ...] = (ResourceType.CLIENT_METRICS,)
    else:
        asked = tuple(dict.fromkeys(request.resource_types)) or known
    if any(type_ not in known for type_ in asked):
        return ListConfigResourcesResponse(ErrorCode.unsupported_version)
    resources = (
        ConfigResource(name, int(type_))
        for type_ in asked
        for name in _names(broker.image, ResourceType(type_))
    )
    return ListConfigResourcesResponse(ErrorCode.none, tuple(resources))


def _names(image: ClusterImage, type_: ResourceType) -> list[str]:
    match type_:
        case ResourceType.TOPIC:
            return sorted(image.topics)
        case ResourceType.BROKER | ResourceType.BROKER_LOGGER:
            return [str(broker_id) for broker_id in sorted(image.brokers)]
        case _:
            return image.configured(type_)
