"""What a consumer group keeps count of as records come in."""

from __future__ import annotations

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.records import (
    ClassicMetadata,
    MemberForgotten,
    MemberRecorded,
    RegexRecorded,
)


def subscribe(
    group: ConsumerGroup, member: str, *topics: str, regex: str = "", classic: ClassicMetadata | None = None
) -> None:
    group.take(MemberRecorded("g", member, None, None, "c", "/h", topics, regex, 1000, None, classic))


def test_a_topic_is_read_until_the_last_member_that_names_it_goes() -> None:
    group = ConsumerGroup("g")
    subscribe(group, "m", "a", "b")
    subscribe(group, "n", "b")
    assert set(group.subscribed_topics()) == {"a", "b"}
    subscribe(group, "m", "c")
    assert set(group.subscribed_topics()) == {"b", "c"}
    group.take(MemberForgotten("g", "n"))
    assert set(group.subscribed_topics()) == {"c"}
    assert group.is_subscribed_to("c")
    assert not group.is_subscribed_to("b")


def test_what_an_expression_stands_for_is_read_while_someone_has_it() -> None:
    group = ConsumerGroup("g")
    group.take(RegexRecorded("g", "x.*", ("xa", "xb"), 1, 0))
    subscribe(group, "m", "a", regex="x.*")
    assert set(group.subscribed_topics()) == {"a", "xa", "xb"}
    subscribe(group, "m", "a")
    assert set(group.subscribed_topics()) == {"a"}


def test_members_of_the_classic_protocol_are_counted_as_they_come_change_and_go() -> None:
    group, classic = ConsumerGroup("g"), ClassicMetadata(1000, ())
    subscribe(group, "m", "a", classic=classic)
    subscribe(group, "n", "a", classic=classic)
    subscribe(group, "n", "b", classic=classic)
    assert (group.classic_count, group.draft().classic_count) == (2, 2)
    subscribe(group, "m", "a")
    assert group.classic_count == 1
    group.take(MemberForgotten("g", "n"))
    assert group.classic_count == 0


def test_a_draft_counts_for_itself() -> None:
    group = ConsumerGroup("g")
    subscribe(group, "m", "a")
    other = group.draft()
    subscribe(other, "m", "b")
    assert (set(group.subscribed_topics()), set(other.subscribed_topics())) == ({"a"}, {"b"})
