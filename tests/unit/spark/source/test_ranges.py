"""What a batch reads of each partition, and how it is cut into tasks: the cases of KafkaOffsetRangeCalculator."""

from __future__ import annotations

from moldau.spark.source.offsets import TopicPartition
from moldau.spark.source.ranges import OffsetRange, cut, grouped, limit_offsets

A, B, C = (TopicPartition("t", number) for number in range(3))


def cut_to(
    ranges: dict[TopicPartition, tuple[int, int]], parts: int | None, records: int | None = None
) -> list[object]:
    tasks = cut([OffsetRange(each, *bounds) for each, bounds in ranges.items()], parts, records)
    return [(task.partition, task.first_offset, task.next_offset) for task in tasks]


def grouped_to(
    sizes: list[int], together: int, parts: int | None = None, records: int | None = None
) -> list[list[int]]:
    """The tasks of partitions with so many offsets each: the partitions' numbers."""
    ranges = [OffsetRange(TopicPartition("t", number), 7, 7 + size) for number, size in enumerate(sizes)]
    return [[each.partition.partition for each in task] for task in grouped(ranges, together, parts, records)]


def test_a_limit_is_shared_by_the_backlog() -> None:
    limited = limit_offsets(100, {A: 0, B: 50, C: 7}, {A: 300, B: 150, C: 7})
    assert limited == {A: 75, B: 75, C: 7}


def test_a_partition_with_a_small_backlog_is_not_starved() -> None:
    assert limit_offsets(10, {A: 0, B: 0}, {A: 10_000, B: 1}) == {A: 9, B: 1}


def test_a_limit_larger_than_the_backlog_is_none() -> None:
    assert limit_offsets(2**62, {A: 1, B: 5}, {A: 3, B: 5}) == {A: 3, B: 5}


def test_a_partition_that_went_backwards_is_left_to_those_who_report_it() -> None:
    assert limit_offsets(10, {A: 100, B: 0}, {A: 50, B: 20}) == {A: 50, B: 10}


def test_a_task_reads_a_partition_where_no_option_says_otherwise() -> None:
    assert cut_to({B: (3, 5), A: (0, 10), C: (4, 4)}, None) == [(A, 0, 10), (B, 3, 5)]
    assert cut_to({A: (0, 10), B: (3, 5)}, 2) == [(A, 0, 10), (B, 3, 5)]


def test_large_partitions_are_cut_until_there_are_min_partitions() -> None:
    assert cut_to({A: (1, 5)}, 4) == [(A, 1, 2), (A, 2, 3), (A, 3, 4), (A, 4, 5)]
    assert cut_to({A: (0, 100), B: (0, 1)}, 3) == [(A, 0, 50), (A, 50, 100), (B, 0, 1)]
    assert cut_to({A: (0, 2)}, 4) == [(A, 0, 1), (A, 1, 2)]


def test_a_task_reads_at_most_max_records() -> None:
    assert cut_to({A: (1, 6)}, None, 2) == [(A, 1, 2), (A, 2, 4), (A, 4, 6)]
    assert cut_to({A: (0, 4), B: (0, 2)}, 2, 2) == [(A, 0, 2), (A, 2, 4), (B, 0, 2)]


def test_a_range_that_goes_backwards_is_no_task() -> None:
    assert cut_to({A: (5, 1), B: (0, 1)}, None) == [(B, 0, 1)]


def test_partitions_with_few_offsets_share_a_task_and_large_ones_have_their_own() -> None:
    assert grouped_to([1] * 5, 4) == [[0, 1, 2, 3], [4]]
    assert grouped_to([1, 50, 1, 4, 2, 3], 4) == [[0, 2, 4], [1], [3], [5]]
    assert grouped_to([1, 2], 1) == [[0], [1]]
    assert grouped_to([], 4) == []


def test_tasks_that_share_hold_to_the_options_of_sparks_connector() -> None:
    assert grouped_to([1, 1, 1], 4, parts=2) == [[0], [1], [2]]
    assert grouped_to([1, 1, 1], 4, records=2) == [[0, 1], [2]]


def test_of_a_range_that_may_grow_the_last_part_does_and_an_empty_one_is_kept() -> None:
    growing = [OffsetRange(A, 0, 10, True, True), OffsetRange(B, 5, 5, True, True)]
    assert cut(growing, 3, None) == [
        OffsetRange(A, 0, 3, True, False),
        OffsetRange(A, 3, 6, True, False),
        OffsetRange(A, 6, 10, True, True),
        OffsetRange(B, 5, 5, True, True),
    ]
    assert cut(growing[1:], 3, 2) == growing[1:]
    assert grouped_to([0, 0, 3, 0], 4, parts=2) == [[0, 1, 3], [2]]


def test_not_many_ranges_that_may_grow_share_a_task() -> None:
    growing = [OffsetRange(TopicPartition("t", number), 0, 0, True, True) for number in range(20)]
    assert [len(task) for task in grouped(growing, 4000, None, None)] == [8, 8, 4]
