"""Leader epochs: what a follower or a consumer is told about where an epoch ended."""

from __future__ import annotations

from moldau.log.epochs import EpochEnd, LeaderEpochs

UNKNOWN = EpochEnd(-1, -1)


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs(list(entries))


def test_an_epoch_is_assigned_once() -> None:
    known = LeaderEpochs()
    known.assign(1, 0)
    known.assign(1, 5)
    known.assign(4, 10)
    assert known.entries == [(1, 0), (4, 10)]
    assert known.latest == 4
    assert known.changed


def test_a_new_epoch_removes_those_that_contradict_it() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.assign(6, 15)
    assert known.entries == [(1, 0), (3, 10), (6, 15)]
    known.assign(2, 30)
    assert known.entries == [(1, 0), (2, 30)]


def test_an_epoch_without_records_is_replaced_by_the_next() -> None:
    known = epochs((1, 0), (2, 7))
    known.assign(3, 7)
    assert known.entries == [(1, 0), (3, 7)]


def test_an_epoch_ends_where_the_next_begins() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    assert known.end_offset_for(1, 99) == EpochEnd(1, 10)
    assert known.end_offset_for(2, 99) == EpochEnd(1, 10)
    assert known.end_offset_for(3, 99) == EpochEnd(3, 20)
    assert known.end_offset_for(5, 99) == EpochEnd(5, 99)


def test_epochs_that_nobody_knows_have_no_end() -> None:
    known = epochs((1, 0), (3, 10))
    assert known.end_offset_for(4, 99) == UNKNOWN
    assert known.end_offset_for(-1, 99) == UNKNOWN
    assert LeaderEpochs().end_offset_for(0, 99) == UNKNOWN


def test_an_epoch_older_than_the_log_ends_where_the_log_begins() -> None:
    assert epochs((5, 30), (7, 40)).end_offset_for(2, 99) == EpochEnd(2, 30)


def test_truncation_forgets_the_epochs_it_cut_off() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.truncate_from_end(10)
    assert known.entries == [(1, 0)]
    assert known.latest == 1


def test_a_new_start_moves_the_epoch_it_lies_in() -> None:
    known = epochs((1, 0), (3, 10), (5, 20))
    known.truncate_from_start(15)
    assert known.entries == [(3, 15), (5, 20)]
    known.changed = False
    known.truncate_from_start(15)
    assert not known.changed


def test_the_epoch_of_an_offset() -> None:
    known = epochs((1, 5), (3, 10))
    assert [known.epoch_of(offset) for offset in (0, 5, 9, 10, 50)] == [-1, 1, 1, 3, 3]
