"""Offsets that are replayed from a compacted log are those that were served before."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.offsets import Offsets
from moldau.coordinator.group.records import OffsetCommitted, OffsetForgotten
from moldau.coordinator.shard import Producer

PLACES = [("g", "t", 0), ("g", "t", 1), ("h", "t", 0)]
PRODUCERS = [Producer(7, 0), Producer(8, 0), Producer(9, 0)]


class Stored(NamedTuple):
    """An entry of the log: a record, perhaps of a transaction, or the marker that ends one."""

    record: OffsetCommitted | OffsetForgotten | None
    producer: Producer | None = None
    is_commit: bool = False


class Step(NamedTuple):
    what: str
    place: tuple[str, str, int]
    producer: Producer


KINDS = ["commit", "commit in a transaction", "forget", "end it", "abort it"]
steps_taken = st.lists(
    st.builds(Step, st.sampled_from(KINDS), st.sampled_from(PLACES), st.sampled_from(PRODUCERS)), max_size=30
)


def written(steps: list[Step]) -> list[Stored]:
    """A log in which every transaction has ended."""
    log: list[Stored] = []
    for number, (what, place, producer) in enumerate(steps):
        committed = OffsetCommitted(*place, number, -1, "", 0)
        match what:
            case "commit":
                log.append(Stored(committed))
            case "commit in a transaction":
                log.append(Stored(committed, producer))
            case "forget":
                log.append(Stored(OffsetForgotten(*place)))
            case _:
                log.append(Stored(None, producer, is_commit=what == "end it"))
    return [*log, *(Stored(None, producer, is_commit=True) for producer in PRODUCERS)]


def compacted(log: list[Stored]) -> list[Stored]:
    """Of each key the last record that was not aborted, and the markers."""
    aborted: set[int] = set()
    for position, entry in enumerate(log):
        if entry.record is None and not entry.is_commit:
            for before in range(position - 1, -1, -1):
                if log[before].producer == entry.producer:
                    if log[before].record is None:
                        break
                    aborted.add(before)
    last = {e.record[:3]: n for n, e in enumerate(log) if e.record is not None and n not in aborted}
    return [e for n, e in enumerate(log) if e.record is None or last.get(e.record[:3]) == n]


def replayed(log: list[Stored]) -> dict[tuple[str, str, int], int | None]:
    offsets = Offsets()
    for entry in log:
        if entry.record is None:
            assert entry.producer is not None
            offsets.end_transaction(entry.producer, is_commit=entry.is_commit)
        elif isinstance(entry.record, OffsetForgotten):
            offsets.forget(entry.record)
        elif entry.producer is None:
            offsets.commit(entry.record)
        else:
            offsets.commit_in_transaction(entry.record, entry.producer)
    assert not any(offsets.is_unstable(*place) for place in PLACES)
    found = {place: offsets.get(*place) for place in PLACES}
    return {place: None if one is None else one.offset for place, one in found.items()}


@given(steps_taken)
def test_a_compacted_log_has_the_offsets_of_the_whole_one(steps: list[Step]) -> None:
    log = written(steps)
    assert replayed(compacted(log)) == replayed(log)
