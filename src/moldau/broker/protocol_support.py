"""docs/protocol-support.md, made from the dispatch table: `python -m moldau.broker`."""

from __future__ import annotations

from moldau.broker.dispatch import Route
from moldau.wire.apis import APIS

HEAD = """# Protocol support

Made by `make docs` from the table that the broker dispatches by and ApiVersions advertises; do not edit.
Versions are those of Apache Kafka 4.3's message definitions.

| key | API | versions served | advertised from | codec knows |
|---|---|---|---|---|
"""


def protocol_support(routes: dict[int, Route]) -> str:
    lines = [
        f"| {route.api_key} | {route.name} | {_span(route.min_version, route.max_version)} "
        f"| {route.advertised_min_version} | {_span(APIS[key].min_version, APIS[key].max_version)} |\n"
        for key, route in routes.items()
        if not route.is_internal
    ]
    internal = ", ".join(route.name for route in routes.values() if route.is_internal)
    missing = ", ".join(api.name for key, api in APIS.items() if key not in routes)
    return HEAD + "".join(lines) + f"\nBetween brokers only: {internal}.\n\nNot served: {missing}.\n"


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
