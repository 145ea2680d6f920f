"""Consumer groups (KIP-848): joining, handing over, leaving, silence, fencing, changes of topics, fail-over."""

from __future__ import annotations

import time

import pytest

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.consumer.settings import ConsumerSettings, Times
from moldau.coordinator.group.messages import Commit, OffsetToCommit

from .consumer_support import SESSION_MS, Consumer, Consumers, settle
from .support import new_reply


@pytest.fixture
def coordinator() -> Consumers:
    return Consumers()


def joined(coordinator: Consumers, *names: str) -> list[Consumer]:
    consumers = [Consumer(coordinator, name) for name in names]
    for consumer in consumers:
        assert not consumer.join().error_code
    settle(*consumers)
    return consumers


# ---- members come and go --------------------------------------------------------------------------------------


def test_the_first_member_gets_every_partition_with_its_first_heartbeat(coordinator: Consumers) -> None:
    answer = Consumer(coordinator, "a").join()
    assert answer.member_epoch == 2
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions[0][:2] == (coordinator.t, (0, 1, 2, 3))
    assert coordinator.shown().group_state == "Stable"


def test_a_second_member_gets_partitions_only_once_the_first_has_given_them_up(
    coordinator: Consumers,
) -> None:
    (a,) = joined(coordinator, "a")
    b = Consumer(coordinator, "b")
    b.join()
    assert b.partitions == []
    before = a.owned
    told = a.beat()
    assert a.partitions == [0, 1]
    assert told.member_epoch == 2  # until it says that it has given up the others
    (shown,) = coordinator.shown().members[0].assignment.topic_partitions
    assert shown.partitions == (0, 1, 2, 3)  # it may have them still
    b.beat()
    assert b.partitions == []
    a.beat(owned=before)  # still busy with them
    b.beat()
    assert b.partitions == []
    assert coordinator.shown().group_state == "Reconciling"
    a.beat()
    assert a.epoch == 3
    b.beat()
    assert b.partitions == [2, 3]
    assert coordinator.shown().group_state == "Stable"


def test_what_a_member_that_leaves_had_goes_to_the_others(coordinator: Consumers) -> None:
    a, b = joined(coordinator, "a", "b")
    assert b.leave().member_epoch == -1
    settle(a)
    assert a.partitions == [0, 1, 2, 3]


def test_a_group_without_members_is_empty_and_can_be_deleted(coordinator: Consumers) -> None:
    (a,) = joined(coordinator, "a")
    assert coordinator.delete() is ErrorCode.non_empty_group
    a.leave()
    assert coordinator.shown().group_state == "Empty"
    assert coordinator.delete() is ErrorCode.none
    assert coordinator.shard.describe_consumer("g") == "Group g not found."
    assert coordinator.replayed().list_groups() == []


def test_a_member_that_is_silent_for_a_session_is_out(coordinator: Consumers) -> None:
    a, b = joined(coordinator, "a", "b")
    coordinator.sleep(SESSION_MS - 1)
    a.beat()
    coordinator.sleep(1)
    settle(a)
    assert a.partitions == [0, 1, 2, 3]
    assert b.beat().error_code is ErrorCode.unknown_member_id


def test_a_member_that_could_not_be_taken_out_is_taken_out_later(coordinator: Consumers) -> None:
    a, b = joined(coordinator, "a", "b")
    coordinator.refusal = ErrorCode.not_enough_replicas
    b.leave()
    for _ in range(10):
        coordinator.sleep(SESSION_MS // 9)
        a.beat()
    assert len(coordinator.shown().members) == 2
    coordinator.refusal = None
    coordinator.sleep(1_000)
    assert [member.member_id for member in coordinator.shown().members] == ["a"]


def test_a_member_that_gives_nothing_up_within_its_rebalance_time_out_is_out(coordinator: Consumers) -> None:
    a = Consumer(coordinator, "a", rebalance_timeout_ms=10_000)
    a.join()
    b = Consumer(coordinator, "b")
    b.join()
    had = a.owned
    for _ in range(10):
        a.beat(owned=had)
        coordinator.sleep(1_000)
    assert a.beat(owned=had).error_code is ErrorCode.unknown_member_id
    b.beat()
    assert b.partitions == [0, 1, 2, 3]


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    coordinator = Consumers(ConsumerSettings(members_max=1))
    joined(coordinator, "a")
    assert Consumer(coordinator, "b").join().error_code is ErrorCode.group_max_size_reached


def test_a_new_target_waits_for_the_assignment_interval() -> None:
    times = ConsumerSettings(times_of=lambda _group_id: Times(SESSION_MS, 5_000, 1_000))
    coordinator = Consumers(times)
    a, b = Consumer(coordinator, "a"), Consumer(coordinator, "b")
    a.join()
    b.join()
    assert coordinator.shown().group_state == "Assigning"
    a.beat()
    assert a.partitions == [0, 1, 2, 3]
    coordinator.sleep(1_000)
    settle(a, b)
    assert (a.partitions, b.partitions) == ([0, 1], [2, 3])


# ---- fencing --------------------------------------------------------------------------------------------------


def test_an_epoch_that_is_not_the_members_is_fenced(coordinator: Consumers) -> None:
    (a,) = joined(coordinator, "a")
    assert coordinator.beat("a", a.epoch + 1).error_code is ErrorCode.fenced_member_epoch
    assert coordinator.beat("a", a.epoch - 1).error_code is ErrorCode.fenced_member_epoch
    assert coordinator.beat("b", a.epoch).error_code is ErrorCode.unknown_member_id
    assert coordinator.beat("a", 1, "other").error_code is ErrorCode.group_id_not_found


def test_the_epoch_before_is_taken_from_a_member_that_missed_an_answer(coordinator: Consumers) -> None:
    a, b = joined(coordinator, "a", "b")
    missed = b.epoch
    a.leave()
    b.beat()
    assert b.epoch > missed
    again = coordinator.beat("b", missed, owned={coordinator.t: frozenset({2})})
    assert again.error_code is ErrorCode.none
    assert again.member_epoch == b.epoch


def commit(coordinator: Consumers, member_id: str, epoch: int, *partitions: int) -> ErrorCode:
    offsets = tuple(OffsetToCommit("t", one, 5, -1, "", coordinator.t) for one in partitions)
    reply = new_reply()
    row = Commit("g", member_id, None, epoch, offsets)
    coordinator.carry_out(coordinator.shard.commit(row, reply, coordinator.moment))
    return ErrorCode(max(reply.response))


def test_offsets_are_committed_with_an_epoch_in_which_the_member_had_the_partitions(
    coordinator: Consumers,
) -> None:
    (a,) = joined(coordinator, "a")
    old = a.epoch
    b = Consumer(coordinator, "b")
    b.join()
    settle(a, b)
    assert commit(coordinator, "a", a.epoch, 0, 1) is ErrorCode.none
    assert commit(coordinator, "a", old, 0, 1) is ErrorCode.none
    assert commit(coordinator, "a", old, 0, 2) is ErrorCode.stale_member_epoch
    assert commit(coordinator, "b", old, 2) is ErrorCode.stale_member_epoch
    assert commit(coordinator, "a", a.epoch + 1, 0) is ErrorCode.stale_member_epoch
    assert commit(coordinator, "c", a.epoch, 0) is ErrorCode.unknown_member_id
    assert commit(coordinator, "", -1, 0) is ErrorCode.unknown_member_id


def test_offsets_are_shown_to_members_of_the_epoch_only(coordinator: Consumers) -> None:
    (a,) = joined(coordinator, "a")
    assert coordinator.shard.check_fetch("g", None, -1) is ErrorCode.none
    assert coordinator.shard.check_fetch("g", "a", a.epoch) is ErrorCode.none
    assert coordinator.shard.check_fetch("g", "a", a.epoch - 1) is ErrorCode.stale_member_epoch
    assert coordinator.shard.check_fetch("g", "b", a.epoch) is ErrorCode.unknown_member_id


# ---- static members -------------------------------------------------------------------------------------------


def test_a_static_member_that_is_away_for_a_while_keeps_its_partitions(coordinator: Consumers) -> None:
    first = Consumer(coordinator, "first", instance_id="i")
    first.join()
    other = Consumer(coordinator, "other")
    other.join()
    settle(first, other)
    epoch, had = coordinator.shown().group_epoch, first.partitions
    assert first.leave(-2).member_epoch == -2
    settle(other)
    second = Consumer(coordinator, "second", instance_id="i")
    second.join()
    assert second.partitions == had
    assert coordinator.shown().group_epoch == epoch
    assert first.beat().error_code is ErrorCode.fenced_instance_id


def test_an_instance_id_that_is_in_use_is_not_given_to_another(coordinator: Consumers) -> None:
    Consumer(coordinator, "first", instance_id="i").join()
    second = Consumer(coordinator, "second", instance_id="i")
    assert second.join().error_code is ErrorCode.unreleased_instance_id


def test_a_static_member_that_does_not_come_back_is_out_after_its_session(coordinator: Consumers) -> None:
    first = Consumer(coordinator, "first", instance_id="i")
    first.join()
    first.leave(-2)
    coordinator.sleep(SESSION_MS)
    assert coordinator.shown().group_state == "Empty"


# ---- topics ---------------------------------------------------------------------------------------------------


def test_new_partitions_are_assigned_with_the_next_heartbeat(coordinator: Consumers) -> None:
    (a,) = joined(coordinator, "a")
    coordinator.topics.make("t", 6)
    coordinator.change_topics("t")
    a.beat()
    assert a.partitions == [0, 1, 2, 3, 4, 5]


def test_new_partitions_are_found_after_a_record_was_refused_and_after_a_fail_over(
    coordinator: Consumers,
) -> None:
    (a,) = joined(coordinator, "a")
    coordinator.topics.make("t", 5)
    coordinator.change_topics("t")
    coordinator.refusal = ErrorCode.not_enough_replicas
    assert a.beat().error_code is ErrorCode.not_enough_replicas
    coordinator.refusal = None
    a.beat()
    assert a.partitions == [0, 1, 2, 3, 4]
    coordinator.topics.make("t", 6)  # while nobody coordinates
    coordinator.fail_over()
    a.beat()
    assert a.partitions == [0, 1, 2, 3, 4, 5]


def test_a_deleted_topic_is_taken_from_its_readers(coordinator: Consumers) -> None:
    coordinator.topics.make("u", 1)
    a = Consumer(coordinator, "a", topics=("t", "u"))
    a.join()
    coordinator.topics.delete("t")
    coordinator.carry_out(coordinator.shard.on_topics_deleted(["t"]))
    settle(a)
    assert list(a.owned) == [coordinator.topics.topics["u"].topic_id]


def test_a_topic_that_comes_later_is_read_when_it_is_there(coordinator: Consumers) -> None:
    a = Consumer(coordinator, "a", topics=("later",))
    a.join()
    assert a.partitions == []
    coordinator.topics.make("later", 2)
    coordinator.change_topics("later")
    a.beat()
    assert a.partitions == [0, 1]


def test_a_member_that_unsubscribes_gives_up_at_once_what_it_does_not_read(coordinator: Consumers) -> None:
    u = coordinator.topics.make("u", 1)
    a = Consumer(coordinator, "a", topics=("t", "u"))
    a.join()
    a.beat(topics=("u",))
    assert a.owned == {u: frozenset({0})}


def test_a_regular_expression_stands_for_the_topics_that_fit_and_for_those_that_come(
    coordinator: Consumers,
) -> None:
    for name in ("log.a", "log.b", "my-log.a"):
        coordinator.topics.make(name, 1)
    a = Consumer(coordinator, "a", topics=None, regex="log\\..*|t")
    a.join()
    assert len(a.owned) == 3
    coordinator.topics.make("log.c", 1)
    a.beat()
    assert len(a.owned) == 3  # it is not looked for at every heartbeat
    coordinator.sleep(10_000)
    a.beat()
    assert len(a.owned) == 4
    assert coordinator.shown().members[0].subscribed_topic_regex == "log\\..*|t"


def test_an_expression_that_is_none_is_refused(coordinator: Consumers) -> None:
    a = Consumer(coordinator, "a", topics=None, regex="[")
    assert a.join().error_code is ErrorCode.invalid_regular_expression
    assert coordinator.shard.list_groups() == []


# ---- the log --------------------------------------------------------------------------------------------------


def test_after_a_fail_over_the_group_goes_on_where_it_was(coordinator: Consumers) -> None:
    a, b = joined(coordinator, "a", "b")
    c = Consumer(coordinator, "c")
    c.join()
    a.beat()
    shown = coordinator.shown()
    coordinator.fail_over()
    assert coordinator.shown() == shown
    settle(a, b, c)
    assert sorted(a.partitions + b.partitions + c.partitions) == [0, 1, 2, 3]


def test_what_cannot_be_recorded_has_not_happened(coordinator: Consumers) -> None:
    (a,) = joined(coordinator, "a")
    shown = coordinator.shown()
    coordinator.refusal = ErrorCode.not_coordinator
    assert Consumer(coordinator, "b").join().error_code is ErrorCode.not_coordinator
    assert coordinator.shown() == shown
    coordinator.refusal = None
    assert not a.beat().error_code


# ---- many partitions ----------------------------------------------------------------------------------------


def cpu_of_sharing(count: int) -> float:
    """What two members cost that share a topic of so many partitions."""
    coordinator = Consumers(partitions=count)
    first, second = Consumer(coordinator, "first"), Consumer(coordinator, "second")
    start_s = time.thread_time()
    first.join()
    second.join()
    settle(first, second)
    taken_s = time.thread_time() - start_s
    assert len(first.partitions) == len(second.partitions) == count // 2
    return taken_s


def test_sharing_many_partitions_costs_as_many_times_more_and_not_the_square_of_it() -> None:
    few, many = (min(cpu_of_sharing(count) for _ in range(3)) for count in (5_000, 40_000))
    assert many < 24 * few  # eight times as many: the square would be 64
