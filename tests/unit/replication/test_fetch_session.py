"""Fetch sessions (KIP-227) as Kafka's clients use them."""

from __future__ import annotations

import random
import uuid
from types import SimpleNamespace
from typing import Any

from moldau.base.errors import ErrorCode
from moldau.replication.fetch_session import EVICTION_S, FetchSessions, rotate
from moldau.runtime.line import whole

BY_NAME, BY_ID = 12, 13


class Dice:
    def __init__(self) -> None:
        self._random = random.Random(1)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


def wanted(index: int, offset: int = 0) -> Any:
    return SimpleNamespace(
        partition=index, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=-1
    )


def request(session_id: int = 0, epoch: int = 0, forgotten: tuple[Any, ...] = (), **topics: list[Any]) -> Any:
    return SimpleNamespace(
        session_id=session_id,
        session_epoch=epoch,
        topics=[SimpleNamespace(topic=name, partitions=parts) for name, parts in topics.items()],
        forgotten_topics_data=forgotten,
    )


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(Dice(), slots)  # type: ignore[arg-type]


def start(cache: FetchSessions, now_s: float = 0.0, **topics: list[Any]) -> int:
    context = cache.open(request(**topics), BY_NAME, now_s)
    return cache.keep(context, BY_NAME, now_s)


def test_a_full_fetch_with_epoch_zero_makes_a_session() -> None:
    cache = sessions()
    context = cache.open(request(t=[wanted(0), wanted(1)]), BY_NAME, 0.0)
    assert not context.is_incremental
    assert [p.index for p in context.partitions] == [0, 1]
    assert cache.keep(context, BY_NAME, 0.0) > 0
    assert len(cache) == 1


def test_a_sessionless_fetch_makes_none() -> None:
    cache = sessions()
    context = cache.open(request(epoch=-1, t=[wanted(0)]), BY_NAME, 0.0)
    assert cache.keep(context, BY_NAME, 0.0) == 0
    assert len(cache) == 0


def test_an_incremental_fetch_reads_what_the_session_remembers() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0, 5), wanted(1, 7)])
    context = cache.open(request(session_id, 1, t=[wanted(1, 9)]), BY_NAME, 1.0)
    assert context.is_incremental
    assert [(p.index, p.fetch_offset) for p in context.partitions] == [(0, 5), (1, 9)]


def test_forgotten_partitions_leave_the_session() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0), wanted(1)])
    forgotten = (SimpleNamespace(topic="t", partitions=[0]),)
    context = cache.open(request(session_id, 1, forgotten), BY_NAME, 1.0)
    assert [p.index for p in context.partitions] == [1]


def test_a_session_with_nothing_left_is_closed() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    forgotten = (SimpleNamespace(topic="t", partitions=[0]),)
    context = cache.open(request(session_id, 1, forgotten), BY_NAME, 1.0)
    assert context.session is None and len(cache) == 0


def test_epochs_must_follow_each_other() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    assert cache.open(request(session_id, 2), BY_NAME, 1.0).error == ErrorCode.invalid_fetch_session_epoch
    assert cache.open(request(session_id, 1), BY_NAME, 1.0).error == ErrorCode.none
    assert cache.open(request(session_id, 1), BY_NAME, 1.0).error == ErrorCode.invalid_fetch_session_epoch
    assert cache.open(request(session_id, 2), BY_NAME, 1.0).error == ErrorCode.none


def test_an_unknown_session_is_told_so() -> None:
    assert sessions().open(request(77, 1), BY_NAME, 0.0).error == ErrorCode.fetch_session_id_not_found


def test_a_session_by_names_refuses_topic_ids() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    context = cache.open(request(session_id, 1), BY_ID, 1.0)
    assert context.error == ErrorCode.fetch_session_topic_id_error


def test_topic_ids_key_a_session_of_version_13() -> None:
    cache = sessions()
    topic_id = uuid.UUID(int=5)
    first = SimpleNamespace(
        session_id=0,
        session_epoch=0,
        topics=[SimpleNamespace(topic_id=topic_id, partitions=[wanted(3)])],
        forgotten_topics_data=(),
    )
    context = cache.open(first, BY_ID, 0.0)
    session_id = cache.keep(context, BY_ID, 0.0)
    again = cache.open(request(session_id, 1), BY_ID, 1.0)
    assert [(p.topic, p.index) for p in again.partitions] == [(topic_id.bytes, 3)]


def test_epoch_zero_on_an_old_session_replaces_it() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    context = cache.open(request(session_id, 0, t=[wanted(1)]), BY_NAME, 1.0)
    assert len(cache) == 0
    assert cache.keep(context, BY_NAME, 1.0) != 0


def test_the_number_of_sessions_is_bounded_and_old_ones_make_room() -> None:
    cache = sessions(slots=1)
    first = start(cache, now_s=0.0, t=[wanted(0)])
    assert first and start(cache, now_s=1.0, t=[wanted(0)]) == 0
    assert start(cache, now_s=EVICTION_S + 1, t=[wanted(0)]) != 0
    assert cache.open(request(first, 1), BY_NAME, 200.0).error == ErrorCode.fetch_session_id_not_found


def test_no_slots_means_no_sessions() -> None:
    assert start(sessions(slots=0), t=[wanted(0)]) == 0


def test_an_incremental_answer_mentions_only_what_is_new() -> None:
    cache = sessions()
    context = cache.open(request(t=[wanted(0)]), BY_NAME, 0.0)
    (partition,) = context.partitions
    assert partition.has_news(0, False, high_watermark=0, log_start_offset=0)
    assert not partition.has_news(0, False, high_watermark=0, log_start_offset=0)
    assert partition.has_news(0, False, high_watermark=0, log_start_offset=0, is_sent_away=True)
    assert partition.has_news(0, False, high_watermark=0, log_start_offset=0)  # mentioned again afterwards
    assert partition.has_news(0, True, high_watermark=0, log_start_offset=0)
    assert partition.has_news(0, False, high_watermark=3, log_start_offset=0)
    assert partition.has_news(0, False, high_watermark=3, log_start_offset=1)
    assert partition.has_news(3, False, high_watermark=-1, log_start_offset=-1)
    assert partition.has_news(0, False, high_watermark=3, log_start_offset=1)


def test_partitions_that_gave_data_are_read_last_next_time() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0), wanted(1), wanted(2)])
    context = cache.open(request(session_id, 1), BY_NAME, 1.0)
    assert context.session is not None
    rotate(context.session, [context.partitions[0]])
    context = cache.open(request(session_id, 2), BY_NAME, 1.0)
    assert [p.index for p in context.partitions] == [1, 2, 0]


def test_a_broker_has_one_session_its_last() -> None:
    cache = sessions(slots=3)
    closed: list[int] = []

    def broker_session(number: int) -> int:
        context = cache.open(request(t=[wanted(0)]), BY_NAME, 0.0, 7)
        cache.keep(context, BY_NAME, 0.0)
        assert context.session is not None
        follower: Any = SimpleNamespace(
            replica=7, fetched_s=0.0, name=lambda _: None, close=lambda: closed.append(number)
        )
        cache.give_to(context.session, follower)
        return context.session.id

    first = broker_session(1)
    start(cache, t=[wanted(0)])
    second = broker_session(2)
    assert closed == [1] and len(cache) == 2
    not_found = ErrorCode.fetch_session_id_not_found
    assert cache.open(request(first, 1), BY_NAME, 1.0, 7).error is not_found
    assert (
        cache.open(request(second, 1), BY_NAME, 1.0).error is not_found
    )  # a consumer, with a broker's session
    assert not cache.open(request(second, 1), BY_NAME, 1.0, 7).error


def test_a_request_that_is_given_up_in_the_middle_leaves_nothing_uncounted() -> None:
    """Its client has closed the connection. Else a session grows past all limits, request by request."""
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    more = request(session_id, 1, t=[wanted(index) for index in range(1, 2000)])
    opening = cache.opening(more, BY_NAME, 0.0)
    next(opening)
    opening.close()
    held = sum(len(session.partitions) for session in cache._sessions.values())
    assert cache.partition_count == held


def test_of_two_requests_with_one_epoch_at_the_same_time_one_is_refused() -> None:
    cache = sessions()
    session_id = start(cache, t=[wanted(0)])
    more = request(session_id, 1, t=[wanted(index) for index in range(1, 2000)])
    opening = cache.opening(more, BY_NAME, 0.0)
    next(opening)
    second = cache.open(request(session_id, 1), BY_NAME, 0.0)
    first = whole(opening)
    assert {first.error, second.error} == {ErrorCode.none, ErrorCode.invalid_fetch_session_epoch}
