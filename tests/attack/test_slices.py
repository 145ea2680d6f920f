"""No request holds the loop, whatever it names: every array of every API, with as many elements as a request may have.

What is asserted is how the work was cut, and what is left of it: nothing. See `watched` for what a stretch is.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.base.limits import DECODED_REQUEST_BYTES_MAX, REQUEST_ELEMENTS_MAX, TAGGED_FIELDS_MAX
from moldau.broker.dispatch import Route
from moldau.wire.schema import message_class

from .from_schema import array_frame
from .requests import (
    Elements,
    Path,
    Values,
    array_paths,
    different,
    filled,
    frame,
    least,
    same,
    served,
    unknown_tags,
    whole,
)
from .watched import Watched, watched

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slices")]

COUNTS = (95_000, 45_000, 30_000)
"""Elements that have arrays of their own count several times: the first of these that is not too many."""
STRETCH_S_MAX = 0.25
"""CPU time of one callback. Far more than is meant (a slice is 4 ms), and far less than a whole request takes."""
CPU_S_PER_SLICE_MAX = 0.25


@pytest.fixture(scope="module")
def broker() -> Iterator[Watched]:
    with watched() as found:
        found.settle()
        yield found


def cases(api: str) -> Iterator[tuple[Route, int, Path, str]]:
    """Different names with the newest version, the same one with the oldest: `make attack` has the rest."""
    route = served()[api]
    for path in array_paths(message_class("request", route.api_key, route.max_version)):
        yield route, route.max_version, path, "different"
    if route.min_version != route.max_version:
        for path in array_paths(message_class("request", route.api_key, route.min_version)):
            yield route, route.min_version, path, "same"


def elements(broker: Watched, kind: str, count: int) -> Elements:
    return same(count, broker.names) if kind == "same" else different(DECODED_REQUEST_BYTES_MAX - 4096, count)


@pytest.mark.parametrize("api", sorted(served()))
def test_the_most_elements_are_gone_through_in_slices(broker: Watched, api: str) -> None:
    for route, version, path, kind in cases(api):
        where = f"v{version} {'.'.join(path)} {kind}"
        for count in COUNTS:
            broker.stretches.reset()
            slices, malformed = broker.slices, broker.malformed
            answer = broker.answer_to(
                array_frame(route, version, path, broker.names, elements(broker, kind, count))
            )
            assert broker.answers(), where
            broker.settle()
            stretches = broker.stretches
            assert stretches.longest_s < STRETCH_S_MAX, (where, stretches.longest_s, stretches.where)
            assert broker.slices - slices >= max(1, stretches.total_s / CPU_S_PER_SLICE_MAX), where
            if broker.malformed == malformed:
                break
            assert answer is None and broker.malformed == malformed + 1, where


@pytest.mark.parametrize("api", sorted(served()))
def test_more_elements_than_a_request_may_have_are_refused(broker: Watched, api: str) -> None:
    route = served()[api]
    for version in sorted({route.min_version, route.max_version}):
        for path in array_paths(message_class("request", route.api_key, version)):
            malformed = broker.malformed
            many = same(REQUEST_ELEMENTS_MAX + 1, broker.names)
            answer = broker.answer_to(array_frame(route, version, path, broker.names, many))
            assert answer is None, (version, path)
            assert broker.malformed == malformed + 1, (version, path)
            assert broker.answers()
    broker.settle()


@pytest.mark.parametrize("api", sorted(set(served()) - {"Produce"}))
def test_only_produce_may_be_larger_than_what_is_decoded(broker: Watched, api: str) -> None:
    """It is refused by its first bytes: the rest is not waited for, and costs nothing."""
    route = served()[api]
    head = whole(route.api_key, route.max_version, b"")[4:]
    malformed = broker.malformed
    assert broker.answer_to((DECODED_REQUEST_BYTES_MAX + 1).to_bytes(4, "big") + head) is None
    assert broker.malformed == malformed + 1
    broker.settle()


@pytest.mark.parametrize("api", sorted(served()))
def test_more_tagged_fields_than_a_section_may_have_are_refused(broker: Watched, api: str) -> None:
    route, version = served()[api], served()[api].max_version
    data = filled(api, version, (), broker.names, least(0))
    if not message_class("request", route.api_key, version).__flexible__:
        return
    malformed = broker.malformed
    too_many = unknown_tags(TAGGED_FIELDS_MAX + 1)
    for refused in (
        whole(route.api_key, version, data, tags=too_many),
        whole(route.api_key, version, data[:-1] + too_many),
        whole(route.api_key, version, data[:-1] + unknown_tags(1_000_000)),
    ):
        malformed = broker.malformed
        assert broker.answer_to(refused) is None
        assert broker.malformed == malformed + 1
    broker.settle()


def metadata(count: int, correlation_id: int) -> bytes:
    values: Values = {"topics": [{"name": f"no-such-{number}"} for number in range(count)]}
    return frame("Metadata", 9, values, correlation_id=correlation_id)


def test_large_requests_and_small_ones_behind_them_are_answered_in_order(broker: Watched) -> None:
    few: Values = {"client_software_name": "a", "client_software_version": "1"}
    many: Values = {"groups_names": [f"g{number}" for number in range(3000)]}
    sent = [
        metadata(20_000, 1),
        frame("ApiVersions", 3, few, correlation_id=2),
        frame("DeleteGroups", 2, many, correlation_id=3),
        metadata(5_000, 4),
        *(metadata(1, number) for number in range(5, 50)),
    ]
    with broker.client() as client:
        client.send(b"".join(sent))
        answered = [int.from_bytes(client.receive()[:4], "big") for _ in sent]
    assert answered == list(range(1, 50))
    broker.settle()


def test_work_for_a_client_that_is_gone_ends(broker: Watched) -> None:
    """Of 40 large requests on connections that are closed at once hardly anything is carried out."""
    data = metadata(40_000, 1)
    slices = broker.slices
    assert broker.answer_to(data) is not None
    of_one = broker.slices - slices
    slices = broker.slices
    for _ in range(40):
        with broker.client() as client:
            client.send(data)
    assert broker.answers()
    broker.settle()
    assert broker.slices - slices < 40 * of_one // 2
