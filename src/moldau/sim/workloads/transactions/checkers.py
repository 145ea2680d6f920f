"""What is checked of transactions when a run is over, against everything that can be read then.

`decide` finds out from a log alone, by its markers, what was committed: the index of aborted transactions by which the
broker's readers know has no part in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from moldau.base.ids import TopicPartition
from moldau.records.record import Record
from moldau.sim.fetching import Batch
from moldau.sim.model import Ledger, Model
from moldau.sim.workloads.log.checkers import check_idempotence, check_known
from moldau.sim.workloads.transactions.model import NOTHING_COMMITTED, Fate, TransactionModel
from moldau.sim.workloads.transactions.protocol import SOURCE
from moldau.sim.workloads.transactions.readers import ABORT_KEY

Committed = list[tuple[int, bytes]]
"""Offsets and values, as every reader of committed records must be shown them."""


class Decided(NamedTuple):
    records: list[Record]
    committed: Committed
    open_producers: list[int]
    """Whose transactions nobody has ended."""


def decide(log: Sequence[Batch]) -> Decided:
    records: list[Record] = []
    committed: Committed = []
    waiting: dict[int, Committed] = {}
    for header, found in log:
        if header.is_control:
            ended = waiting.pop(header.producer_id, [])
            if found[0].key != ABORT_KEY:
                committed += ended
            continue
        records += found
        values = [(record.offset, record.value or b"") for record in found]
        if header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(values)
        else:
            committed += values
    return Decided(records, sorted(committed), sorted(waiting))


def check_partition(model: TransactionModel, ledger: Ledger, log: Sequence[Batch]) -> Committed:
    """`log` is all that can be read of a partition in a quiet world; what is committed of it."""
    decided = decide(log)
    if decided.open_producers:
        ledger.fail("no open transactions", f"those of producers {decided.open_producers}")
    check_known(ledger, {record.offset: record for record in decided.records})
    check_idempotence(ledger, decided.records)
    place = ledger.partition
    for record in decided.records:
        model.on_read(place, record.offset, record.value or b"")
    for offset, value in decided.committed:
        model.check_may_be_seen(place, offset, value, "in the end")
    for glimpse in model.glimpses.get(place, ()):
        start = bisect_left(decided.committed, glimpse.first_offset, key=itemgetter(0))
        stop = bisect_left(decided.committed, glimpse.next_offset, key=itemgetter(0))
        expected = tuple(decided.committed[start:stop])
        if glimpse.values != expected:
            stretch = f"from {glimpse.first_offset} to {glimpse.next_offset}"
            ledger.fail(
                f"{glimpse.reader} to be shown the offsets {[offset for offset, _ in expected]} {stretch}",
                f"{[offset for offset, _ in glimpse.values]}",
            )
    return decided.committed


def check_whole(
    failures: Model, model: TransactionModel, committed: Mapping[TopicPartition, Committed]
) -> None:
    """Of every transaction all is there, in order and once, or nothing."""
    seen: dict[int, dict[TopicPartition, list[bytes]]] = {}
    for place, rows in committed.items():
        for _, value in rows:
            written = model.written.get(value)
            if written is not None:
                seen.setdefault(written.attempt.number, {}).setdefault(place, []).append(value)
    for attempt in model.attempts:
        found = seen.get(attempt.number, {})
        must_be_seen = attempt.fate is Fate.COMMITTED or bool(found)
        if must_be_seen and found != attempt.values:
            failures.fail(
                None,
                f"all of {attempt}, which is {attempt.fate.value}: {_counted(attempt.values)}",
                _counted(found),
            )


def check_copies(
    failures: Model,
    model: TransactionModel,
    committed: Mapping[TopicPartition, Committed],
    offsets: Mapping[int, int],
) -> None:
    """Of every committed record before the group's offset there is one committed copy, and of no other one."""
    copies: dict[int, list[int]] = {partition: [] for partition in offsets}
    for place, rows in committed.items():
        last: dict[int, int] = {}
        for _, value in rows:
            written = model.written.get(value)
            if written is None or written.source is None:
                continue
            partition, offset = written.source
            copies[partition].append(offset)
            if offset < last.get(partition, NOTHING_COMMITTED):
                failures.fail(
                    place, f"the copy of source-{partition} {offset} before {last[partition]}", "behind"
                )
            last[partition] = offset
    for partition, next_offset in offsets.items():
        rows = committed[TopicPartition(SOURCE, partition)]
        expected = [offset for offset, _ in rows if offset < next_offset]
        found = sorted(copies[partition])
        if found != expected:
            lost = sorted(set(expected) - set(found))
            twice = sorted({offset for offset in found if found.count(offset) > 1})
            other = sorted(set(found) - set(expected))
            failures.fail(
                TopicPartition(SOURCE, partition),
                f"one copy of each committed record below {next_offset}",
                f"none of {lost}, more than one of {twice}, and those of {other}",
            )


def _counted(values: Mapping[TopicPartition, list[bytes]]) -> str:
    return ", ".join(f"{len(found)} in {place}" for place, found in sorted(values.items())) or "nothing"
