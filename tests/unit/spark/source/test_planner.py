"""A stream's plans: what each batch reads, over brokers that are played here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from moldau.spark.source.cluster import Topics
from moldau.spark.source.errors import OptionError, PlannedDataLoss
from moldau.spark.source.offsets import Offsets, TopicPartition, write_id
from moldau.spark.source.options import parse_options
from moldau.spark.source.planner import Planner, Stored
from moldau.spark.source.ranges import OffsetRange

OLD, NEW = UUID(int=1), UUID(int=2)
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MARK = {f"t/id/{write_id(OLD)}": {}}


class PlayedCluster:
    def __init__(self) -> None:
        self.topic_id = OLD
        self.bounds: dict[TopicPartition, tuple[int, int]] = {A: (0, 0)}
        self.times: dict[TopicPartition, int] = {}
        self.group: Offsets = {}
        self.asked = 0

    def topics(self) -> Topics:
        return Topics(frozenset(self.bounds), {"t": self.topic_id} if self.bounds else {})

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self.bounds[each][0] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        self.asked += 1
        return {each: self.bounds[each][1] for each in partitions}

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> Offsets:
        return {each: self.times.get(each, -1) for each in timestamps_ms}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
        return {each: self.group[each] for each in partitions if each in self.group}


class PlayedClient:
    def __init__(self) -> None:
        self.commits: list[Offsets] = []
        self.waits: list[Offsets] = []
        self.has_records = False
        self.sizes: dict[TopicPartition, float] = {}
        self.flushes = 0

    def wait_for_records(self, offsets: Offsets, timeout_s: float) -> bool:
        self.waits.append(offsets)
        return self.has_records

    def commit(self, offsets: Offsets) -> None:
        self.commits.append(offsets)

    def bytes_per_offset(self, offsets: Offsets) -> dict[TopicPartition, float]:
        return {each: self.sizes[each] for each in offsets if each in self.sizes}

    def flush(self) -> None:
        self.flushes += 1


class Stage:
    def __init__(self, **options: str) -> None:
        self.cluster, self.client = PlayedCluster(), PlayedClient()
        given = {"kafka.bootstrap.servers": "b", "subscribe": "t", "minOffsetsPerTask": "1"}
        self.options = given | options
        self.now_s = 100.0
        self.planner = self.new_process()

    def new_process(self) -> Planner:
        options = parse_options(self.options, is_stream=True)
        self.planner = Planner(options, self.cluster, self.client, lambda: self.now_s, self.sleep)  # type: ignore[arg-type]
        return self.planner

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def latest(self, start: Stored, *, is_limited: bool = True) -> Stored:
        return self.planner.latest(start, is_limited=is_limited)

    def ranges(self, start: Stored, end: Stored) -> list[OffsetRange]:
        return self.planner.ranges(start, end)[0]


def test_a_stream_starts_at_latest_and_a_replay_of_its_first_batch_loses_nothing() -> None:
    stage = Stage()
    stage.cluster.bounds = {A: (0, 5)}
    initial = stage.planner.initial()
    assert initial == {"t": {"0": 5}} | MARK
    stage.cluster.bounds = {A: (0, 9)}
    assert stage.planner.initial() == initial
    end = stage.latest(initial)
    assert end == {"t": {"0": 9}} | MARK | {"t/first/0/5": {}}
    stage.cluster.bounds = {A: (0, 20)}
    stage.new_process()
    assert stage.planner.initial() == {"t": {"0": 20}} | MARK
    assert stage.ranges(stage.planner.initial(), end) == [OffsetRange(A, 5, 9)]


def test_the_first_batch_is_written_down_even_where_there_is_nothing_to_read() -> None:
    stage = Stage()
    initial = stage.planner.initial()
    first = stage.latest(initial)
    assert first == {"t": {"0": 0}} | MARK | {"t/first/0/0": {}}
    assert stage.latest(first) == first


def test_a_query_that_comes_back_at_latest_has_no_batch_for_that() -> None:
    stage = Stage()
    end = stage.latest(stage.planner.initial())
    stage.cluster.bounds = {A: (0, 20)}
    stage.new_process()
    stage.ranges(stage.planner.initial(), end)
    following = stage.latest(end)
    assert following == stage.planner.initial() == {"t": {"0": 20}} | MARK
    assert stage.latest(following) == following


def test_the_start_is_found_by_time_by_the_group_and_by_offset() -> None:
    stage = Stage(startingTimestamp="7")
    stage.cluster.times = {A: 3}
    assert stage.planner.initial()["t"] == {"0": 3}
    stage = Stage(startingTimestamp="7")
    with pytest.raises(
        OptionError, match="No offset matched from request of topic-partition t-0 and timestamp 7"
    ):
        stage.planner.initial()
    stage = Stage(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest")
    stage.cluster.bounds = {A: (0, 8)}
    assert stage.planner.initial()["t"] == {"0": 8}
    stage = Stage(startingOffsets="group", progressGroup="g")
    stage.cluster.bounds, stage.cluster.group = {A: (1, 8), B: (2, 8)}, {A: 6}
    assert stage.planner.initial()["t"] == {"0": 6, "1": 2}
    stage = Stage(startingOffsets='{"t":{"0":-1,"1":4}}')
    stage.cluster.bounds = {A: (0, 8), B: (0, 8)}
    assert stage.planner.initial()["t"] == {"0": 8, "1": 4}


def test_offsets_must_be_given_for_all_partitions() -> None:
    stage = Stage(startingOffsets='{"t":{"1":4}}')
    with pytest.raises(OptionError) as refusal:
        stage.planner.initial()
    assert "you must specify all TopicPartitions" in str(refusal.value)
    assert "Specified: Set(t-1) Assigned: Set(t-0)" in str(refusal.value)


def test_a_new_partition_is_read_from_its_beginning_also_when_the_batch_runs_again() -> None:
    stage = Stage()
    start = {"t": {"0": 5}} | MARK
    stage.cluster.bounds = {A: (0, 5), B: (0, 3)}
    end = stage.latest(start)
    assert end == {"t": {"0": 5, "1": 3}} | MARK | {"t/first/1/0": {}}
    stage.cluster.bounds = {A: (0, 5), B: (2, 9)}
    assert stage.ranges(start, end) == [OffsetRange(B, 0, 3)]


def test_a_checkpoint_of_sparks_connector_goes_on() -> None:
    stage = Stage()
    stage.cluster.bounds = {A: (0, 5), B: (0, 3)}
    assert stage.ranges({"t": {"0": 2}}, {"t": {"0": 5, "1": 3}}) == [
        OffsetRange(A, 2, 5),
        OffsetRange(B, 0, 3),
    ]
    assert stage.latest({"t": {"0": 5, "1": 3}}) == {"t": {"0": 5, "1": 3}}


def test_a_new_partition_that_has_lost_records_already_is_data_loss() -> None:
    stage = Stage()
    with pytest.raises(PlannedDataLoss, match="Added partition t-1 starts from 4 instead of 0"):
        stage.ranges({"t": {"0": 5}}, {"t": {"0": 5, "1": 9}, "t/first/1/4": {}})
    stage = Stage(failOnDataLoss="false")
    end: Stored = {"t": {"0": 5, "1": 9}, "t/first/1/4": {}}
    assert stage.ranges({"t": {"0": 5}}, end) == [OffsetRange(B, 4, 9)]


def test_a_partition_that_is_gone_is_data_loss() -> None:
    stage = Stage()
    start = {"t": {"0": 5, "1": 3}} | MARK
    stage.cluster.bounds = {A: (0, 7)}
    with pytest.raises(PlannedDataLoss, match=r"Partitions Set\(t-1\) have been deleted"):
        stage.ranges(start, stage.latest(start))
    stage.options["failOnDataLoss"] = "false"
    stage.new_process()
    assert stage.ranges(start, stage.latest(start)) == [OffsetRange(A, 5, 7)]


def test_offsets_that_move_backwards_are_asked_for_again_and_then_data_loss() -> None:
    stage = Stage()
    start = {"t": {"0": 5}} | MARK
    stage.cluster.bounds = {A: (0, 3)}
    end = stage.latest(start)
    assert (end["t"], stage.cluster.asked, stage.now_s) == ({"0": 3}, 3, 102.0)
    with pytest.raises(PlannedDataLoss, match="Partition t-0 offset was changed from 5 to 3"):
        stage.ranges(start, end)


def test_a_topic_that_was_created_anew_is_not_taken_for_the_old_one() -> None:
    stage = Stage()
    start = {"t": {"0": 5}} | MARK
    stage.cluster.topic_id, stage.cluster.bounds = NEW, {A: (0, 50)}
    with pytest.raises(PlannedDataLoss, match="Topic t was deleted and created anew"):
        stage.latest(start)
    stage.options["failOnDataLoss"] = "false"
    stage.new_process()
    end = stage.latest(start)
    assert end == {"t": {"0": 50}, f"t/id/{write_id(NEW)}": {}, "t/first/0/0": {}}
    assert stage.ranges(start, end) == [OffsetRange(A, 0, 50)]
    assert stage.latest(end) == end


def test_a_trigger_takes_at_most_max_offsets_in_proportion() -> None:
    stage = Stage(maxOffsetsPerTrigger="10")
    stage.cluster.bounds = {A: (0, 30), B: (0, 10)}
    start = {"t": {"0": 0, "1": 0}} | MARK
    assert stage.latest(start)["t"] == {"0": 7, "1": 2}
    assert stage.latest(start, is_limited=False)["t"] == {"0": 30, "1": 10}


def test_a_trigger_takes_about_max_bytes() -> None:
    stage = Stage(maxBytesPerTrigger="1000")
    stage.cluster.bounds = {A: (0, 30), B: (0, 10)}
    stage.client.sizes = {A: 10.0, B: 170.0}
    start = {"t": {"0": 0, "1": 0}} | MARK
    assert stage.latest(start)["t"] == {"0": 15, "1": 5}
    stage.client.sizes = {A: 10.0, B: 17.0}
    assert stage.latest(start)["t"] == {"0": 30, "1": 10}
    stage.client.sizes = {A: 5000.0}
    assert stage.latest(start)["t"] == {"0": 1, "1": 1}, "one record at least"
    stage.client.sizes = {}
    stage.cluster.bounds = {A: (0, 2)}
    assert stage.latest({"t": {"0": 0}} | MARK)["t"] == {"0": 1}, "a kilobyte each, where nothing is known"


def test_a_trigger_waits_for_min_offsets_but_not_for_ever() -> None:
    stage = Stage(minOffsetsPerTrigger="10", maxTriggerDelay="5s")
    start: Stored = {"t": {"0": 0}} | MARK
    stage.cluster.bounds = {A: (0, 3)}
    first = stage.latest(start)
    assert first["t"] == {"0": 3}, "the first trigger does not wait"
    stage.cluster.bounds = {A: (0, 9)}
    assert stage.latest(first) == first
    stage.cluster.bounds = {A: (0, 13)}
    stage.now_s += 1
    assert stage.latest(first)["t"] == {"0": 13}
    stage.now_s += 5
    stage.cluster.bounds = {A: (0, 14)}
    assert stage.latest({"t": {"0": 13}} | MARK)["t"] == {"0": 14}


def test_available_now_ends_where_the_topic_ended() -> None:
    stage = Stage(maxOffsetsPerTrigger="4", minOffsetsPerTrigger="3")
    stage.cluster.bounds = {A: (0, 6)}
    stage.planner.freeze()
    stage.cluster.bounds = {A: (0, 100), B: (0, 7)}
    first = stage.latest({"t": {"0": 0}} | MARK)
    second = stage.latest(first)
    assert [first["t"], second["t"], stage.latest(second)["t"]] == [{"0": 4}, {"0": 6}, {"0": 6}]
    assert stage.client.flushes == 1, "the last progress is committed before the query ends"


def test_available_now_never_starts_after_its_end() -> None:
    stage = Stage(startingOffsets="latest")
    stage.cluster.bounds = {A: (0, 6)}
    stage.planner.freeze()
    stage.cluster.bounds = {A: (0, 8)}
    initial = stage.planner.initial()
    assert stage.ranges(initial, stage.latest(initial)) == []


def test_progress_is_what_the_last_batch_has_read() -> None:
    stage = Stage()
    stage.cluster.bounds = {A: (0, 6)}
    stage.latest({"t": {"0": 2}} | MARK)
    assert stage.client.commits == [{A: 2}]


def test_an_idle_query_waits_for_records_and_asks_only_whether_offsets_have_moved() -> None:
    stage = Stage()
    stage.cluster.bounds = {A: (0, 6)}
    start = {"t": {"0": 6}} | MARK
    assert stage.latest(start) == start
    asked = stage.cluster.asked
    for _ in range(9):
        stage.now_s += 0.01
        assert stage.latest(start) == start
    assert (stage.cluster.asked - asked, len(stage.client.waits)) == (9, 9)
    stage.cluster.bounds, stage.client.has_records = {A: (0, 7)}, True
    assert stage.latest(start)["t"] == {"0": 7}


def test_an_idle_query_says_that_there_is_nothing_only_where_there_is_nothing() -> None:
    """The long poll may not have begun yet; processAllAvailable takes the answer for the truth."""
    stage = Stage()
    stage.cluster.bounds = {A: (0, 6)}
    start = {"t": {"0": 6}} | MARK
    assert stage.latest(start) == start
    stage.now_s += 0.01
    stage.cluster.bounds = {A: (0, 7)}
    assert stage.latest(start)["t"] == {"0": 7}


def test_a_query_that_has_other_work_does_not_wait() -> None:
    stage = Stage()
    start: Stored = {"t": {"0": 0}} | MARK
    assert stage.latest(start) == start
    stage.now_s += 0.2
    assert stage.latest(start) == start
    assert stage.client.waits == []


def test_without_a_record_the_brokers_are_asked_once_a_second() -> None:
    stage = Stage()
    start: Stored = {"t": {"0": 0}} | MARK
    assert stage.latest(start) == start
    stage.cluster.bounds = {A: (0, 0), B: (0, 2)}
    for _ in range(40):
        stage.now_s += 0.03
        if (end := stage.latest(start)) != start:
            break
    assert end["t"] == {"0": 0, "1": 2}
    assert stage.now_s == pytest.approx(101, abs=0.1)


def test_the_tasks_depend_on_positions_and_options_alone() -> None:
    stage = Stage(minPartitions="3", maxRecordsPerPartition="40")
    start, end = {"t": {"0": 0, "1": 0}} | MARK, {"t": {"0": 100, "1": 10}} | MARK
    planned = stage.ranges(start, end)
    stage.cluster.bounds = {}
    stage.new_process()
    assert stage.ranges(start, end) == planned
    assert len(planned) == 4


def test_a_batch_that_runs_again_is_cut_as_it_was_whatever_the_options_say_by_then() -> None:
    stage = Stage(startingOffsets="earliest", minOffsetsPerTask="7")
    stage.cluster.bounds = {A: (0, 3), B: (0, 3)}
    end = stage.latest(stage.planner.initial())
    assert "/together/7" in end
    stage.options["minOffsetsPerTask"] = "1"
    assert stage.new_process().ranges({}, end)[1].together == 7
    stage.cluster.bounds = {A: (0, 4), B: (0, 3)}
    assert "/together/7" not in stage.latest(end)
