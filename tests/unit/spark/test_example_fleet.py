"""The fleet example's generator and its computation in plain Python, by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice

from example_files import load

generate = load("fleet_positions", "generate")
check = load("fleet_positions", "check")
BEGIN = datetime(2026, 11, 7, 12, tzinfo=UTC)
DEPOT = (52.52, 13.405)
METRE = 1 / 111_195


def position(minutes: float, metres_north: float = 0.0, zone: tuple[float, float] = (52.0, 13.0)) -> object:
    return check.Position(BEGIN + timedelta(minutes=minutes), zone[0] + metres_north * METRE, zone[1])


def test_a_seed_gives_the_same_records() -> None:
    first, second = (list(islice(generate.records(3, 0.0, 4), 500)) for _ in range(2))
    assert first == second
    assert first != list(islice(generate.records(4, 0.0, 4), 500))


def test_records_come_in_the_order_of_sending_some_of_them_late_twice_and_malformed() -> None:
    sent = list(islice(generate.records(1, 1_794_000_000.0, 12), 8000))
    assert [one.at_s for one in sent] == sorted(one.at_s for one in sent)
    fleet, rejected = check.fleet_of(one.value for one in sent)
    assert rejected > 20
    assert len(fleet) == 12
    whole = sum(map(len, fleet.values()))
    assert 50 < len(sent) - rejected - whole < 300, "some come twice"
    late = [one for one in sent if one.value.startswith(b"{") and is_late(one)]
    assert 100 < len(late) < 800
    assert all(is_near(one) for one in late), "none later than the pipeline waits"


def is_late(sent: object) -> bool:
    return delay_s(sent) > 1.0


def is_near(sent: object) -> bool:
    return delay_s(sent) <= generate.LATE_S_MAX < check.LATE.total_seconds()


def delay_s(sent: object) -> float:
    """How long after its time it was sent; none for what is no position."""
    try:
        time = json.loads(sent.value)["time"]  # type: ignore[attr-defined]
        delay = sent.at_s - datetime.fromisoformat(time).timestamp()  # type: ignore[attr-defined]
    except (ValueError, KeyError):
        return 0.0
    return float(delay) if delay < 3600 else 0.0


def test_the_speed_is_that_between_two_positions() -> None:
    speeds = check.speeds_of({"truck": [position(0), position(1, metres_north=1000)]})
    first, second = speeds.values()
    assert first is None
    assert abs(second - 60.0) < 0.01


def test_who_stays_within_fifty_metres_for_five_minutes_has_stopped() -> None:
    drives_on = position(10, metres_north=900)
    stands = [position(minutes, metres_north=20 * (minutes % 2)) for minutes in range(8)]
    over, long_enough = check.stops_of({"truck": [*stands, drives_on]})
    assert over == {("truck", BEGIN, BEGIN + timedelta(minutes=7))}
    assert long_enough == {("truck", BEGIN + timedelta(minutes=5), "stopped", None)}


def test_who_creeps_on_has_not_stopped() -> None:
    creeps = [position(minutes, metres_north=15 * minutes) for minutes in range(20)]
    assert check.stops_of({"truck": creeps}) == (set(), set())


def test_who_still_stands_has_stopped_and_not_moved_on() -> None:
    over, long_enough = check.stops_of({"truck": [position(0), position(4), position(9)]})
    assert over == set()
    assert long_enough == {("truck", BEGIN + timedelta(minutes=9), "stopped", None)}


def test_zones_are_entered_and_left_at_the_first_position_on_the_other_side() -> None:
    track = [
        position(0),
        position(1, zone=DEPOT),
        position(2, metres_north=390, zone=DEPOT),
        position(3, metres_north=410, zone=DEPOT),
        position(4, zone=(52.5330, 13.3300)),
    ]
    assert list(check.crossings({"truck": track})) == [
        ("truck", BEGIN + timedelta(minutes=1), "entered", "depot"),
        ("truck", BEGIN + timedelta(minutes=3), "left", "depot"),
        ("truck", BEGIN + timedelta(minutes=4), "entered", "harbour"),
    ]


def test_receivers_that_know_nothing_are_rejected() -> None:
    fleet, rejected = check.fleet_of(generate.MALFORMED)
    assert fleet == {}
    assert rejected == len(generate.MALFORMED)
