"""The monitoring example without Spark: what is generated, and what plain Python makes of it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import islice

from example_files import load

generate = load("metrics_monitoring", "generate")
check = load("metrics_monitoring", "check")
BEGIN_S = 1_794_000_000 // 3600 * 3600
BEGIN = datetime.fromtimestamp(BEGIN_S, UTC)


def sample(seconds: float, host: str = "web-1", **more: object) -> object:
    values = {"cpu": 10.0, "memory": 20.0, "disk": 30.0, "requests": 100, "errors": 0, **more}
    return check.Sample(host, BEGIN + timedelta(seconds=seconds), **values)


def test_a_seed_gives_the_same_records_some_late_some_twice_some_none() -> None:
    sent = list(islice(generate.records(3, BEGIN_S), 4000))
    assert sent == list(islice(generate.records(3, BEGIN_S), 4000))
    values = [value for _, (_, value) in sent]
    parsed = [check.parse(value) for value in values]
    samples = [found for found in parsed if isinstance(found, check.Sample)]
    assert len(samples) - len(set(samples)) > 10, "twice"
    late_s = [
        at_s - found.time.timestamp()
        for (at_s, _), found in zip(sent, parsed, strict=True)
        if found in samples
    ]
    assert 30 < max(late_s) < generate.LATE_S_MAX + 1
    assert set(generate.MALFORMED) == {
        value for value, found in zip(values, parsed, strict=True) if found not in samples
    }


def test_what_is_no_sample_has_a_reason() -> None:
    assert [check.parse(value) for value in generate.MALFORMED] == [
        *["not the JSON of a sample"] * 3,
        "no host or no time",
        *["not the JSON of a sample"] * 2,
        "no percentage",
        "no count",
    ]


def test_the_incidents_of_an_hour_are_the_alerts() -> None:
    values = [value for _, (_, value) in islice(generate.records(1, BEGIN_S), 4000)]
    samples = {found for value in values if isinstance(found := check.parse(value), check.Sample)}
    last = max(one.time for one in samples)
    alerts = [*check.too_much(samples), *(one for one in check.silences(samples) if one.end < last)]
    found = Counter((alert.host, alert.rule) for alert in alerts)
    assert found.keys() == {
        ("web-2", "cpu"),
        ("web-4", "errors"),
        ("db-1", "disk"),
        ("cache-1", "silent"),
        ("batch-2", "silent"),
    }


def test_a_pause_of_three_minutes_is_a_silence() -> None:
    samples = [sample(0), sample(179.999), sample(360), sample(100, host="db-1")]
    found = [(alert.host, (alert.start - BEGIN).total_seconds()) for alert in check.silences(samples)]
    assert found == [("web-1", 179.999), ("web-1", 360.0), ("db-1", 100.0)]


def test_windows_begin_at_multiples_of_their_length() -> None:
    found = check.windows([sample(59.999), sample(60), sample(299), sample(300)], timedelta(minutes=5))
    assert [(key[0] - BEGIN, len(together)) for key, together in found.items()] == [
        (timedelta(0), 3),
        (timedelta(minutes=5), 1),
    ]
    assert check.measures([sample(0, cpu=float(cpu)) for cpu in range(1, 11)])["cpu_p95"] == 9.55
