"""Moldau answers as Apache Kafka does: the same raw requests to both, every API in every version, errors included.

One Kafka and one Moldau are started for all of it. A difference is reported with the case, the field and both values;
the few that may be are in `same_answers/accepted.py` with their reasons.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.apache_kafka import Distribution, KafkaServer
from bench.server import MoldauServer
from interop.same_answers.accepted import ACCEPTED, Accepted
from interop.same_answers.conversation import SCENARIOS, Conversation, Difference, Scenario
from interop.same_answers.peers import Pair, Peer
from interop.same_answers.scenarios import SETTINGS
from moldau.broker.handlers import ROUTES

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("interop-same-answers")]

CASES = [(scenario, version) for scenario in SCENARIOS for version in scenario.versions]
SEEN: set[Accepted] = set()
DONE: set[tuple[str, str, int]] = set()


@pytest.fixture(scope="module")
def pair(requires_kafka: Distribution, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("same-answers")
    kafka, moldau = KafkaServer(folder / "kafka", SETTINGS), MoldauServer(folder / "moldau", SETTINGS)
    kafka.launch()
    with moldau, kafka:
        kafka.wait_ready()
        pair = Pair(Peer("kafka", kafka.bootstrap_servers), Peer("moldau", moldau.bootstrap_servers))
        pair.warm_up()
        yield pair
        pair.close()


@pytest.mark.parametrize(
    ("scenario", "version"), CASES, ids=[f"{s.api} v{version} {s.label}" for s, version in CASES]
)
def test_moldau_answers_as_kafka_does(pair: Pair, scenario: Scenario, version: int) -> None:
    """A difference counts when it shows twice: Kafka answers before its broker has heard of a change, so what it says
    next may be old by chance."""
    found = differences(pair, scenario, version)
    if found:
        found = differences(pair, scenario, version, "-again")
    if found:
        pytest.fail(f"{len(found)} differences:\n" + "\n".join(map(str, found)), pytrace=False)
    DONE.add((scenario.api, scenario.label, version))


def differences(pair: Pair, scenario: Scenario, version: int, again: str = "") -> list[Difference]:
    conversation = Conversation(pair, scenario.api, version, f"{scenario.api}-{scenario.label}{again}")
    scenario.steps(conversation)
    SEEN.update(conversation.accepted)
    return conversation.differences


def test_every_version_of_every_served_api_is_asked() -> None:
    asked = {(scenario.api, version) for scenario, version in CASES}
    served = {
        (route.name, version)
        for route in ROUTES.values()
        if not route.is_internal
        for version in range(route.min_version, route.max_version + 1)
    }
    assert served <= asked


def test_every_accepted_difference_is_still_there() -> None:
    if len(DONE) < len(CASES):
        pytest.skip("only a part of the scenarios ran")
    assert [accepted.where for accepted in ACCEPTED if accepted not in SEEN] == []
