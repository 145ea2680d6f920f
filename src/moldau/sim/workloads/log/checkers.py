"""What is checked when a run is over, against everything that can be read then.

`check_log` takes one partition's whole log as a reader found it in a quiet world; the promises that hold while the run
goes on are in `model`. `check_known` and `check_idempotence` hold for any log, markers between the records or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from moldau.records.record import Record
from moldau.sim.model import Ledger, LookUp


def check_log(ledger: Ledger, log: Sequence[Record]) -> None:
    """`log` is all that can be read of a partition, from its first offset to its high watermark."""
    if not ledger.has_gaps:
        _check_dense(ledger, log)
    check_known(ledger, {record.offset: record for record in log})
    check_idempotence(ledger, log)
    for look_up in ledger.look_ups:
        _check_look_up(ledger, look_up, log)


def _check_dense(ledger: Ledger, log: Sequence[Record]) -> None:
    for offset, record in enumerate(log, ledger.first_offset):
        if record.offset != offset:
            ledger.fail(f"offset {offset}", f"offset {record.offset}")
            return


def check_known(ledger: Ledger, log: Mapping[int, Record]) -> None:
    """All that was acknowledged or read is there, unchanged, and nothing that nobody sent."""
    for record in log.values():
        ledger.check_genuine(record)
    last_of_key = {record.key: offset for offset, record in log.items()} if ledger.has_gaps else {}
    for offset, known in enumerate(ledger.records):
        if known is not None and offset >= ledger.first_offset:
            value = log[offset].value if offset in log else None
            if value is None and known.value in ledger.sent:  # compacted, where there is a later one
                is_followed = last_of_key.get(ledger.sent[known.value].record.key, -1) > offset
                value = known.value if is_followed else None
            if value != known.value:
                ledger.fail(
                    f"offset {offset} to hold {known.value[:40]!r} ({known.how})", repr(value and value[:40])
                )


def check_idempotence(ledger: Ledger, log: Sequence[Record]) -> None:
    """Once, and in order: all of one session, and what was acknowledged over all sessions of a producer."""
    places: dict[bytes, int] = {}
    last_of_session: dict[tuple[str, int], int] = {}
    last_acknowledged: dict[str, tuple[int, int]] = {}
    for record in log:
        value = record.value or b""
        sent = ledger.sent.get(value)
        if sent is None or not sent.idempotent:
            continue
        name = f"{sent.producer}/{sent.session}/{sent.number}"
        if places.setdefault(value, record.offset) != record.offset:
            ledger.fail(f"{name} once, at offset {places[value]}", f"it at offset {record.offset} too")
        last = last_of_session.get((sent.producer, sent.session), -1)
        if sent.number < last:
            ledger.fail(f"{name} before number {last}", f"it behind, at offset {record.offset}")
        last_of_session[sent.producer, sent.session] = max(last, sent.number)
        if value in ledger.acknowledged:
            before = last_acknowledged.get(sent.producer, (-1, -1))
            if (sent.session, sent.number) < before:
                ledger.fail(f"{name} before {before}", f"it behind, at offset {record.offset}")
            last_acknowledged[sent.producer] = (sent.session, sent.number)


def _check_look_up(ledger: Ledger, look_up: LookUp, log: Sequence[Record]) -> None:
    limit = min(ledger.limit_since(look_up.life), len(log))
    found = look_up.found_offset
    asked = "the largest timestamp" if look_up.timestamp is None else f"timestamp {look_up.timestamp}"
    if found >= limit:
        return  # a power cut has taken it
    if look_up.timestamp is None and found < 0:
        return  # the record that has it was not visible yet
    if found >= 0 and log[found].timestamp != look_up.found_timestamp:
        ledger.fail(
            f"offset {found} with timestamp {log[found].timestamp}", f"{look_up.found_timestamp} ({asked})"
        )
    if look_up.timestamp is None:
        below = log[: min(look_up.visible, limit)]
        wrong = [r for r in below if r.timestamp > look_up.found_timestamp]
    else:
        below = log[: found if found >= 0 else min(look_up.visible, limit)]
        wrong = [r for r in below if r.timestamp >= look_up.timestamp]
        if found >= 0 and look_up.found_timestamp < look_up.timestamp:
            ledger.fail(f"{asked} or a later one", f"{look_up.found_timestamp} at offset {found}")
    if wrong:
        first = wrong[0]
        ledger.fail(f"{asked} at offset {first.offset} ({first.timestamp})", f"offset {found}")
