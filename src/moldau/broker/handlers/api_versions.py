"""ApiVersions (18): what this broker serves.

- v0: the first
- v1: the throttle time
- v2: the client waits where it is throttled (KIP-219)
- v3: KIP-511, the client names its software, which must look like a name; KIP-584, the answer has features
- v4: features may be supported from version 0 on (KAFKA-17011)

A request of a version that is not served gets a v0 body with UNSUPPORTED_VERSION and the versions of ApiVersions
itself (`request` is None then).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from moldau.base.errors import ErrorCode
from moldau.broker.answers.metadata import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from moldau.broker.dispatch import Route
from moldau.broker.interface import Request, RequestContext, ServingBroker

API_KEY = 18
VERSIONS = (0, 4)

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE_VERSION = 3
PEER_SOFTWARE = "moldau"
"""Other brokers, which are told of the APIs between brokers as well."""

FEATURES = (
    ("eligible.leader.replicas.version", 0, 1, 1),
    ("group.version", 0, 1, 1),
    ("transaction.version", 0, 2, 2),
)
"""Name, the versions that are supported and the one in force (KIP-584). By the version of groups clients know that
there are consumer groups (KIP-848); by that of transactions, that an epoch belongs to each of them, and that brokers
add partitions themselves (KIP-890). Eligible leader replicas (KIP-966) are kept always, so that `min.insync.replicas`
is always a dynamic setting of the whole cluster (`controller.min_isr`)."""
FEATURES_EPOCH = 0
NO_EPOCH = -1
FEATURES_FROM_0_SINCE_VERSION = 4
"""Before that, features that are supported from version 0 on are left out, as Kafka's ApiVersionsResponse does: Java
clients from 3.2 to 3.8 take a range from 0 for an error and give up their network thread."""


def handle(broker: ServingBroker, context: RequestContext, request: Request) -> ApiVersionsResponse:
    if request is None:
        return _answer(0, ErrorCode.unsupported_version, [broker.routes[API_KEY]])
    if context.version >= SOFTWARE_SINCE_VERSION:
        software = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(text) for text in software):
            return _answer(context.version, ErrorCode.invalid_request, [])
        context.connection.client_software = software
        if software[0] == PEER_SOFTWARE:
            return _answer(context.version, ErrorCode.none, broker.routes.values())
    routes = [route for route in broker.routes.values() if not route.is_internal]
    return _answer(context.version, ErrorCode.none, routes)


def _answer(version: int, error: ErrorCode, routes: Iterable[Route]) -> ApiVersionsResponse:
    if error:  # it says nothing else
        keys = tuple(ApiVersion(r.api_key, r.advertised_min_version, r.max_version) for r in routes)
        return ApiVersionsResponse(error, keys, (), NO_EPOCH, ())
    least = 0 if version >= FEATURES_FROM_0_SINCE_VERSION else 1
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(
            ApiVersion(route.api_key, route.advertised_min_version, route.max_version) for route in routes
        ),
        supported_features=tuple(
            SupportedFeatureKey(name, low, high) for name, low, high, _ in FEATURES if low >= least
        ),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=tuple(FinalizedFeatureKey(name, level, level) for name, _, _, level in FEATURES),
    )
