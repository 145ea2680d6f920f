"""ApiVersions (18): what this broker serves.

A request of a version that is not served gets a v0 body with UNSUPPORTED_VERSION and the versions of ApiVersions
itself (`request` is None then). From v3 on the client names its software, which must look like a name (KIP-511).
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode

API_KEY = 18
VERSIONS = (0, 4)

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_SINCE_VERSION = 3

FEATURES = (("group.version", 0, 1, 1), ("transaction.version", 0, 2, 2))
"""Name, the versions that are supported and the one in force (KIP-584). By the version of groups clients know that
there are consumer groups (KIP-848); by that of transactions, that an epoch belongs to each of them, and that brokers
add partitions themselves (KIP-890)."""
FEATURES_EPOCH = 0
FEATURES_FROM_0_SINCE_VERSION = 4
"""Before that, features that are supported from version 0 on are left out, as Kafka does: Java clients from 3.2 to 3.8
take a range from 0 for an error and give up their network thread."""


def handle(broker: Any, context: Any, request: Any) -> object:
    if request is None:
        return _answer(0, ErrorCode.unsupported_version, [broker.routes[API_KEY]])
    if context.version >= SOFTWARE_SINCE_VERSION:
        software = (request.client_software_name, request.client_software_version)
        if not all(SOFTWARE_NAME.fullmatch(text) for text in software):
            return _answer(context.version, ErrorCode.invalid_request, [])
        context.connection.client_software = software
    return _answer(context.version, ErrorCode.none, broker.routes.values())


def _answer(version: int, error: ErrorCode, routes: Any) -> object:
    least = 0 if version >= FEATURES_FROM_0_SINCE_VERSION else 1
    return SimpleNamespace(
        error_code=error,
        api_keys=tuple(
            SimpleNamespace(
                api_key=route.api_key, min_version=route.advertised_min_version, max_version=route.max_version
            )
            for route in routes
        ),
        throttle_time=0,
        supported_features=tuple(
            SimpleNamespace(name=name, min_version=low, max_version=high)
            for name, low, high, _ in FEATURES
            if low >= least
        ),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=tuple(
            SimpleNamespace(name=name, max_version_level=level, min_version_level=level)
            for name, _, _, level in FEATURES
        ),
        zk_migration_ready=False,
    )
