"""At most once: no order is handled twice, but a crash can lose some.

    python examples/at_most_once.py              # sends a coupon for each order, until Ctrl-C

Guaranteed: the offsets are committed before the work, so what was begun is never given out again.

A crash hurts after the commit: the group is past the whole batch, and nobody will ever read the rest of it. To see
it, end the program with kill -9 while it prints, and start it again: some numbers are missing, none is there twice.
Right where twice is worse than never: coupons, alarms, readings that are soon outdated.
"""

import os
import signal
import time
from threading import Event

from confluent_kafka import Consumer, Message

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
BATCH = 10  # so many a crash can lose


def main() -> None:
    stopping = Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())  # Ctrl-C ends it after the batch
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "coupons",
            "group.instance.id": "coupons-1",  # the same worker when it is started again: it need not wait
            "auto.offset.reset": "earliest",  # where a new group begins
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    try:
        while not stopping.is_set():
            orders = next_batch(consumer)
            if orders:
                consumer.commit(asynchronous=False)
            for order in orders:
                send_coupon(order)  # a crash from here on loses the rest of the batch
    finally:
        consumer.close()


def next_batch(consumer: Consumer) -> list[Message]:
    messages: list[Message] = consumer.consume(BATCH, timeout=1)
    for message in messages:
        if message.error():
            raise SystemExit(message.error().str())
    return messages


def send_coupon(order: Message) -> None:
    time.sleep(0.02)  # work takes its time
    print(f"coupon for {order.value().decode()}", flush=True)


if __name__ == "__main__":
    main()
