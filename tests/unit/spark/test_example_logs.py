"""The log example without Spark: what is generated, and what plain Python makes of it."""

from __future__ import annotations

from itertools import islice

from example_files import load

generate = load("log_aggregation", "generate")
check = load("log_aggregation", "check")
BEGIN_S = 1_794_000_000 // 3600 * 3600


def line(text: str) -> object:
    found = check.parse(text.encode())
    assert found is not None
    return found


def test_a_seed_gives_the_same_lines_some_hours_late_some_twice_some_none() -> None:
    sent = list(islice(generate.records(3, BEGIN_S), 15_000))
    assert sent == list(islice(generate.records(3, BEGIN_S), 15_000))
    parsed = [(at_s, value, check.parse(value)) for at_s, (_, value) in sent]
    lines = [found for _, _, found in parsed if found is not None]
    assert len(lines) - len(set(lines)) > 20, "twice"
    late_s = [at_s - found.time.timestamp() for at_s, _, found in parsed if found is not None]
    assert sum(0.5 < late < generate.LATE_S_MAX for late in late_s) > 50
    assert sum(1800 < late < generate.CUT_OFF_S_MAX + 1 for late in late_s) > 5
    assert {value for _, value, found in parsed if found is None} == set(generate.MALFORMED)


def test_a_line_is_a_request_or_a_message() -> None:
    request = line("2026-11-18T12:00:00.250Z ERROR cart cart-7 PUT /cart/items 502 88ms out of stock")
    assert request[1:] == ("ERROR", "cart", "cart-7", "PUT", "/cart/items", 502, 88, "out of stock")
    assert line("2026-11-18T12:00:00.250Z INFO cart cart-8 GET /cart 200 5ms")[4:] == (
        "GET",
        "/cart",
        200,
        5,
        None,
    )
    message = line("2026-11-18T12:00:00.250Z WARN cart cart-9 retry 2 of 3")
    assert message[4:] == (None, None, None, None, "retry 2 of 3")


def test_what_was_sent_twice_counts_once() -> None:
    late = line("2026-11-18T11:59:59.999Z ERROR cart cart-1 GET /cart/17 500 40ms no such card")
    fast = line("2026-11-18T12:00:00.000Z INFO cart cart-2 GET /cart/18 200 20ms")
    assert check.errors([late, fast, late]) == [
        ("cart", "2026-11-18", 11, 1, 1),
        ("cart", "2026-11-18", 12, 1, 0),
    ]
    assert check.slowest([late, fast, late]) == [("cart GET /cart/ID", 2, 39.0)]
