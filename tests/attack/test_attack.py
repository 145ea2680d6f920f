"""The tool's own parts: requests that decode to what was meant, percentiles, volleys, verdicts."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from moldau.wire.apis import APIS_BY_NAME
from moldau.wire.codec import decode_request
from moldau.wire.frames import parse_request_header
from moldau.wire.schema import message_class

from .catalogue import all_attacks
from .client import volley
from .from_schema import array_frame, versions_of
from .issue import int32_rows, short_names
from .pinger import percentile
from .records import bomb, long_valid_batch, tiny_records
from .report import Limits, Row, beside, line
from .requests import Names, Raw, array_paths, different, frame, least, same, served, unknown_tags

NAMES = Names(topic_id=bytes(range(16)), producer_id=7)
API_NAMES = sorted(served())


def decoded(data: bytes) -> object:
    view = memoryview(data)[4:]
    key, version, _, _, position = parse_request_header(view)
    return decode_request(key, version, view, position)


def elements_at(message: object, path: tuple[str, ...]) -> tuple[Any, ...]:
    for name in path[:-1]:
        (message,) = getattr(message, name)
    found: tuple[Any, ...] = getattr(message, path[-1])
    return found


@pytest.mark.parametrize("api", API_NAMES)
def test_an_array_has_as_many_elements_as_were_asked_for(api: str) -> None:
    route = served()[api]
    for version in versions_of(route):
        for path in array_paths(message_class("request", route.api_key, version)):
            request = decoded(array_frame(route, version, path, NAMES, same(20, NAMES)))
            found = elements_at(request, path)
            assert len(found) == 20 and len(set(found)) == 1, (version, path)


@pytest.mark.parametrize("api", API_NAMES)
def test_different_elements_are_different(api: str) -> None:
    route = served()[api]
    version = route.max_version
    for path in array_paths(message_class("request", route.api_key, version)):
        if path == ("resource_types",):
            continue  # a byte: there are not many different ones
        found = elements_at(decoded(array_frame(route, version, path, NAMES, different(2000))), path)
        assert len(set(found)) == len(found) > 10, path


@pytest.mark.parametrize("api", API_NAMES)
def test_the_smallest_elements_fill_the_bytes(api: str) -> None:
    route = served()[api]
    for version in versions_of(route):
        for path in array_paths(message_class("request", route.api_key, version)):
            data = array_frame(route, version, path, NAMES, least(10_000))
            assert 9_900 < len(data) < 10_300, (version, path)
            decoded(data)


def test_every_api_has_an_attack_of_its_own() -> None:
    names = [attack.name for attack in all_attacks()]
    for api in API_NAMES:
        assert any(name.startswith((f"{api} ", f"{api},")) for name in names), api


def test_no_two_attacks_have_the_same_name() -> None:
    names = [attack.name for attack in all_attacks()]
    assert len(names) == len(set(names))


def test_tagged_fields_go_into_the_header() -> None:
    plain = frame("ApiVersions", 3, {"client_software_name": "a"})
    tagged = frame("ApiVersions", 3, {"client_software_name": "a"}, tags=unknown_tags(60))
    assert len(tagged) == len(plain) + 2 * 60
    assert decoded(tagged) == decoded(plain)


def test_encoded_elements_are_taken_as_they_are() -> None:
    request = decoded(frame("DescribeGroups", 5, {"groups": Raw(3, b"\x02a\x02b\x02c")}))
    assert elements_at(request, ("groups",)) == ("a", "b", "c")


def test_all_apis_are_known_by_name() -> None:
    assert set(API_NAMES) <= set(APIS_BY_NAME)


def test_bombs_are_small() -> None:
    from moldau.records.compression import Codec

    assert len(bomb(Codec.ZSTD)) < 5_000
    assert len(tiny_records(Codec.ZSTD, 1_000_000)) < 2_000


def test_the_long_batch_is_one_that_a_broker_may_take() -> None:
    from moldau.records.record import read_records

    records = read_records(long_valid_batch(5_000))
    assert [record.offset for record in records] == list(range(5_000))
    assert records[-1].timestamp == records[0].timestamp + 1


def test_a_stall_stands_for_all_who_would_have_come_meanwhile() -> None:
    assert percentile([], 0.99) == 0
    assert percentile([0.0005] * 1000, 0.99) == pytest.approx(0.0005, abs=0.0001)
    assert percentile([0.0005] * 1000 + [1.0], 0.5) > 0.0005
    assert percentile([0.0005] * 1000 + [1.0], 0.99) == pytest.approx(0.98, abs=0.01)


def test_a_volley_counts_answers_and_notices_the_end() -> None:
    ours, theirs = socket.socketpair()

    def answer() -> None:
        theirs.recv(100)
        theirs.sendall(b"\0\0\0\x02ab\0\0")
        theirs.sendall(b"\0\x03abc")
        theirs.close()

    thread = threading.Thread(target=answer)
    thread.start()
    with ours:
        done = volley([ours], b"hello", answers=3, deadline_s=time.monotonic() + 30)
    thread.join()
    assert (done.sent_bytes, done.answers, done.answered_bytes, done.closed) == (5, 2, 13, 1)
    assert done.first_answer() == b"ab"


def test_rows_over_the_limits_are_marked() -> None:
    good = Row("good", 1, "1 B", 10, 1, 10, 1, "yes")
    slow = Row("slow", 1, "1 B", 60, 1, 10, 1, "yes")
    fat = Row("fat", 1, "1 B", 10, 1, 400, 1, "yes")
    dead = Row("dead", 1, "1 B", 10, 1, 10, 1, "it has ended")
    limits = Limits(50, 300)
    assert [row.complaints(limits) for row in (good, slow, fat, dead)] == [
        [],
        ["wait"],
        ["memory"],
        ["serves"],
    ]
    assert "60.0!" in line(slow, limits) and "!" not in line(good, limits) and "+400!" in line(fat, limits)
    assert "slow" in beside([slow], [good]) and "60.0" in beside([slow], [slow]).splitlines()[1]


def test_rows_of_integers_are_elements_of_their_arrays() -> None:
    topics = [{"name": "t", "partition_data": int32_rows(3, -1)}]
    request = decoded(frame("Produce", 8, {"acks": 1, "topic_data": topics}))
    found = elements_at(request, ("topic_data", "partition_data"))
    assert [(each.index, each.records) for each in found] == [(0, None), (1, None), (2, None)]


def test_short_names_are_as_many_as_they_claim() -> None:
    names = short_names(2_770_000)
    assert len(names.data) == 6 * names.count
