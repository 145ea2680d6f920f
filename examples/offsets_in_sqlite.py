"""Offsets kept outside: results and offsets in one SQLite transaction, so every order counts exactly once.

    python examples/offsets_in_sqlite.py                # adds up what was sold in sold.sqlite, until Ctrl-C
    python examples/offsets_in_sqlite.py other.sqlite   # or in another file

Guaranteed: `sold` is the sum over all orders before `next_offsets`, at every moment, in the file and in every backup of
it. There is no group and no commit to the broker: the consumer is told where to begin, from the file.

A crash hurts nowhere. Before SQLite's commit: the batch is rolled back, totals and offsets, and read again. After it:
both are there. A second copy that is started by mistake does no harm either: whoever finds an offset moved by the other
one rolls back and ends. It works the same with any database that has transactions.
"""

import os
import signal
import sqlite3
import sys
import time
from threading import Event

from confluent_kafka import Consumer, Message, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
BATCH = 10
SCHEMA = """
    CREATE TABLE IF NOT EXISTS sold (item TEXT PRIMARY KEY, pieces INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS next_offsets (partition INTEGER PRIMARY KEY, next_offset INTEGER NOT NULL);
"""
ADD = "INSERT INTO sold VALUES (?, ?) ON CONFLICT (item) DO UPDATE SET pieces = pieces + excluded.pieces"
MOVE = "UPDATE next_offsets SET next_offset = ? WHERE partition = ? AND next_offset <= ?"


def main(file: str) -> None:
    stopping = Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())  # Ctrl-C ends it after the batch
    database = sqlite3.connect(file, timeout=60)
    database.executescript(SCHEMA)
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "none",  # the client wants a name, but with assign() no group is joined
            "auto.offset.reset": "earliest",  # offset 0 may be too old to be there
            "enable.auto.commit": False,
        }
    )
    consumer.assign(places_in(database, consumer))
    try:
        while not stopping.is_set():
            orders = next_batch(consumer)
            with database:  # one transaction: all of the batch or nothing
                for order in orders:
                    book(database, order)
            if orders:
                print(f"booked {len(orders)} orders", flush=True)
    finally:
        consumer.close()
    for item, pieces in database.execute("SELECT item, pieces FROM sold ORDER BY item"):
        print(f"{pieces} {item} sold")


def places_in(database: sqlite3.Connection, consumer: Consumer) -> list[TopicPartition]:
    partitions = consumer.list_topics("orders", timeout=10).topics["orders"].partitions
    if not partitions:
        raise SystemExit("there is no topic orders")
    with database:
        database.executemany("INSERT OR IGNORE INTO next_offsets VALUES (?, 0)", ((p,) for p in partitions))
    places = dict(database.execute("SELECT partition, next_offset FROM next_offsets"))
    print(f"begins at {places}", flush=True)
    return [TopicPartition("orders", partition, next_offset) for partition, next_offset in places.items()]


def next_batch(consumer: Consumer) -> list[Message]:
    messages: list[Message] = consumer.consume(BATCH, timeout=1)
    for message in messages:
        if message.error():
            raise SystemExit(message.error().str())
    return messages


def book(database: sqlite3.Connection, order: Message) -> None:
    time.sleep(0.02)  # work takes its time
    *_, pieces, item = order.value().decode().split()
    database.execute(ADD, (item, int(pieces)))
    moved = database.execute(MOVE, (order.offset() + 1, order.partition(), order.offset()))
    if moved.rowcount != 1:
        raise SystemExit("booked before: by another copy of this program, or from another broker")
    print(f"booking {order.value().decode()}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "sold.sqlite")
