"""The routing example's generator and its computation in plain Python, by hand."""

from __future__ import annotations

import json
from collections import Counter
from itertools import count, islice
from typing import Any

from example_files import load

generate = load("routing_enriching", "generate")
check = load("routing_enriching", "check")
TOPICS = ("orders", "payments", "customers")
offsets = count()


def record(topic: str, value: Any, at_ms: int = 1000, key: str = "c-1") -> Any:
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return check.Record((topic, 0, next(offsets)), at_ms, key, data, {})


def order(name: str, minute: int = 0, at_ms: int = 1000, **more: Any) -> Any:
    value = {"id": name, "customer": "c-1", "amount_cents": 500, "time": f"2026-11-07T12:{minute:02}:00Z"}
    return record("orders", value | more, at_ms)


def payment(name: str, of: str, minute: int, status: str = "captured") -> Any:
    time = f"2026-11-07T12:{minute:02}:00Z"
    return record("payments", {"id": name, "order": of, "amount_cents": 500, "status": status, "time": time})


def customer(revision: int, at_ms: int, country: str = "DE", tier: str = "normal") -> Any:
    return record(
        "customers", {"id": "c-1", "revision": revision, "country": country, "tier": tier}, at_ms, "c-1"
    )


def test_a_seed_gives_the_same_records() -> None:
    first, second = (list(islice(generate.records(3, 0.0, 0.5), 500)) for _ in range(2))
    assert first == second
    assert first != list(islice(generate.records(4, 0.0, 0.5), 500))


def test_every_kind_of_thing_happens() -> None:
    sent = list(islice(generate.records(1, 1_794_000_000.0, 0.5), 5000))
    assert [one.at_s for one in sent] == sorted(one.at_s for one in sent)
    rows = [check.Record((one.topic, 0, at), at, one.key, one.value, {}) for at, one in enumerate(sent)]
    shop = check.shop_of(*([row for row in rows if row.place[0] == topic] for topic in TOPICS))
    found = check.partners(shop)
    assert all(len(pairs) > 5 for pairs in found.values()), found
    assert len(shop.orders) > len(shop.real) > 1500
    assert len(shop.malformed) > 20
    routes = Counter(check.route_of(check.may_be_known(shop, name)[-1]) for name in shop.real)
    assert set(routes) == set(check.ROUTES) and min(routes.values()) > 5
    times = Counter(row.value for row in rows if row.value not in generate.MALFORMED)
    assert 50 < list(times.values()).count(2) < 300
    assert check.surely_told(shop, found["orders-unpaid"]) > set()


def test_what_is_malformed_is_neither_an_order_nor_a_payment_nor_a_customer() -> None:
    values = generate.MALFORMED
    shop = check.shop_of(*([record(topic, value) for value in values] for topic in TOPICS))
    assert not shop.orders and not shop.payments and not shop.customers
    assert len(shop.malformed) == 2 * len(values)


def test_an_order_is_paid_by_what_was_captured_within_half_an_hour() -> None:
    shop = check.shop_of(
        [order("in time"), order("too late"), order("declined"), order("a test", test=True)],
        [
            payment("p1", "in time", 30),
            payment("p2", "too late", 31),
            payment("p3", "declined", 5, "declined"),
            payment("p4", "a test", 5),
        ],
        [],
    )
    assert check.partners(shop) == {
        "orders-paid": {("in time", "p1")},
        "orders-unpaid": {("too late", None), ("declined", None)},
        "payments-unmatched": {("too late", "p2"), ("a test", "p4")},
    }


def test_an_order_may_meet_its_customer_as_known_then_or_since_but_not_as_known_before() -> None:
    changes = [
        customer(1, 10),
        customer(2, 20, country="FR"),
        customer(3, 40, tier="vip"),
        record("customers", None, 50),
    ]
    shop = check.shop_of([order("o", at_ms=30)], [], changes)
    known = check.may_be_known(shop, "o")
    assert [one and one[0] for one in known] == [2, 3, None]
    assert [check.route_of(one) for one in known] == ["orders-export", "orders-vip", "orders-unknown"]


def test_what_may_still_find_its_partner_need_not_be_told() -> None:
    shop = check.shop_of(
        [order("early", 0), order("late", 20), order("last", 40)], [payment("p", "last", 45)], []
    )
    pairs = check.partners(shop)["orders-unpaid"]
    assert pairs == {("early", None), ("late", None)}
    assert check.surely_told(shop, pairs) == {("early", None)}
