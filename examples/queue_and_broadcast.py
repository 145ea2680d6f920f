"""A queue and a broadcast from the same topic, at the same time: only the groups differ.

    python examples/queue_and_broadcast.py queue anna           # each in a terminal of its own, until Ctrl-C
    python examples/queue_and_broadcast.py queue ben
    python examples/queue_and_broadcast.py broadcast hall
    python examples/queue_and_broadcast.py broadcast office

Guaranteed: every order goes to one member of each group. Anna and Ben are one group and share the work: a queue, with
as many busy workers as the topic has partitions. The screens in the hall and in the office are a group each, and
both show every order: a broadcast. The topic keeps the orders all the same, for whoever comes later.

A crash hurts between the work and the commit, as in at_least_once.py: the order goes to a member again. The crashed
worker's partitions go to the others of its group when the broker has missed it for `session.timeout.ms`; who leaves
with Ctrl-C says good-bye, and they go at once.
"""

import os
import signal
import sys
import time
from threading import Event

from confluent_kafka import Consumer, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")


def main(kind: str, name: str) -> None:
    stopping = Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "packers" if kind == "queue" else f"screen-{name}",
            "client.id": name,
            "auto.offset.reset": "earliest",  # where a new group begins
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
        }
    )

    def on_assign(_: Consumer, places: list[TopicPartition]) -> None:
        print(f"{name} has partitions {sorted(place.partition for place in places)}", flush=True)

    consumer.subscribe(["orders"], on_assign=on_assign)
    try:
        while not stopping.is_set():
            order = consumer.poll(1)
            if order is None:
                continue
            if order.error():
                raise SystemExit(order.error().str())
            time.sleep(0.02)  # work takes its time
            print(f"{name} got {order.value().decode()}", flush=True)
            consumer.commit(order, asynchronous=False)
    finally:
        consumer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("queue", "broadcast"):
        raise SystemExit("usage: python examples/queue_and_broadcast.py queue|broadcast NAME")
    main(*sys.argv[1:])
