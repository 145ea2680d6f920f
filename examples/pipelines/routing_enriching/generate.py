"""Customers, orders and payments of a shop, as its services would send them.

    python generate.py                      # an hour and a half of them, as fast as it goes
    python generate.py --rate 20            # 20 orders a second, for ever
    python generate.py --records 500 --seed 7

Customers move, become important and leave. Most orders are paid within minutes, some too late or never. Some records
come up to a minute late, one in fifty comes twice, one in a hundred is malformed.
"""

import argparse
import heapq
import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from typing import NamedTuple

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
CUSTOMERS = 60
ORDERS_PER_S = 0.5
LATE_S_MAX = 60.0
COUNTRIES = ("DE", "DE", "DE", "AT", "CZ", "FR")
MALFORMED = (
    b"",
    b"not json",
    b'{"id": "cut off", "time": "2026-',
    b'{"id": "no order", "amount_cents": 100}',
    b'{"id": "no number", "customer": "c-1", "order": "o", "amount_cents": "12,50", "time": "2026-11-05T00:00:00Z"}',
    b"[1, 2]",
)


class Sent(NamedTuple):
    at_s: float
    topic: str
    key: str
    value: bytes | None


def text_of(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


class Shop:
    """What happens in it, by chance; each method gives what is sent at once or later."""

    def __init__(self, seed: int, begin_s: float) -> None:
        self._random = random.Random(seed)
        self._begin_s = begin_s
        self._revisions = dict.fromkeys((f"c-{number}" for number in range(CUSTOMERS)), 0)
        self._order = count(1)

    def openings(self) -> Iterator[Sent]:
        for customer in self._revisions:
            yield self._customer(self._begin_s, customer)

    def _customer(self, at_s: float, customer: str) -> Sent:
        self._revisions[customer] += 1
        tier = "vip" if self._random.random() < 0.15 else "normal"
        known = {
            "id": customer,
            "revision": self._revisions[customer],
            "country": self._random.choice(COUNTRIES),
            "tier": tier,
        }
        return Sent(at_s, "customers", customer, json.dumps(known).encode())

    def order(self, at_s: float) -> Iterator[Sent]:
        """An order, its payments, and what else happens meanwhile."""
        chance = self._random.random()
        customer = self._random.choice(list(self._revisions))
        if chance < 0.02:
            yield self._customer(at_s, self._random.choice(list(self._revisions)))
        elif chance < 0.023:
            yield Sent(at_s, "customers", self._random.choice(list(self._revisions)), None)
        elif chance < 0.028:
            yield Sent(at_s, "customers", customer, self._random.choice(MALFORMED))
        elif chance < 0.04:
            customer = f"guest-{int(at_s)}"
        number = f"{int(self._begin_s)}-{next(self._order)}"
        order = {
            "id": f"o-{number}",
            "customer": customer,
            "amount_cents": int(self._random.lognormvariate(8, 0.8)) + 1,
            "time": text_of(at_s),
            "test": self._random.random() < 0.02,
        }
        yield from self._as_it_comes(Sent(at_s, "orders", str(order["id"]), json.dumps(order).encode()))
        for paid_s, status in self._payments(at_s):
            payment = {
                "id": f"p-{number}-{status}",
                "order": order["id"] if self._random.random() > 0.01 else f"o-{number}-mistyped",
                "amount_cents": order["amount_cents"],
                "status": status,
                "time": text_of(paid_s),
            }
            sent = Sent(paid_s, "payments", str(payment["order"]), json.dumps(payment).encode())
            yield from self._as_it_comes(sent)

    def _payments(self, ordered_s: float) -> Iterator[tuple[float, str]]:
        chance = self._random.random()
        paid_s = ordered_s + self._random.lognormvariate(4.5, 0.8)
        if chance < 0.1:
            return  # never
        if chance < 0.15:
            paid_s = ordered_s + self._random.uniform(1900, 3000)  # too late
        elif chance < 0.25:
            yield paid_s, "declined"
            paid_s += 30
        yield paid_s, "captured"

    def _as_it_comes(self, sent: Sent) -> Iterator[Sent]:
        """Late, twice, or beside something that is malformed."""
        chance = self._random.random()
        later = sent._replace(at_s=sent.at_s + self._random.uniform(0.0, LATE_S_MAX))
        yield later if chance < 0.04 else sent
        if 0.03 < chance < 0.05:
            yield later
        elif chance > 0.99:
            yield sent._replace(value=self._random.choice(MALFORMED))


def records(seed: int, begin_s: float, rate: float) -> Iterator[Sent]:
    """What is sent, in the order of sending, for ever."""
    shop = Shop(seed, begin_s)
    yield from shop.openings()
    pace = random.Random(seed)
    coming: list[tuple[float, int, Sent]] = []
    number = count()
    now_s = begin_s
    while True:
        now_s += pace.expovariate(rate)
        for sent in shop.order(now_s):
            heapq.heappush(coming, (sent.at_s, next(number), sent))
        while coming and coming[0][0] <= now_s:
            yield heapq.heappop(coming)[2]


def main() -> None:
    parser = argparse.ArgumentParser(description="Customers, orders and payments for the routing pipeline.")
    parser.add_argument("--records", type=int, default=5_000, help="how many; without effect on --rate")
    parser.add_argument("--rate", type=float, default=0.0, help="so many orders a second, for ever")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=float, help="seconds since 1970 of the first order; 90 minutes ago")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, which were sent before")
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    if options.rate:
        stream = records(options.seed, time.time(), options.rate)
    else:
        whole = records(options.seed, options.begin or time.time() - 5400, ORDERS_PER_S)
        stream = islice(whole, options.skip, options.skip + options.records)
    sent = 0
    try:
        for at_s, topic, key, value in stream:
            if options.rate:
                time.sleep(max(0.0, at_s - time.time()))
            producer.produce(topic, value, key, on_delivery=stop_on_error)
            if topic == "customers":
                producer.flush()  # before the orders that follow
            producer.poll(0)
            sent += 1
    except KeyboardInterrupt:
        pass
    producer.flush()
    print(f"sent {sent} records to customers, orders and payments")


def stop_on_error(error: object, _: object) -> None:
    if error is not None:
        raise SystemExit(f"not stored: {error}")


if __name__ == "__main__":
    main()
