"""The leader of a partition: when records are committed, and who is in sync. R3, promise 1."""

from __future__ import annotations

import pytest

from moldau.base.errors import ErrorCode
from moldau.metadata.image import PartitionState
from moldau.replication.leader import OUT_OF_DATE, PartitionLeader

LAG_S = 10.0


def leader(
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    min_insync: int = 1,
    next_offset: int = 0,
    high_watermark: int = 0,
    fenced: tuple[int, ...] = (),
) -> PartitionLeader:
    state = PartitionState(leader=1, leader_epoch=5, replicas=(1, 2, 3), isr=isr, partition_epoch=7)
    return PartitionLeader(
        1,
        state,
        next_offset=next_offset,
        high_watermark=high_watermark,
        min_insync_replicas=min_insync,
        now_s=0.0,
        lag_max_s=LAG_S,
        is_eligible=lambda broker, epoch: broker not in fenced and epoch == 40 + broker,
    )


def fetch(led: PartitionLeader, replica: int, offset: int, now_s: float = 1.0, end: int | None = None) -> int:
    end = led.local_offset if end is None else end
    return led.follower_fetched(replica, 40 + replica, offset, 0, end, now_s)


def test_a_record_is_committed_when_every_in_sync_replica_has_it() -> None:
    led = leader()
    assert led.appended(10) == 0
    assert fetch(led, 2, 10) == 0
    assert fetch(led, 3, 4) == 4
    assert fetch(led, 3, 10) == 10


def test_alone_a_leader_commits_what_it_appends() -> None:
    state = PartitionState(leader=1, leader_epoch=5, replicas=(1,), isr=(1,))
    led = PartitionLeader(
        1,
        state,
        next_offset=3,
        high_watermark=0,
        min_insync_replicas=2,
        now_s=0.0,
        lag_max_s=LAG_S,
        is_eligible=lambda *_: True,
    )
    assert led.high_watermark == 3  # what it has taken over
    assert led.appended(10) == 10


def test_what_waits_for_the_leaders_own_disk_is_not_committed() -> None:
    led = leader()
    led.appended(5)
    assert fetch(led, 2, 10, end=10) == 0
    assert fetch(led, 3, 10, end=10) == 5  # its followers have more than its disk
    assert led.flushed(10, 2.0) == 10


def test_below_min_insync_replicas_nothing_is_committed() -> None:
    """KIP-966."""
    led = leader((1,), min_insync=2)
    assert not led.has_enough_in_sync
    assert led.flushed(10, 1.0) == 0


def test_a_proposed_member_counts_before_the_controller_has_agreed() -> None:
    """KIP-497: whichever set the controller takes, what was committed is on all its members."""
    led = leader((1, 2))
    led.appended(10)
    fetch(led, 2, 10)
    assert led.high_watermark == 10
    fetch(led, 3, 10)
    assert led.has_wish and led.maximal_isr == (1, 2, 3)
    led.appended(20)
    fetch(led, 2, 20)
    assert led.high_watermark == 10
    assert fetch(led, 3, 15) == 15


def test_a_member_that_is_to_leave_counts_until_it_has_left() -> None:
    led = leader()
    led.appended(10)
    fetch(led, 2, 10, now_s=LAG_S)
    led.tick(10, LAG_S + 1)
    wish = led.take_wish()
    assert [replica for replica, _ in wish.isr] == [1, 2]
    assert led.high_watermark == 0
    state = led.state._replace(isr=(1, 2), partition_epoch=8)
    assert led.answered(ErrorCode.none, state, LAG_S + 1) == 10


@pytest.mark.parametrize(
    ("offset", "epoch", "enters"),
    [(10, 43, True), (9, 43, False), (10, 42, False)],
    ids=["caught up", "behind the high watermark", "of another life"],
)
def test_who_enters_the_in_sync_set(offset: int, epoch: int, enters: bool) -> None:
    """KIP-903: only in the life that the cluster knows."""
    led = leader((1, 2))
    led.appended(10)
    fetch(led, 2, 10)
    led.follower_fetched(3, epoch, offset, 0, 10, 1.0)
    assert led.has_wish is enters


def test_a_follower_that_has_not_reached_the_leaders_epoch_does_not_enter() -> None:
    led = leader((1, 2), next_offset=10, high_watermark=4)
    fetch(led, 3, 6)
    assert not led.has_wish
    fetch(led, 3, 10)
    assert led.has_wish


def test_a_wish_carries_the_lives_in_which_its_members_fetch() -> None:
    led = leader((1, 2))
    fetch(led, 2, 0)
    fetch(led, 3, 0)
    wish = led.take_wish()
    assert wish == (5, 7, ((1, -1), (2, 42), (3, 43)))
    assert not led.has_wish


def test_an_idle_follower_that_has_everything_stays() -> None:
    led = leader()
    fetch(led, 2, 0)
    fetch(led, 3, 0)
    led.tick(0, 1000.0)
    assert not led.has_wish


def test_a_follower_that_keeps_up_with_what_was_there_a_fetch_ago_stays() -> None:
    led = leader((1, 2))
    for second in range(1, 100):
        led.appended(second * 10)
        fetch(led, 2, (second - 1) * 10, now_s=float(second))
        led.tick(led.local_offset, float(second))
        assert not led.has_wish


def test_an_answer_that_did_not_come_is_asked_for_again_and_both_sets_count() -> None:
    led = leader((1, 2))
    fetch(led, 3, 0)
    led.take_wish()
    led.unanswered()
    assert led.has_wish and led.maximal_isr == (1, 2, 3)


@pytest.mark.parametrize("error", sorted(OUT_OF_DATE))
def test_a_leader_that_is_out_of_date_asks_no_more(error: ErrorCode) -> None:
    led = leader((1, 2))
    fetch(led, 3, 0)
    led.take_wish()
    led.answered(error, None, 1.0)
    assert not led.has_wish and led.maximal_isr == (1, 2, 3)


def test_a_refused_member_does_not_count() -> None:
    led = leader((1, 2))
    fetch(led, 3, 0)
    led.take_wish()
    led.answered(ErrorCode.ineligible_replica, None, 1.0)
    assert led.maximal_isr == (1, 2)


def test_an_older_state_changes_nothing() -> None:
    led = leader()
    led.changed(led.state._replace(isr=(1,), partition_epoch=6), 1.0)
    assert led.state.isr == (1, 2, 3)


def test_readers_are_told_no_end_before_the_new_leader_knows_it() -> None:
    """KIP-207."""
    led = leader(next_offset=10, high_watermark=7)
    assert not led.knows_the_end
    fetch(led, 2, 10)
    fetch(led, 3, 10)
    assert led.knows_the_end and led.high_watermark == 10


def test_the_high_watermark_never_moves_back() -> None:
    led = leader(next_offset=10, high_watermark=10)
    assert fetch(led, 2, 3) == 10
    assert led.changed(led.state._replace(isr=(1, 3), partition_epoch=8), 1.0) == 10


def test_a_follower_that_had_everything_while_nothing_came_does_not_lag_when_the_log_grows() -> None:
    led = leader()
    for replica in (2, 3):
        fetch(led, replica, 0, now_s=1.0)
    led.outgrows(2, fetched_s=999.5)  # it has asked all the time, for other partitions
    led.outgrows(3, fetched_s=1.0)  # it has not
    led.appended(10)
    led.tick(10, 1000.0)
    assert [member for member, _ in led.take_wish().isr] == [1, 2]


def test_a_follower_that_did_not_have_everything_is_not_excused_by_its_other_fetches() -> None:
    led = leader()
    led.appended(10)
    fetch(led, 2, 4, now_s=1.0)
    fetch(led, 3, 10, now_s=1.0)
    for replica in (2, 3):
        led.outgrows(replica, fetched_s=999.5)
    led.appended(20)
    led.tick(20, 1000.0)
    assert [member for member, _ in led.take_wish().isr] == [1, 3]
