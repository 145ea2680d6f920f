"""Who follows the controller gets what it lacks, or is told to take a snapshot."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from uuid import UUID

import pytest

from moldau.controller import delta_log
from moldau.controller.delta_log import Applied, DeltaLog, TooManyWait
from moldau.metadata.records import Delta, PartitionState, Position, Record, TopicCreated

from .stores import TestTasks


def log_of(*positions: tuple[int, int], base: tuple[int, int] = (1, 4)) -> DeltaLog:
    return DeltaLog(Position(*base), [Delta(epoch, sequence, ()) for epoch, sequence in positions])


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ((1, 4), [5, 6, 7]),
        ((1, 5), [6, 7]),
        ((2, 6), [7]),
        ((2, 7), []),
        ((1, 6), None),
        ((2, 5), None),
        ((1, 3), None),
        ((2, 8), None),
        ((0, 0), None),
    ],
)
def test_a_follower_gets_what_it_lacks_where_it_is_on_the_same_path(
    position: tuple[int, int], expected: list[int] | None
) -> None:
    deltas = log_of((1, 5), (2, 6), (2, 7)).since(Position(*position))
    assert (None if deltas is None else [delta.sequence for delta in deltas]) == expected


def test_what_is_kept_is_bounded_by_number_and_by_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "DELTAS_MAX", 3)
    monkeypatch.setattr(delta_log, "PARTITIONS_MAX", 100)
    log = log_of(*((1, number) for number in range(5, 15)))
    assert log.since(Position(1, 11)) is not None
    assert log.since(Position(1, 10)) is None
    state = PartitionState(1, 0, (1,), (1,))
    log.append(Delta(1, 15, (TopicCreated("a", UUID(int=1), (state,) * 200, {}),)))
    assert log.since(Position(1, 13)) is None
    assert len(log.since(Position(1, 14)) or ()) == 1
    assert log.position == Position(1, 15)


def test_a_new_delta_wakes_all_who_wait_and_so_does_the_end() -> None:
    async def scene() -> None:
        log = log_of()
        waiting = [log.next_delta() for _ in range(3)]
        waiting[1].cancel()
        await asyncio.sleep(0)
        assert not waiting[0].done()
        log.append(Delta(1, 5, ()))
        assert waiting[0].done() and waiting[2].done()
        later = log.next_delta()
        log.close()
        assert later.done()

    asyncio.run(scene())


def test_those_who_wait_are_bounded_and_who_gives_up_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        monkeypatch.setattr(delta_log, "WAITING_MAX", 2)
        log = log_of()
        first, _ = log.next_delta(), log.next_delta()
        with pytest.raises(TooManyWait):
            log.next_delta()
        first.cancel()
        await asyncio.sleep(0)
        log.next_delta()

    asyncio.run(scene())


def test_where_too_many_wait_for_brokers_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        monkeypatch.setattr(delta_log, "WAITING_MAX", 1)
        applied = Applied(TestTasks())  # type: ignore[arg-type]
        first = asyncio.ensure_future(applied.until(Position(1, 1), [1], 9))
        await asyncio.sleep(0)
        assert await applied.until(Position(1, 1), [1], 9) is False
        applied.note(1, Position(1, 1))
        assert await first is True

    asyncio.run(scene())


def test_waiting_for_brokers_ends_in_time_or_with_the_controller() -> None:
    async def scene() -> None:
        applied = Applied(TestTasks())  # type: ignore[arg-type]
        assert await applied.until(Position(1, 1), [], 9) is True
        assert await applied.until(Position(1, 1), [1], 0) is False
        applied.note(1, Position(1, 2))
        applied.note(1, Position(1, 1))
        assert applied.position(1) == Position(1, 2)
        waiting = asyncio.ensure_future(applied.until(Position(1, 3), [1], 9))
        await asyncio.sleep(0)
        applied.close()
        assert await waiting is False

    asyncio.run(scene())


def test_a_delta_is_made_bytes_once_for_all_who_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def encoded(records: Iterable[Record]) -> Iterator[bytes]:
        made.append(len(list(records)))
        yield from (b"one", b"two")

    monkeypatch.setattr(delta_log, "encoded", encoded)
    monkeypatch.setattr(delta_log, "ENCODED_MAX", 2)
    log = log_of((1, 5), (1, 6), (1, 7))
    five, six, seven = log.since(Position(1, 4)) or ()
    for delta in (five, five, six, six, seven, seven):
        assert list(log.encoded(delta)) == [b"one", b"two"]
    assert len(made) == 3
    assert list(log.encoded(five)) == [b"one", b"two"]  # forgotten meanwhile, as two newer ones are kept
    assert len(made) == 4


def test_a_broker_that_hangs_is_waited_for_once_until_it_is_heard_of() -> None:
    async def scene() -> None:
        applied = Applied(TestTasks())  # type: ignore[arg-type]
        applied.note(1, Position(1, 9))
        applied.note(2, Position(1, 1))
        await applied.until_known(Position(1, 2), [1, 2], 0.01)  # in vain
        await asyncio.wait_for(applied.until_known(Position(1, 3), [1, 2], 3600), 30)
        applied.note(2, Position(1, 2))
        waiting = asyncio.ensure_future(applied.until_known(Position(1, 3), [1, 2], 3600))
        await asyncio.sleep(0)
        assert not waiting.done(), "it is heard of again, so that it is waited for"
        applied.note(2, Position(1, 3))
        await waiting

    asyncio.run(scene())
