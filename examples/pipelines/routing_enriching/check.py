"""Compare what the pipeline has made with a computation in plain Python over the same topics.

    python check.py            # after `moldau pipeline run --once`; exit code 1 where something differs

Orders and payments without a partner need not be told yet while one may still come.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
LATE = timedelta(minutes=2)
PAID_WITHIN = timedelta(minutes=30)
ROUTES = ("orders-unknown", "orders-vip", "orders-export", "orders-standard")
MATCHES = ("orders-paid", "orders-unpaid", "payments-unmatched")

Customer = tuple[int, str, str]
"""Revision, country, tier."""


class Record(NamedTuple):
    place: tuple[str, int, int]
    """Topic, partition and offset."""
    at_ms: int
    key: str
    value: bytes | None
    headers: dict[str, bytes]


class Order(NamedTuple):
    customer: str
    amount_cents: int
    time: datetime
    is_test: bool


class Payment(NamedTuple):
    order: str
    amount_cents: int
    time: datetime


def read_topic(topic: str) -> Iterator[Record]:
    """Every record that is there now, by partition and offset; of transactions only the committed ones."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "check", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    open_ends = set(partitions)
    while open_ends:
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{topic}: no answer")
        if message.error() is not None:
            open_ends.discard(message.partition())
            continue
        place = topic, message.partition(), message.offset()
        key = (message.key() or b"").decode()
        yield Record(place, message.timestamp()[1], key, message.value(), dict(message.headers() or ()))
    consumer.close()


def order_of(value: bytes | None) -> tuple[str, Order]:
    """ValueError, KeyError or TypeError where it is none; the same for the others."""
    found = json.loads(value or b"")
    order = Order(
        text(found["customer"]),
        number(found["amount_cents"]),
        time_of(found["time"]),
        found.get("test") is True,
    )
    if order.amount_cents <= 0:
        raise ValueError("it is about nothing")
    return text(found["id"]), order


def payment_of(value: bytes | None) -> tuple[str, Payment, bool]:
    """With whether it went through."""
    found = json.loads(value or b"")
    payment = Payment(text(found["order"]), number(found["amount_cents"]), time_of(found["time"]))
    return text(found["id"]), payment, found["status"] == "captured"


def customer_of(value: bytes) -> Customer:
    found = json.loads(value)
    return number(found["revision"]), text(found["country"]), text(found["tier"])


def text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no number")
    return value


def time_of(value: object) -> datetime:
    return datetime.fromisoformat(text(value))


class Shop(NamedTuple):
    """What the topics say: each order and captured payment once, customers through time, places of what is neither."""

    orders: dict[str, Order]
    sent_ms: dict[str, int]
    payments: dict[str, Payment]
    customers: dict[str, list[tuple[int, Customer | None]]]
    malformed: dict[tuple[str, int, int], bytes | None]

    @property
    def real(self) -> dict[str, Order]:
        return {name: order for name, order in self.orders.items() if not order.is_test}


def shop_of(orders: Iterable[Record], payments: Iterable[Record], customers: Iterable[Record]) -> Shop:
    shop = Shop({}, {}, {}, defaultdict(list), {})
    for record in orders:
        try:
            name, order = order_of(record.value)
            shop.orders.setdefault(name, order)
            shop.sent_ms[name] = min(record.at_ms, shop.sent_ms.get(name, record.at_ms))
        except (ValueError, KeyError, TypeError):
            shop.malformed[record.place] = record.value
    for record in payments:
        try:
            name, payment, is_captured = payment_of(record.value)
            if is_captured:
                shop.payments.setdefault(name, payment)
        except (ValueError, KeyError, TypeError):
            shop.malformed[record.place] = record.value
    for record in customers:
        try:
            known = None if record.value is None else customer_of(record.value)
            shop.customers[record.key].append((record.at_ms, known))
        except (ValueError, KeyError, TypeError):
            pass  # what was known before stands
    return shop


def route_of(customer: Customer | None) -> str:
    if customer is None:
        return "orders-unknown"
    _, country, tier = customer
    return "orders-vip" if tier == "vip" else "orders-export" if country != "DE" else "orders-standard"


def may_be_known(shop: Shop, order: str) -> list[Customer | None]:
    """What was known of the customer when the order was sent, and since."""
    history = [(0, None), *shop.customers.get(shop.orders[order].customer, [])]
    before = [at for at, (at_ms, _) in enumerate(history) if at_ms < shop.sent_ms[order]]
    return [known for _, known in history[max(before, default=0) :]]


def partners(shop: Shop) -> dict[str, set[tuple[str | None, str | None]]]:
    """Orders and payments, by the topic that tells of them."""
    found: dict[str, set[tuple[str | None, str | None]]] = {topic: set() for topic in MATCHES}
    orders = shop.real
    for name, payment in shop.payments.items():
        order = orders.get(payment.order)
        if order is not None and timedelta(0) <= payment.time - order.time <= PAID_WITHIN:
            found["orders-paid"].add((payment.order, name))
        else:
            found["payments-unmatched"].add((payment.order, name))
    paid = {order for order, _ in found["orders-paid"]}
    found["orders-unpaid"] = {(name, None) for name in orders if name not in paid}
    return found


def surely_told(shop: Shop, pairs: set[tuple[str | None, str | None]]) -> set[tuple[str | None, str | None]]:
    """Those without a partner that no record to come can be the partner of."""
    captured = shop.payments.values()
    watermark = min(max(o.time for o in shop.orders.values()), max(p.time for p in captured)) - LATE
    last = {name: order.time + PAID_WITHIN for name, order in shop.orders.items()}
    return {
        (order, payment)
        for order, payment in pairs
        if (last[order or ""] if payment is None else shop.payments[payment].time) < watermark
    }


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def say(self, what: str, number_of: int, is_right: bool) -> None:
        self.is_right &= is_right
        print(f"{what}: {number_of}, {'as expected' if is_right else 'WRONG'}")


def check_routes(report: Report, shop: Shop) -> None:
    seen: Counter[str] = Counter()
    for topic in ROUTES:
        rows = [json.loads(record.value or b"") for record in read_topic(topic)]
        seen.update(row["id"] for row in rows)
        report.say(topic, len(rows), all(is_enriched(shop, topic, row) for row in rows))
    report.say("orders routed once", len(seen), seen == Counter(shop.real.keys()))


def is_enriched(shop: Shop, topic: str, row: dict[str, Any]) -> bool:
    order = shop.real.get(row["id"])
    known = None if row["revision"] is None else (row["revision"], row["country"], row["tier"])
    told = Order(row["customer"], row["amount_cents"], time_of(row["time"]), False)
    return told == order and topic == route_of(known) and known in may_be_known(shop, row["id"])


def check_matches(report: Report, shop: Shop) -> None:
    expected = partners(shop)
    for topic in MATCHES:
        rows = [json.loads(record.value or b"") for record in read_topic(topic)]
        found = {(row["order"], row["payment"]) for row in rows}
        needed = expected[topic] if topic == "orders-paid" else surely_told(shop, expected[topic])
        is_right = len(found) == len(rows) and needed <= found <= expected[topic]
        report.say(topic, len(rows), is_right and all(is_as_sent(shop, row) for row in rows))


def is_as_sent(shop: Shop, row: dict[str, Any]) -> bool:
    order, payment = shop.orders.get(row["order"]), shop.payments.get(row["payment"] or "")
    told = row["customer"], row["amount_cents"], row["ordered"] and time_of(row["ordered"])
    paid = row["paid_cents"], row["paid"] and time_of(row["paid"])
    is_alone = row["ordered"] is None
    return (told == (None, None, None) if is_alone or order is None else told == order[:3]) and (
        paid == (None, None) if payment is None else paid == payment[1:]
    )


def main() -> int:
    shop = shop_of(read_topic("orders"), read_topic("payments"), read_topic("customers"))
    report = Report()
    letters = list(read_topic("dead-letters"))
    places = {
        (one.headers["topic"].decode(), int(one.headers["partition"]), int(one.headers["offset"])): one.value
        for one in letters
    }
    report.say("dead letters", len(letters), len(letters) == len(places) and places == shop.malformed)
    check_routes(report, shop)
    check_matches(report, shop)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
