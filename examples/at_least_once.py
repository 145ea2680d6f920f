"""At least once: no order is lost, but a crash can repeat some.

    python examples/at_least_once.py             # packs a parcel for each order, until Ctrl-C

Guaranteed: the offsets are committed after the work, so what was not finished is given out again.

A crash hurts before the commit: the work is done, but the group does not know, and the batch is done anew. To see
it, end the program with kill -9 while it prints, and start it again: some numbers are there twice, none is missing.
Right for most work, above all where twice does no harm: an upsert, a file written under the order's number.
"""

import os
import signal
import time
from threading import Event

from confluent_kafka import Consumer, Message

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
BATCH = 10  # so many a crash can repeat


def main() -> None:
    stopping = Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())  # Ctrl-C ends it after the batch
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "parcels",
            "group.instance.id": "parcels-1",  # the same worker when it is started again: it need not wait
            "auto.offset.reset": "earliest",  # where a new group begins
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        while not stopping.is_set():
            orders = next_batch(consumer)
            for order in orders:
                pack_parcel(order)  # a crash up to the commit repeats the batch
            if orders:
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def next_batch(consumer: Consumer) -> list[Message]:
    messages: list[Message] = consumer.consume(BATCH, timeout=1)
    for message in messages:
        if message.error():
            raise SystemExit(message.error().str())
    return messages


def pack_parcel(order: Message) -> None:
    time.sleep(0.02)  # work takes its time
    print(f"parcel for {order.value().decode()}", flush=True)


if __name__ == "__main__":
    main()
