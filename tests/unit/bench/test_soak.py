"""The long run's judges: what they let pass, and every wrong that they must find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.soak_model import TOPICS, Ledger, Stored, Topic, check_partition, message_of, origin_of
from bench.soak_report import Sample, Summary, flatness, text, write_page
from moldau.records.record import Record

NOW_MS = 1_700_000_000_000
BY_SIZE, BY_TIME, COMPACTED = TOPICS
KEPT = Topic("kept", 1, {"internal.segment.bytes": "1000"})


def acknowledged(
    numbers: Sequence[int], *, topic: Topic = KEPT, offset: int = 0, is_idempotent: bool = True
) -> Ledger:
    """A writer `w` whose messages were acknowledged one after the other, long ago."""
    ledger = Ledger()
    for i, number in enumerate(numbers):
        ledger.acknowledge(
            topic.name, 0, "w", number, offset + i, NOW_MS - 600_000, is_idempotent=is_idempotent
        )
    return ledger


def stored(numbers: Sequence[int], *, topic: Topic = KEPT, start: int = 0, size: int = 1_000_000) -> Stored:
    messages = [message_of(topic, "w", number) for number in numbers]
    records = [Record(start + i, NOW_MS, m.key, m.value) for i, m in enumerate(messages)]
    return Stored(start, start + len(records), size, records)


def problems(topic: Topic, found: Stored, ledger: Ledger) -> list[str]:
    return check_partition(topic, found, ledger.lines(topic.name, 0), NOW_MS)


def test_what_was_acknowledged_and_is_there_is_right() -> None:
    assert problems(KEPT, stored(range(5)), acknowledged(range(5))) == []


def test_a_message_says_who_wrote_it() -> None:
    assert origin_of(message_of(KEPT, "w", 12).value) == ("w", 12)


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 1, 2, 3], "message 4 was acknowledged at 4, and is not there"),
        ([0, 1, 1, 3, 4], "message 2 was acknowledged at 2, and is not there"),
        ([0, 1, 2, 3, 4, 4], "message 4 comes after 4"),
        ([0, 1, 2, 3, 4, 6], "message 6 comes right after 4"),
    ],
)
def test_lost_doubled_and_missing_messages_are_found(numbers: list[int], complaint: str) -> None:
    assert any(complaint in problem for problem in problems(KEPT, stored(numbers), acknowledged(range(5))))


def test_a_writer_without_retries_may_leave_gaps() -> None:
    ledger = acknowledged([0, 1, 5], is_idempotent=False)
    assert problems(KEPT, stored([0, 1, 5]), ledger) == []


def test_a_gap_in_the_offsets_is_found() -> None:
    found = stored(range(5))
    del found.records[2]
    assert any("gaps" in problem for problem in problems(KEPT, found, Ledger()))


def test_what_retention_took_in_time_is_not_missed() -> None:
    ledger = acknowledged(range(5), topic=BY_TIME)
    assert problems(BY_TIME, stored([3, 4], topic=BY_TIME, start=3), ledger) == []


def test_what_retention_took_too_early_is_found() -> None:
    ledger = Ledger()
    ledger.acknowledge(BY_TIME.name, 0, "w", 0, 0, NOW_MS - 10_000, is_idempotent=True)
    found = problems(BY_TIME, stored([1], topic=BY_TIME, start=1), ledger)
    assert "w: message 0 at 0 is gone 10000 ms too early" in found


@pytest.mark.parametrize(("size", "is_right"), [(999_999, False), (1_000_000, True), (2_000_000, False)])
def test_retention_by_size_keeps_what_it_says_and_not_much_more(size: int, is_right: bool) -> None:
    found = stored(range(5), topic=BY_SIZE, start=7, size=size)
    assert (problems(BY_SIZE, found, Ledger()) == []) is is_right


def test_a_compacted_partition_with_the_last_message_of_each_key_is_right() -> None:
    everything = range(300)
    last = {message_of(COMPACTED, "w", number).key: number for number in everything}
    kept = [number for number in sorted(last.values()) if message_of(COMPACTED, "w", number).value]
    ledger = acknowledged(everything, topic=COMPACTED)
    assert problems(COMPACTED, stored(kept, topic=COMPACTED), ledger) == []
    assert problems(COMPACTED, stored(everything, topic=COMPACTED), ledger) == []


def test_an_older_message_of_a_key_and_a_missing_key_are_found() -> None:
    ledger = acknowledged(range(300), topic=COMPACTED)
    assert problems(COMPACTED, stored(range(250), topic=COMPACTED), ledger) != []
    assert problems(COMPACTED, stored(range(290, 300), topic=COMPACTED), ledger) != []


def test_a_log_that_was_never_compacted_is_found() -> None:
    found = stored(range(6000), topic=COMPACTED)
    assert any("not compacted" in p for p in problems(COMPACTED, found, Ledger()))


def samples(rss_per_s: float = 0.0, files_per_s: float = 0.0, seconds: int = 200) -> list[Sample]:
    noise = [0, 900_000, -700_000, 300_000]
    return [
        Sample(s, int(50_000_000 + noise[s % 4] + rss_per_s * s), int(40 + s % 3 + files_per_s * s))
        for s in range(seconds)
    ]


def test_noise_is_no_growth() -> None:
    judged = flatness(samples(), 0)
    assert judged is not None and judged.problems == []


def test_a_single_peak_is_no_growth() -> None:
    found = samples()
    found[-1] = Sample(200, 500_000_000, 900)
    judged = flatness(found, 0)
    assert judged is not None and judged.problems == []


def test_memory_and_files_that_grow_are_found() -> None:
    judged = flatness(samples(rss_per_s=50_000, files_per_s=0.2), 0)
    assert judged is not None
    assert [problem.partition(" grow")[0] for problem in judged.problems] == ["memory", "open files"]


def test_a_short_calm_is_not_judged() -> None:
    assert flatness(samples(seconds=100), 0) is None


def test_the_page_tells_the_verdict_and_has_a_picture(tmp_path: Path) -> None:
    found = samples()
    summary = Summary(7, 3.3, 4, 2, 1000, 900, found, [20.0], 100.0, flatness(found, 0.0), [])
    write_page(summary, tmp_path)
    assert "verdict: passed" in (tmp_path / "soak.md").read_text()
    assert (tmp_path / "soak.png").stat().st_size > 1000
    assert any("killed 4 times" in line for line in text(summary))
