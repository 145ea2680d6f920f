"""Changes of a shop's database as a connector would send them: rows that are inserted, changed and deleted.

    python generate.py                      # 5000 changes, as fast as it goes
    python generate.py --rate 20            # 20 a second, for ever
    python generate.py --changes 500 --seed 7

Customers go to the topic `customers`, with the key {"id": 17} and a version in a header; products to `products`, with
keys such as SKU-0042. From time to time the connector is started again and sends its last changes once more, old ones
after newer ones, and one record in two hundred is no change.
"""

import argparse
import json
import os
import random
import time
from collections import deque
from collections.abc import Iterator
from itertools import count, cycle, islice
from typing import NamedTuple

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
NAMES = ("Anna", "Ben", "Clara", "David", "Eva", "Filip", "Greta", "Hana", "Ivan", "Jana")
CITIES = ("Praha", "Brno", "Wien", "Linz", "Passau", "Dresden")
PLANS = ("free", "plus", "family")
PRODUCTS = ("tea", "pot", "cup", "spoon", "honey", "lemon")
CUSTOMERS_MAX = 300
PRODUCTS_MAX = 100
SENT_AGAIN_MAX = 50


class Record(NamedTuple):
    topic: str
    key: str
    value: bytes | None
    version: int | None


MALFORMED = (
    Record("customers", "who?", b'{"name": "Nobody", "city": "Brno", "plan": "free"}', 1),
    Record("customers", '{"id": -1}', b"not json", 2),
    Record("customers", '{"id": -2}', b'{"name": "Cut off", "ci', 3),
    Record("customers", '{"id": -3}', b'{"name": "Nobody", "city": "Brno", "plan": "free"}', None),
    Record("products", "SKU-broken", b'{"title": "tea", "cents": "three fifty"}', None),
)
"""They have keys of their own: compaction keeps the last record of a key, whatever it is."""


def customer(random_: random.Random) -> dict[str, object]:
    return {
        "name": random_.choice(NAMES),
        "city": random_.choice(CITIES),
        "plan": random_.choice(PLANS),
    }


def product(random_: random.Random) -> dict[str, object]:
    return {"title": random_.choice(PRODUCTS), "cents": random_.randrange(100, 5000)}


def changes(random_: random.Random) -> Iterator[Record]:
    """In the order in which the database makes them, for ever."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for version in count(1):
        if random_.random() < 0.7:
            topic, key = "customers", json.dumps({"id": random_.randrange(1, CUSTOMERS_MAX)})
        else:
            topic, key = "products", f"SKU-{random_.randrange(PRODUCTS_MAX):04}"
        row = rows.get((topic, key))
        if row is not None and random_.random() < 0.15:
            del rows[topic, key]
            yield Record(topic, key, None, version)
            continue
        new = customer(random_) if topic == "customers" else product(random_)
        if row is not None:
            column = random_.choice(tuple(new))
            new = {**row, column: new[column]}  # which may be what it was
        rows[topic, key] = new
        yield Record(topic, key, json.dumps(new).encode(), version)


def records(seed: int) -> Iterator[Record]:
    """What is sent: some changes once more, in their order, and some that are none."""
    random_ = random.Random(seed)
    malformed = cycle(MALFORMED)
    last: deque[Record] = deque(maxlen=SENT_AGAIN_MAX)
    for change in changes(random_):
        yield change
        last.append(change)
        chance = random_.random()
        if chance < 0.005:
            yield from list(last)[-random_.randrange(1, SENT_AGAIN_MAX) :]
        elif chance > 0.995:
            yield next(malformed)


def headers(record: Record) -> list[tuple[str, str | bytes | None]]:
    has_version = record.topic == "customers" and record.version is not None
    return [("version", str(record.version))] if has_version else []


def main() -> None:
    parser = argparse.ArgumentParser(description="Changes of customers and products.")
    parser.add_argument("--changes", type=int, default=5_000, help="how many records; --rate: no end")
    parser.add_argument("--rate", type=float, default=0.0, help="so many a second, for ever")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, which were sent before")
    options = parser.parse_args()
    last = None if options.rate else options.skip + options.changes
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    sent = 0
    begin_s = time.time()
    try:
        for record in islice(records(options.seed), options.skip, last):
            if options.rate:
                time.sleep(max(0.0, begin_s + sent / options.rate - time.time()))
            producer.produce(
                record.topic, record.value, record.key, headers=headers(record), on_delivery=stop_on_error
            )
            producer.poll(0)
            sent += 1
    except KeyboardInterrupt:
        pass
    producer.flush()
    print(f"sent {sent} records to customers and products")


def stop_on_error(error: object, _: object) -> None:
    if error is not None:
        raise SystemExit(f"not stored: {error}")


if __name__ == "__main__":
    main()
