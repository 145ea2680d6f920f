"""Counts by topic, of which a bounded number has a name."""

from __future__ import annotations

from moldau.replication.traffic import OTHER, TopicTraffic


def counted(traffic: TopicTraffic) -> dict[str, int]:
    return {name: of_topic.bytes_in for name, of_topic in traffic.labelled()}


def test_topics_beyond_the_limit_are_added_up_under_other() -> None:
    traffic = TopicTraffic(named_max=2)
    for number, topic in enumerate("abcd", 1):
        traffic.of(topic).bytes_in += number
    assert counted(traffic) == {"a": 1, "b": 2, OTHER: 3 + 4}
    assert [traffic.label(topic) for topic in "abcd"] == ["a", "b", OTHER, OTHER]
    assert traffic.total().bytes_in == 1 + 2 + 3 + 4


def test_a_topic_that_is_called_other_is_one_of_the_others() -> None:
    traffic = TopicTraffic(named_max=2)
    traffic.of(OTHER).bytes_in += 1
    assert counted(traffic) == {OTHER: 1} and traffic.label(OTHER) == OTHER


def test_no_count_goes_down_when_topics_go_and_come() -> None:
    traffic = TopicTraffic(named_max=1)
    for topic in "abc":
        traffic.of(topic).bytes_in += 10
    traffic.forget("a")  # its place is free: for one that comes, not for one that was counted elsewhere
    assert traffic.of("b") is traffic.of("c")
    traffic.of("new").bytes_in += 1
    traffic.forget("b")
    assert counted(traffic) == {"new": 1, OTHER: 20}
    assert traffic.total().bytes_in == 31
    traffic.of("a").bytes_in += 1
    assert traffic.total().bytes_in == 32


def test_nothing_is_told_of_others_where_there_are_none() -> None:
    traffic = TopicTraffic()
    traffic.of("a")
    assert counted(traffic) == {"a": 0}
