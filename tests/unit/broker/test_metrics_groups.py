"""Groups in /metrics: their lag, the limit on their number, and that thousands of them hold nobody up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.ids import TopicPartition
from moldau.base.limits import METRIC_GROUP_LETTERS_MAX
from moldau.broker.metrics import groups
from moldau.broker.metrics.groups import ELEMENTS_PER_PAUSE, GROUPS_PER_PAUSE, GroupFigures
from moldau.coordinator.group.records import GroupRecorded, MemberRecorded, OffsetCommitted, OffsetForgotten
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.shard import GroupShard


class Coordinator:
    """The partitions of __consumer_offsets that are led here."""

    def __init__(self, shards: int = 1) -> None:
        self.shards: dict[int, GroupShard | None] = {index: self._shard() for index in range(shards)}
        self.ends: dict[str, dict[int, Any]] = {}
        self.ends_elsewhere: dict[Any, int] = {}
        self._figures = GroupFigures(self.ends, self.ends_elsewhere.get)  # type: ignore[arg-type]
        self.pauses = 0

    def _shard(self) -> GroupShard:
        topics: Any = SimpleNamespace()
        return GroupShard(GroupSettings(), lambda: "id", topics)

    @property
    def led(self) -> list[int]:
        return list(self.shards)

    def shard(self, index: int) -> GroupShard | None:
        return self.shards.get(index)

    def commit(self, group: str, topic: str, offsets: dict[int, int], shard: int = 0) -> None:
        state = self.shards[shard]
        assert state is not None
        for index, offset in offsets.items():
            state.apply(OffsetCommitted(group, topic, index, offset, -1, "", 0), None)

    def join(self, group: str, members: int, shard: int = 0) -> None:
        state = self.shards[shard]
        assert state is not None
        rows = tuple(
            MemberRecorded(f"m{number}", None, "client", "/host", 10_000, 10_000, b"", b"")
            for number in range(members)
        )
        state.apply(GroupRecorded(group, "consumer", 1, "range", "m0", 0, rows), None)

    def hold(self, topic: str, ends: dict[int, int]) -> None:
        self.ends[topic] = {
            index: SimpleNamespace(high_watermark=end, is_offline=False) for index, end in ends.items()
        }

    def told(self) -> dict[str, float]:
        found: dict[str, float] = {}
        self.pauses = 0
        for sample in self._figures.samples(self):  # type: ignore[arg-type]
            if sample is None:
                self.pauses += 1
            else:
                found |= {
                    sample.name.removeprefix("moldau_") + behind: value for behind, value in sample.values
                }
        return found


def of(group: str, topic: str) -> str:
    return f'{{group="{group}",topic="{topic}"}}'


def test_lag_is_told_of_partitions_that_are_held_here_and_the_others_are_counted() -> None:
    on = Coordinator()
    on.hold("topic", {0: 100, 1: 50, 2: 10})
    on.ends["topic"][2].is_offline = True
    on.commit("g", "topic", {0: 90, 1: 10, 2: 5, 3: 7})
    told = on.told()
    assert told["group_lag_messages" + of("g", "topic")] == 10 + 40
    assert told["group_lag_messages_max" + of("g", "topic")] == 40
    assert told["group_lag_unknown_partitions" + of("g", "topic")] == 2
    assert told["group_committed_offsets" + of("g", "topic")] == 90 + 10 + 5 + 7


def test_a_commit_beyond_the_end_is_no_lag() -> None:
    on = Coordinator()
    on.hold("topic", {0: 100, 1: 7})
    on.commit("g", "topic", {0: 120, 1: 5})
    assert on.told()["group_lag_messages" + of("g", "topic")] == 2


def test_groups_beyond_the_limit_are_added_up_and_those_that_are_named_keep_their_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "METRIC_GROUP_TOPICS_MAX", 2)
    on = Coordinator(shards=2)
    on.hold("t", {0: 10})
    on.commit("late", "t", {0: 1}, shard=1)
    on.commit("later", "t", {0: 2}, shard=1)
    told = on.told()
    assert {name for name in told if name.startswith("group_lag_messages{")} == {
        "group_lag_messages" + of("late", "t"),
        "group_lag_messages" + of("later", "t"),
    }
    for number, group in enumerate("ab", 3):
        on.commit(group, "t", {0: number})  # looked at first, yet they come last
    told = on.told()
    lags = {name: lag for name, lag in told.items() if name.startswith("group_lag_messages{")}
    assert lags == {
        "group_lag_messages" + of("late", "t"): 9,
        "group_lag_messages" + of("later", "t"): 8,
        "group_lag_messages" + of("other", "other"): 7 + 6,
    }
    assert told["group_lag_messages_max" + of("other", "other")] == 7
    state = on.shards[1]
    assert state is not None
    state.apply(OffsetForgotten("late", "t", 0), None)
    on.told()
    assert "group_lag_messages" + of("a", "t") in on.told(), "a place that is free is given again"


def test_a_group_that_is_called_other_is_one_of_the_others() -> None:
    on = Coordinator()
    on.commit("other", "t", {0: 1})
    on.commit("g", "other", {0: 1})
    assert on.told()["group_committed_offsets" + of("other", "other")] == 2


def test_a_group_with_a_very_long_id_is_one_of_the_others() -> None:
    on = Coordinator()
    on.hold("t", {0: 10})
    longest = "g" * METRIC_GROUP_LETTERS_MAX
    on.commit(longest, "t", {0: 1})
    for number in range(3):
        on.commit(f"{number}" + longest, "t", {0: 3})
    assert {name: lag for name, lag in on.told().items() if name.startswith("group_lag_messages{")} == {
        "group_lag_messages" + of(longest, "t"): 9,
        "group_lag_messages" + of("other", "other"): 3 * 7,
    }


def test_members_are_told_of_the_groups_that_are_named_and_all_others_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "METRIC_GROUP_TOPICS_MAX", 3)
    on = Coordinator()
    for group, topics, members in (
        ("used", ("t", "u"), 3),
        ("unused", ("t",), 0),
        ("late", ("t",), 5),
        ("without offsets", (), 7),
    ):
        for topic in topics:
            on.commit(group, topic, {0: 1})
        on.join(group, members)
    told = {name: count for name, count in on.told().items() if name.startswith("group_members")}
    assert told == {
        'group_members{group="used"}': 3,
        'group_members{group="unused"}': 0,
        'group_members{group="other"}': 5 + 7,
    }


def test_a_partition_that_cannot_be_looked_at_is_told_as_it_was() -> None:
    on = Coordinator(shards=2)
    on.commit("g", "t", {0: 1})
    before = on.told()
    state, on.shards[0] = on.shards[0], None
    assert on.told() == before
    on.shards[0] = state
    on.commit("g", "t", {0: 5})
    assert on.told()["group_committed_offsets" + of("g", "t")] == 5
    del on.shards[0]
    assert on.told() == {}, "it is led elsewhere"


def test_one_that_is_taken_away_in_the_middle_of_a_look_is_told_as_it_was() -> None:
    on = Coordinator()
    on.commit("g", "t", {0: 1})
    before = on.told()
    for number in range(GROUPS_PER_PAUSE):
        on.commit(f"g{number}", "t", {0: 1})
    samples = on._figures.samples(on)  # type: ignore[arg-type]
    assert next(samples) is None
    on.shards[0] = None
    assert {sample.name: len(sample.values) for sample in samples if sample is not None} == {
        "moldau_groups": 1,
        "moldau_group_members": 1,
        "moldau_group_committed_offsets": 1,
        "moldau_group_lag_messages": 1,
        "moldau_group_lag_messages_max": 1,
        "moldau_group_lag_unknown_partitions": 1,
    }
    assert on.told() == before


def test_thousands_of_groups_and_of_offsets_are_looked_at_with_pauses() -> None:
    on = Coordinator()
    for number in range(20 * GROUPS_PER_PAUSE):
        on.commit(f"g{number}", "t", {0: 1})
    on.told()
    assert on.pauses >= 20
    on = Coordinator()
    on.commit("g", "t", dict.fromkeys(range(20 * ELEMENTS_PER_PAUSE), 1))
    on.told()
    assert on.pauses >= 20


def test_ends_of_partitions_that_are_not_held_here_count_once_they_are_known() -> None:
    on = Coordinator()
    on.hold("topic", {0: 100})
    on.commit("g", "topic", {0: 90, 1: 10, 2: 5})
    assert on.told()["group_lag_unknown_partitions" + of("g", "topic")] == 2
    assert list(on._figures.elsewhere) == [("topic", 1), ("topic", 2)]
    on.ends_elsewhere[TopicPartition("topic", 2)] = 25
    told = on.told()
    assert told["group_lag_messages" + of("g", "topic")] == 10 + 20
    assert told["group_lag_unknown_partitions" + of("g", "topic")] == 1


def test_no_more_than_so_many_ends_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "METRIC_ENDS_MAX", 3)
    on = Coordinator()
    on.commit("g", "topic", dict.fromkeys(range(10), 1))
    on.told()
    assert len(on._figures.elsewhere) == 3
