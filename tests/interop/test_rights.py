"""Each API in every version, asked with no right, with each that it asks for, and with all: Moldau answers as Apache
Kafka with its StandardAuthorizer does, element by element. Texts are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from bench.server import MoldauServer
from interop.rights.cases import CASES, Case
from interop.rights.land import FROM_KAFKA, Grant, Land, grants_of
from interop.same_answers.normal import plain
from interop.same_answers.peers import Peer
from moldau.broker.handlers import ROUTES
from moldau.security.rights import RIGHTS
from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.schema import field_specs, message_class

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-rights")]

UNSEEN = ("error_message", "host", "throttle_time")
SETTLE_S = 0.5
WITHOUT_RIGHTS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


@pytest.fixture(scope="module")
def land(requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Land]:
    folder = tmp_path_factory.mktemp("rights")
    kafka, moldau = KafkaServer(folder / "kafka", FROM_KAFKA), MoldauServer(folder / "moldau", FROM_KAFKA)
    kafka.launch()
    with moldau, kafka:
        kafka.wait_ready()
        land = Land(kafka.bootstrap_servers, moldau.bootstrap_servers)
        land.settle()
        yield land
        land.close()


@pytest.mark.parametrize("api", sorted({case.api for case in CASES}))
def test_what_is_denied_is_denied_as_by_kafka(land: Land, api: str) -> None:
    found: list[str] = []
    seen = ""
    for grants in grants_of(RIGHTS[api]):
        with land.with_grants(grants):
            for case in CASES:
                if case.api == api:
                    differences, answer = differing(land, case, grants)
                    found += differences
                    seen += answer
    assert not found, "\n".join(found)
    missing = [row for row in RIGHTS[api] if row.error.name not in seen and row.error]
    assert not missing, f"nothing shows that Kafka asks for {missing}"


@pytest.mark.parametrize("api", sorted({case.api for case in CASES}))
def test_what_is_denied_is_denied_as_by_kafka_in_every_version(land: Land, api: str) -> None:
    """The same asked in the other versions that have the fields."""
    (route,) = (route for route in ROUTES.values() if route.name == api)
    asked = [
        case._replace(version=version)
        for version in range(route.min_version, route.max_version + 1)
        for case in CASES
        if case.api == api and has_fields(case, version, land)
    ]
    land.stranger.close()  # it may be out of step after a failure
    found: list[str] = []
    for grants in grants_of(RIGHTS[api]):
        with land.with_grants(grants):
            for case in asked:
                differences, _ = differing(land, case, grants)
                found += differences
    assert not found, "\n".join(found)


def has_fields(case: Case, version: int, land: Land) -> bool:
    known = {spec.name for spec in field_specs(message_class("request", APIS_BY_NAME[case.api].key, version))}
    return case.values(land.ids).keys() <= known and (case.label != "by id" or version >= case.version)


def differing(land: Land, case: Case, grants: tuple[Grant, ...]) -> tuple[list[str], str]:
    """A difference counts when it shows twice: Kafka answers before its broker has heard of a change."""
    for pause_s in (SETTLE_S, 0):
        answers = land.stranger.ask(case.api, case.version, case.values(land.ids))
        kafka, moldau = (
            shown(getattr(answers, name), getattr(land.stranger, name)) for name in ("kafka", "moldau")
        )
        if kafka == moldau:
            return [], repr(kafka)
        time.sleep(pause_s)
    granted = ", ".join(f"{grant.operation.name} {grant.resource.name}" for grant in grants) or "nothing"
    text = f"{case.api} v{case.version} {case.label} with {granted}\n  kafka:  {kafka}\n  moldau: {moldau}"
    return [text], repr(kafka)


def shown(answer: Any, peer: Peer) -> Any:
    return in_order(plain(answer, peer))


def in_order(tree: Any) -> Any:
    """What has no order in Kafka is sorted; texts are left out, and so are ids that nobody has been told."""
    if isinstance(tree, UUID):
        return "<an id>"
    if isinstance(tree, dict):
        return {key: in_order(value) for key, value in tree.items() if key not in UNSEEN}
    if isinstance(tree, list):
        return sorted(map(in_order, tree), key=repr)
    return tree


def test_every_api_that_asks_for_a_right_is_asked() -> None:
    asked = {case.api for case in CASES}
    served = {route.name for route in ROUTES.values() if not route.is_internal}
    assert served - asked == WITHOUT_RIGHTS & served
