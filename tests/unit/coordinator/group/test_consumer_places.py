"""Members of both protocols in one group: whose place another may take, who may be sent away, and what it leads to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.embedded import read_assignment, read_subscription
from moldau.coordinator.group.consumer.settings import Migration
from moldau.coordinator.group.messages import Joined

from .consumer_support import AT_ONCE, Consumer, Consumers, settle
from .test_consumer_migration import Classic, classic_member, subscription, work_together

OTHER_TOPIC = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x01u\xff\xff\xff\xff\x00\x00\x00\x00"),)


@pytest.fixture
def coordinator() -> Consumers:
    return Consumers()


def shared(coordinator: Consumers) -> tuple[Classic, Consumer]:
    """A classic member and a static consumer, which have two partitions each."""
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "new", instance_id="i")
    consumer.join()
    work_together(classic, consumer)
    assert len(classic.partitions) == len(consumer.partitions) == 2
    return classic, consumer


def take_place(coordinator: Consumers, protocols: tuple[tuple[str, bytes], ...]) -> Joined:
    joined: Joined = coordinator.join(instance_id="i", protocols=protocols).response
    coordinator.sleep(0)
    return joined


# ---- leaving ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leaver", [("one", None), ("", "i"), ("one", "i")])
def test_an_administrator_sends_a_consumer_away(
    coordinator: Consumers, leaver: tuple[str, str | None]
) -> None:
    one = Consumer(coordinator, "one", instance_id=leaver[1])
    one.join()
    assert coordinator.leave(leaver) == [ErrorCode.none]
    assert coordinator.shown().members == ()
    assert one.beat().error_code is ErrorCode.unknown_member_id


def test_only_the_instance_itself_is_sent_away_by_its_instance_id(coordinator: Consumers) -> None:
    Consumer(coordinator, "one", instance_id="i").join()
    assert coordinator.leave(("two", "i"), ("two", None), ("", "j")) == [
        ErrorCode.fenced_instance_id,
        ErrorCode.unknown_member_id,
        ErrorCode.unknown_member_id,
    ]
    assert len(coordinator.shown().members) == 1


# ---- the last consumer's place ------------------------------------------------------------------------------


def test_a_classic_instance_with_other_topics_in_the_last_consumers_place_makes_the_group_assign_anew(
    coordinator: Consumers,
) -> None:
    coordinator.topics.make("u", 1)
    classic, _ = shared(coordinator)
    joined = take_place(coordinator, OTHER_TOPIC)
    assert coordinator.kind() == "classic"
    assert coordinator.state() == "PreparingRebalance"
    assert classic.beat() is ErrorCode.rebalance_in_progress  # in the generation that it knows
    waiting = coordinator.join(member_id=joined.member_id, instance_id="i", protocols=OTHER_TOPIC)
    classic.join()
    classic.sync()
    assert waiting.response.generation_id == classic.joined.generation_id
    assert classic.partitions == (0, 1, 2, 3)  # what the consumer had is nobody else's


def test_a_group_whose_members_have_not_got_all_they_are_to_have_assigns_anew_when_it_is_classic_again(
    coordinator: Consumers,
) -> None:
    """Otherwise what one is still to get from another would be nobody's."""
    consumer = Consumer(coordinator, "new", instance_id="i")
    consumer.join()
    classic = Classic(coordinator)
    classic.join()
    classic.sync()
    assert classic.partitions == ()  # the consumer has not given anything up yet
    take_place(coordinator, subscription())
    assert coordinator.kind() == "classic"
    assert classic.beat() is ErrorCode.rebalance_in_progress


def test_a_classic_instance_with_the_same_topics_in_the_last_consumers_place_changes_nothing_for_the_others(
    coordinator: Consumers,
) -> None:
    classic, consumer = shared(coordinator)
    had = consumer.partitions
    joined = take_place(coordinator, subscription())
    assert (coordinator.kind(), coordinator.state()) == ("classic", "Stable")
    assert classic.beat() is ErrorCode.none
    synced = coordinator.sync(joined, instance_id="i").response
    assert read_assignment(synced.assignment)[0] == {"t": tuple(had)}


def test_a_consumer_that_goes_on_in_the_classic_protocol_under_its_id_leaves_the_group_a_consumer_group(
    coordinator: Consumers,
) -> None:
    consumer = Consumer(coordinator, "new")
    consumer.join()
    joined = coordinator.join(member_id="new", protocols=subscription()).response
    assert (joined.error_code, joined.generation_id) == (ErrorCode.none, consumer.epoch)
    coordinator.sleep(0)
    assert coordinator.kind() == "consumer"
    synced = coordinator.sync(joined).response
    assert read_assignment(synced.assignment)[0] == {"t": (0, 1, 2, 3)}


def test_what_a_classic_member_has_not_given_up_is_its_own_through_both_changes_of_protocol(
    coordinator: Consumers,
) -> None:
    classic = classic_member(coordinator)
    consumer = Consumer(coordinator, "first")
    consumer.join()
    assert classic.beat() is ErrorCode.rebalance_in_progress
    classic.join()  # told to give up two of four
    consumer.leave()
    coordinator.sleep(0)
    assert coordinator.kind() == "classic"
    second = Consumer(coordinator, "second")
    assert not second.join().error_code
    assert coordinator.kind() == "consumer"
    assert second.partitions == []
    work_together(classic, second)
    assert sorted([*classic.partitions, *second.partitions]) == [0, 1, 2, 3]


def test_what_a_cooperative_member_keeps_between_two_rebalances_is_its_own_in_the_consumer_group(
    coordinator: Consumers,
) -> None:
    classic = classic_member(coordinator)
    second = coordinator.join(protocols=subscription())
    classic.join()
    assert second.response.error_code is ErrorCode.none
    third = coordinator.join(protocols=subscription())  # before the leader has assigned anything
    assert coordinator.state() == "PreparingRebalance"
    consumer = Consumer(coordinator, "new")
    assert not consumer.join().error_code
    assert third.response.error_code is ErrorCode.rebalance_in_progress
    assert classic.partitions == (0, 1, 2, 3)
    assert consumer.partitions == []


def test_what_one_member_was_given_is_not_taken_for_what_another_says_it_has(coordinator: Consumers) -> None:
    classic = classic_member(coordinator)
    coordinator.join(protocols=subscription(0, 1))  # had them in an earlier generation
    Consumer(coordinator, "new").join()
    shown = {member.member_id: member for member in coordinator.shown().members}
    (row,) = shown[classic.joined.member_id].assignment.topic_partitions
    assert row.partitions == (0, 1, 2, 3)
    assert sum(len(member.assignment.topic_partitions) for member in shown.values()) == 1


# ---- what is kept -------------------------------------------------------------------------------------------


def test_a_classic_instance_keeps_what_its_protocol_has_no_word_for(coordinator: Consumers) -> None:
    settled = Consumer(coordinator, "one")
    settled.join()
    Consumer(coordinator, "two", instance_id="i", rack_id="r", assignor="range").join()
    take_place(coordinator, subscription())
    (static,) = [member for member in coordinator.shown().members if member.instance_id == "i"]
    assert static.rack_id == "r"
    assert coordinator.shown().assignor_name == "range"


def test_a_static_consumer_that_joins_as_a_classic_member_without_its_instance_id_keeps_it(
    coordinator: Consumers,
) -> None:
    Consumer(coordinator, "one").join()
    Consumer(coordinator, "two", instance_id="i").join()
    joined = coordinator.join(member_id="two", protocols=subscription()).response
    assert joined.error_code is ErrorCode.none
    assert [member.instance_id for member in coordinator.shown().members] == [None, "i"]


def test_a_topic_that_a_classic_member_names_twice_counts_with_all_its_partitions() -> None:
    """Otherwise a partition that it has would be given to another."""
    row = b"\x00\x01t\x00\x00\x00\x01"
    rows = b"\x00\x00\x00\x02" + row + b"\x00\x00\x00\x00" + row + b"\x00\x00\x00\x03"
    head = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"
    assert read_subscription(head + rows).owned == {"t": (0, 3)}
    assert read_assignment(b"\x00\x01" + rows + b"\xff\xff\xff\xff")[0] == {"t": (0, 3)}


# ---- refusals -----------------------------------------------------------------------------------------------


def test_no_classic_member_comes_into_a_consumer_group_where_groups_may_not_change_their_protocol() -> None:
    coordinator = Consumers(replace(AT_ONCE, migration=Migration.DISABLED, members_max=1))
    Consumer(coordinator, "one").join()
    refused = coordinator.join(protocols=subscription()).response
    assert refused.error_code is ErrorCode.inconsistent_group_protocol


def test_a_classic_member_that_a_consumer_group_refuses_is_told_no_member_id(coordinator: Consumers) -> None:
    Consumer(coordinator, "one", instance_id="i").join()
    for fields in ({"protocol_type": "connect"}, {"protocols": ()}, {"instance_id": "i"}):
        refused = coordinator.join(**{"member_id": "chosen", "protocols": subscription()} | fields).response
        assert refused.error_code in (ErrorCode.inconsistent_group_protocol, ErrorCode.fenced_instance_id)
        assert refused.member_id == ""


# ---- one who is away ----------------------------------------------------------------------------------------


def test_a_static_consumer_that_is_away_is_not_late_with_what_it_had_to_give_up(
    coordinator: Consumers,
) -> None:
    """What it was asked to give up it has given up by leaving; only its session counts."""
    one = Consumer(coordinator, "one", instance_id="i", rebalance_timeout_ms=10_000)
    one.join()
    two = Consumer(coordinator, "two")
    two.join()
    one.beat()  # told to give up two partitions
    one.leave(-2)
    coordinator.sleep(20_000)
    two.beat()
    assert len(coordinator.shown().members) == 2
    back = Consumer(coordinator, "back", instance_id="i")
    assert not back.join().error_code
    settle(back, two)
    assert len(back.partitions) == len(two.partitions) == 2
