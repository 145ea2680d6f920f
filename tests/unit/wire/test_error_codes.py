"""Counting the errors in answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.runtime.line import whole
from moldau.wire.apis import APIS
from moldau.wire.error_codes import counter_of_errors, sliced_counter_of_errors
from moldau.wire.schema import Defaults, message_class

KEYS = {api.name: key for key, api in APIS.items()}
NONE, MOVED, FULL = ErrorCode.none, ErrorCode.not_coordinator, ErrorCode.kafka_storage_error


def errors_in(name: str, version: int, answer: Any) -> dict[int, int]:
    found: dict[int, int] = {}
    counter_of_errors(KEYS[name], version)(answer, found)
    sliced: dict[int, int] = {}
    pauses = sum(1 for _ in sliced_counter_of_errors(KEYS[name], version)(answer, sliced))
    assert sliced == found and pauses >= len(getattr(answer, "topics", None) or ())
    return found


def topic(*codes: ErrorCode) -> Any:
    return SimpleNamespace(partitions=[SimpleNamespace(error_code=code) for code in codes])


def test_an_answer_without_errors_counts_nothing() -> None:
    assert errors_in("Heartbeat", 4, SimpleNamespace(error_code=NONE)) == {}


def test_errors_are_added_to_those_that_were_counted_before() -> None:
    found = {int(MOVED): 2}
    counter_of_errors(KEYS["Heartbeat"], 4)(SimpleNamespace(error_code=MOVED), found)
    assert found == {MOVED: 3}


def test_errors_of_partitions_and_of_the_whole_count() -> None:
    answer = SimpleNamespace(topics=[topic(NONE, MOVED), topic(FULL, MOVED)], error_code=FULL)
    assert errors_in("OffsetFetch", 5, answer) == {MOVED: 2, FULL: 2}


def test_fields_that_the_version_does_not_have_do_not_count() -> None:
    answer = SimpleNamespace(error_code=MOVED, coordinators=[SimpleNamespace(error_code=MOVED)] * 3)
    assert errors_in("FindCoordinator", 3, answer) == {MOVED: 1}
    assert errors_in("FindCoordinator", 6, answer) == {MOVED: 3}


def test_what_is_null_counts_nothing() -> None:
    assert errors_in("DescribeTopicPartitions", 0, SimpleNamespace(topics=None, next_cursor=None)) == {}


def test_there_is_a_counter_for_every_answer() -> None:
    for key, api in APIS.items():
        for version in range(api.min_version, api.max_version + 1):
            found: dict[int, int] = {}
            answer = Defaults(message_class("response", key, version))
            counter_of_errors(key, version)(answer, found)
            whole(sliced_counter_of_errors(key, version)(answer, found))
            assert not found
