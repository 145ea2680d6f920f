"""A batch's plan: earliest and latest are left to the tasks, offsets that were given are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from moldau.spark.source.batch import plan
from moldau.spark.source.cluster import Topics
from moldau.spark.source.errors import OptionError
from moldau.spark.source.offsets import Offsets, TopicPartition
from moldau.spark.source.options import parse_options
from moldau.spark.source.ranges import OffsetRange

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class PlayedCluster:
    """Two partitions: one with the offsets 3 to 9, an empty one."""

    def topics(self) -> Topics:
        return Topics(frozenset({A, B}), {})

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: {A: 3, B: 0}[each] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: {A: 10, B: 0}[each] for each in partitions}

    def at_times(self, timestamps_ms: dict[TopicPartition, int]) -> Offsets:
        return {each: {A: 5, B: -1}[each] for each in timestamps_ms}


def planned(**options: str) -> list[OffsetRange]:
    cluster: Any = PlayedCluster()
    given = {"kafka.bootstrap.servers": "b", "subscribe": "t"} | options
    return plan(parse_options(given, is_stream=False), cluster)[0]


def test_a_frame_is_read_from_the_earliest_to_the_latest_offset_of_that_time() -> None:
    assert planned() == [OffsetRange(A, 3, 10, True, True), OffsetRange(B, 0, 0, True, True)]


def test_offsets_that_are_given_stay() -> None:
    given = {"startingOffsets": '{"t":{"0":4,"1":-2}}', "endingOffsets": '{"t":{"0":6,"1":-1}}'}
    assert planned(**given) == [OffsetRange(A, 4, 6), OffsetRange(B, 0, 0, True, True)]


def test_offsets_by_time_are_those_of_the_plan() -> None:
    assert planned(endingTimestamp="1000") == [OffsetRange(A, 3, 5, True, False)]


def test_a_start_behind_the_end_is_refused() -> None:
    with pytest.raises(OptionError, match="start offset 11 is greater than the resolved end offset 10"):
        planned(startingOffsets='{"t":{"0":11,"1":0}}')
