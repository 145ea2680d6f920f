"""A follower's session reads what is worth a look, and nothing else. R2, R3."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.replication.fetch_session import WantedPartition
from moldau.replication.follower_session import (
    HIGH_WATERMARK_DELAY_S,
    LOOKS_PER_FETCH_MAX,
    FollowerSession,
)
from moldau.replication.long_polls import LongPoll

REPLICA = 2
FAR_S = 1e9


class Polls:
    """Notes who is woken, and when."""

    def __init__(self) -> None:
        self.woken: list[LongPoll] = []
        self.hastened: list[float] = []

    def wake(self, poll: LongPoll) -> None:
        self.woken.append(poll)

    def hasten(self, _poll: LongPoll, delay_s: float) -> None:
        self.hastened.append(delay_s)


class Throttle:
    """Notes who waits for room."""

    def __init__(self) -> None:
        self.waiting: list[FollowerSession] = []

    def when_room(self, held: FollowerSession) -> None:
        self.waiting.append(held)

    def leave(self, held: FollowerSession) -> None:
        if held in self.waiting:
            self.waiting.remove(held)


class Stage:
    def __init__(self) -> None:
        self.polls = Polls()
        self.throttle = Throttle()
        self.session = FollowerSession(REPLICA, self.polls, self.throttle, 0.0)  # type: ignore[arg-type]

    def partition(self, next_offset: int = 10, isr: tuple[int, ...] = (1, REPLICA)) -> Any:
        return SimpleNamespace(
            end_watchers={},
            leader=SimpleNamespace(state=SimpleNamespace(isr=isr)),
            log=SimpleNamespace(next_offset=next_offset, log_start_offset=0),
            high_watermark=next_offset,
        )

    def wanted(self, index: int = 0, fetch_offset: int = 10) -> WantedPartition:
        wanted = WantedPartition("t", index)
        wanted.fetch_offset = fetch_offset
        wanted.sent_high_watermark, wanted.sent_log_start_offset = 10, 0
        return wanted

    def fetched(self, partition: Any, wanted: WantedPartition, *, has_records: bool = False) -> None:
        """The follower names a partition, and is answered."""
        self.session.name(wanted)
        self.session.watch(partition, wanted)
        self.session.answered(wanted, is_well=True, has_records=has_records)

    def park(self, missing_bytes: int = 1) -> LongPoll:
        self.session.poll = LongPoll(lambda _: None, FAR_S, missing_bytes, ())
        return self.session.poll

    @property
    def due(self) -> list[WantedPartition]:
        return list(self.session.due)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_what_is_quiet_is_not_read_again(stage: Stage) -> None:
    stage.fetched(stage.partition(), stage.wanted())
    assert stage.due == []
    assert stage.session.count == 1


def test_a_fetch_looks_at_so_many_partitions_and_no_more_and_first_at_those_with_news(stage: Stage) -> None:
    session = stage.session
    everything = [stage.wanted(index) for index in range(3 * LOOKS_PER_FETCH_MAX)]
    for wanted in everything:
        session.name(wanted)
    first = session.to_look_at()
    assert first == everything[:LOOKS_PER_FETCH_MAX] and session.news
    second, third = session.to_look_at(), session.to_look_at()
    assert first + second + third == everything and not session.news
    session.note(second[7], 10)
    assert session.to_look_at()[:2] == [second[7], first[0]]


def test_a_fetch_that_looks_again_looks_at_what_it_has_seen_and_at_what_is_new(stage: Stage) -> None:
    stage.fetched(stage.partition(), quiet := stage.wanted(0))
    behind, new = stage.wanted(1), stage.wanted(2)
    stage.session.name(behind)
    assert stage.session.to_look_at() == [behind]
    stage.session.name(new)
    assert stage.session.to_look_at([behind, quiet]) == [behind, new]


def test_who_is_asked_again_is_looked_at_everywhere(stage: Stage) -> None:
    stage.session.name(stage.wanted())
    stage.session.to_look_at()
    assert not stage.session.news
    stage.session.ask_again()
    assert list(stage.session.news) == stage.due


def test_what_has_grown_is_due_and_wakes_the_fetch_that_waits(stage: Stage) -> None:
    quiet, busy = stage.partition(), stage.partition()
    stage.fetched(quiet, stage.wanted(0))
    stage.fetched(busy, wanted := stage.wanted(1))
    poll = stage.park(missing_bytes=100)
    busy.end_watchers[REPLICA].on_growth(60)
    assert stage.due == [wanted] and stage.polls.woken == []
    busy.end_watchers[REPLICA].on_growth(60)
    assert stage.due == [wanted] and stage.polls.woken == [poll]


def test_records_are_sent_once_before_the_follower_says_where_it_is(stage: Stage) -> None:
    partition = stage.partition(next_offset=20)
    stage.fetched(partition, wanted := stage.wanted(), has_records=True)
    poll = stage.park()
    partition.end_watchers[REPLICA].on_growth(5)
    partition.end_watchers[REPLICA].on_news()
    partition.end_watchers[REPLICA].on_out_of_sync()
    assert stage.due == [] and not poll.has_news
    wanted.fetch_offset = 20
    stage.session.name(wanted)
    assert stage.due == [wanted]
    partition.end_watchers[REPLICA].on_growth(5)
    assert stage.polls.woken == [poll]


def test_another_leader_is_told_at_once_even_after_records_were_sent(stage: Stage) -> None:
    partition = stage.partition(next_offset=20)
    stage.fetched(partition, wanted := stage.wanted(), has_records=True)
    poll = stage.park(missing_bytes=1000)
    partition.end_watchers[REPLICA].on_change()
    assert stage.due == [wanted] and stage.polls.woken == [poll]


@pytest.mark.parametrize("what", ["more to send", "high watermark", "log start", "out of sync", "not well"])
def test_what_an_answer_does_not_settle_stays_due(stage: Stage, what: str) -> None:
    partition, wanted = stage.partition(), stage.wanted()
    if what == "more to send":
        wanted.fetch_offset = 9
    elif what == "high watermark":
        wanted.sent_high_watermark = 9
    elif what == "log start":
        partition.log.log_start_offset = 3
    elif what == "out of sync":
        partition.leader.state.isr = (1,)
    stage.session.name(wanted)
    stage.session.watch(partition, wanted)
    stage.session.answered(wanted, is_well=what != "not well", has_records=False)
    assert stage.due == [wanted]


def test_a_partition_that_could_not_be_found_stays_due(stage: Stage) -> None:
    stage.session.name(wanted := stage.wanted())
    stage.session.answered(wanted, is_well=False, has_records=False)
    assert stage.due == [wanted] and stage.session.count == 0


def test_a_new_high_watermark_is_told_after_a_moment_once(stage: Stage) -> None:
    partition = stage.partition()
    stage.fetched(partition, wanted := stage.wanted())
    stage.park()
    partition.end_watchers[REPLICA].on_news()
    partition.end_watchers[REPLICA].on_news()
    assert stage.due == [wanted] and stage.polls.hastened == [HIGH_WATERMARK_DELAY_S]
    assert stage.polls.woken == []


def test_who_falls_out_of_the_in_sync_set_is_looked_at_with_every_fetch(stage: Stage) -> None:
    partition = stage.partition()
    stage.fetched(partition, wanted := stage.wanted())
    partition.leader.state.isr = (1,)
    partition.end_watchers[REPLICA].on_out_of_sync()
    for _ in range(3):
        assert stage.due == [wanted]
        stage.session.answered(wanted, is_well=True, has_records=False)
    partition.leader.state.isr = (1, REPLICA)
    stage.session.answered(wanted, is_well=True, has_records=False)
    assert stage.due == []


def test_who_is_out_of_sync_is_asked_to_fetch_again_when_brokers_come_or_go(stage: Stage) -> None:
    partition = stage.partition()
    stage.fetched(partition, stage.wanted())
    poll = stage.park()
    stage.session.ask_again()
    assert stage.polls.woken == []
    partition.end_watchers[REPLICA].on_out_of_sync()
    stage.session.ask_again()
    assert stage.polls.woken == [poll]


def test_forgetting_and_closing_leave_nobody_behind(stage: Stage) -> None:
    first, second = stage.partition(), stage.partition()
    stage.fetched(first, forgotten := stage.wanted(0))
    stage.fetched(second, stage.wanted(1))
    stage.session.forget(forgotten)
    assert REPLICA not in first.end_watchers and REPLICA in second.end_watchers
    stage.session.close()
    assert second.end_watchers == {}


def test_a_newer_session_of_the_same_follower_takes_the_place_of_the_older(stage: Stage) -> None:
    partition = stage.partition()
    stage.fetched(partition, stage.wanted())
    newer = FollowerSession(REPLICA, stage.polls, stage.throttle, 1.0)  # type: ignore[arg-type]
    newer.watch(partition, stage.wanted())
    stage.session.close()
    assert partition.end_watchers[REPLICA].fetched_s == 1.0


def test_a_fetch_of_a_session_that_has_ended_takes_no_place(stage: Stage) -> None:
    partition = stage.partition()
    stage.fetched(partition, wanted := stage.wanted())
    newer = FollowerSession(REPLICA, stage.polls, stage.throttle, 1.0)  # type: ignore[arg-type]
    newer.watch(partition, stage.wanted())
    stage.session.close()
    stage.session.watch(partition, wanted)  # its last fetch waited, and its time is up
    assert partition.end_watchers[REPLICA].fetched_s == 1.0


def test_a_partition_that_was_made_anew_is_watched_in_the_place_of_the_old_one(stage: Stage) -> None:
    old, new = stage.partition(), stage.partition()
    stage.fetched(old, wanted := stage.wanted())
    stage.session.watch(new, wanted)
    assert old.end_watchers == {} and REPLICA in new.end_watchers


def test_nothing_that_happens_to_what_is_held_back_ends_a_wait(stage: Stage) -> None:
    partition, wanted = stage.partition(next_offset=20, isr=(1,)), stage.wanted()
    stage.fetched(partition, wanted)
    stage.session.hold_back(wanted)
    stage.park()
    place = partition.end_watchers[REPLICA]
    place.on_growth(1000)
    place.on_news()
    place.on_out_of_sync()
    assert stage.polls.woken == stage.polls.hastened == []
    assert not stage.session.due, "the next fetch does not look at it either"


def test_what_was_held_back_is_due_when_there_is_room(stage: Stage) -> None:
    partition, wanted = stage.partition(next_offset=20, isr=(1,)), stage.wanted()
    stage.fetched(partition, wanted)
    stage.session.hold_back(wanted)
    poll = stage.park()
    assert stage.throttle.waiting == [stage.session]
    stage.session.on_room()
    assert stage.polls.woken == [poll] and poll.has_news
    assert list(stage.session.due) == [wanted]
    partition.end_watchers[REPLICA].on_growth(5)
    assert stage.polls.woken == [poll, poll], "and it is heard again"


@pytest.mark.parametrize("event", ["named", "changed"])
def test_what_is_held_back_is_looked_at_when_all_is_different(stage: Stage, event: str) -> None:
    partition, wanted = stage.partition(next_offset=20, isr=(1,)), stage.wanted()
    stage.fetched(partition, wanted)
    stage.session.hold_back(wanted)
    stage.park()
    if event == "named":
        stage.session.name(wanted)
    else:
        partition.end_watchers[REPLICA].on_change()
        assert stage.polls.woken
    assert list(stage.session.due) == [wanted]
    assert not stage.session.held_back


def test_a_session_that_ends_waits_for_no_room(stage: Stage) -> None:
    partition, wanted = stage.partition(next_offset=20, isr=(1,)), stage.wanted()
    stage.fetched(partition, wanted)
    stage.session.hold_back(wanted)
    stage.session.close()
    assert stage.throttle.waiting == []
    stage.session.on_room()
