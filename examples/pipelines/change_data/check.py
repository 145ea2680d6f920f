"""Compare the tables with a computation in plain Python over the same topics.

    python check.py            # after `moldau pipeline run --once`; exit code 1 where something differs

Of a topic that has been compacted since, only the rows that are valid now can be computed: the table of the history
knows more than the topic.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
STORAGE = Path(__file__).parent / "storage"

Row = tuple[object, ...]


class Change(NamedTuple):
    key: int | str
    sequence: int
    row: Row | None
    """The columns but the key; None for a deletion."""


class Interval(NamedTuple):
    key: int | str
    row: Row
    start: int
    end: int | None


def read_topic(topic: str) -> tuple[list[Message], bool]:
    """Every record that is there now, and whether these are all that ever were."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "check", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Message] = []
    ends: dict[int, int] = {}
    while len(ends) < len(partitions):
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{topic}: no answer")
        if message.error() is not None:
            ends[message.partition()] = message.offset()
        else:
            found.append(message)
    consumer.close()
    return found, len(found) == sum(ends.values())


def customer_of(message: Message) -> Change | str:
    """A change, or what is wrong with it."""
    value = message.value()
    try:
        row = None if value is None else json.loads(value)
    except ValueError:
        return "not the JSON of a customer"
    try:
        id_ = json.loads(message.key())["id"]
    except ValueError:
        return "no id in the key"
    version = dict(message.headers() or ()).get("version")
    if version is None:
        return "no version"
    return Change(id_, int(version), None if row is None else (row["name"], row["city"], row["plan"]))


def product_of(message: Message) -> Change | str:
    value = message.value()
    row = None if value is None else json.loads(value)
    if row is not None and not isinstance(row["cents"], int):
        return "not the JSON of a product"
    sku = message.key().decode()
    return Change(sku, message.offset(), None if row is None else (row["title"], row["cents"]))


def latest(changes: Iterable[Change]) -> dict[int | str, Row]:
    """The rows that are there now."""
    last: dict[int | str, Change] = {}
    for change in changes:
        if change.key not in last or last[change.key].sequence < change.sequence:
            last[change.key] = change
    return {key: change.row for key, change in last.items() if change.row is not None}


def history(changes: Iterable[Change]) -> Iterator[Interval]:
    """Each row, from its change until the next one that is not the same; each change once."""
    by_key = defaultdict(dict)
    for change in changes:
        by_key[change.key][change.sequence] = change.row
    for key, rows in by_key.items():
        open_: Interval | None = None
        for sequence, row in sorted(rows.items()):
            if open_ is not None and open_.row == row:
                continue
            if open_ is not None:
                yield open_._replace(end=sequence)
            open_ = None if row is None else Interval(key, row, sequence, None)
        if open_ is not None:
            yield open_


def sorted_out(
    messages: Iterable[Message], parse: Any
) -> tuple[list[Change], list[tuple[str, int, int, str]]]:
    """The changes, and what is none: topic, partition, offset, reason."""
    changes, rejected = [], []
    for message in messages:
        found = parse(message)
        if isinstance(found, Change):
            changes.append(found)
        else:
            rejected.append((message.topic(), message.partition(), message.offset(), found))
    return changes, rejected


def table(name: str) -> list[dict[str, Any]]:
    import pyarrow.dataset
    from deltalake import DeltaTable

    return pyarrow.dataset.dataset(DeltaTable(STORAGE / name).file_uris()).to_table().to_pylist()


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def compare(self, what: str, found: object, expected: object) -> None:
        same = found == expected
        self.is_right &= same
        size = len(expected) if hasattr(expected, "__len__") else expected
        print(f"{what}: {size}, {'as expected' if same else 'WRONG'}")


def main() -> int:
    report = Report()
    customer_records, customers_whole = read_topic("customers")
    product_records, products_whole = read_topic("products")
    customers, rejected = sorted_out(customer_records, customer_of)
    products, more_rejected = sorted_out(product_records, product_of)
    now = latest(customers)
    rows = [(row["id"], (row["name"], row["city"], row["plan"])) for row in table("customers")]
    report.compare("customers", Counter(rows), Counter(now.items()))
    rows = [(row["sku"], (row["title"], row["cents"])) for row in table("products")]
    report.compare("products", Counter(rows), Counter(latest(products).items()))
    found = Counter(
        Interval(row["id"], (row["name"], row["city"], row["plan"]), row["__START_AT"], row["__END_AT"])
        for row in table("customer_history")
    )
    if customers_whole:
        report.compare("history", found, Counter(history(customers)))
    valid = Counter((one.key, one.row) for one in found.elements() if one.end is None)
    report.compare("history, what is valid now", valid, Counter(now.items()))
    if customers_whole and products_whole:
        places = [(row["topic"], row["partition"], row["offset"], row["reason"]) for row in table("rejected")]
        report.compare("rejected", sorted(places), sorted(rejected + more_rejected))
    cities = Counter(row[1] for row in now.values())
    per_city = {row["city"]: row["customers"] for row in table("customers_per_city")}
    report.compare("customers per city", per_city, dict(cities))
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
