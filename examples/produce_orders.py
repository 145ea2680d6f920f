"""Orders for the other examples: each stored once, those of one customer in order.

    python examples/produce_orders.py            # a thousand
    python examples/produce_orders.py 20         # or as many as you say

Guaranteed: the broker stores every order that is counted as stored here, once. An idempotent producer numbers
what it sends, so a request that is sent again, because its answer was lost, is recognized. One customer is one
key, one key is one partition, and a partition keeps its order.

A crash of the broker: the producer waits until it is back and goes on.
A crash of this program hurts between the sending and the answer: an order that was not yet counted may be stored
or not, and the program that is started again cannot know. It begins with order 1.
"""

import os
import signal
import sys

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
ITEMS = ("apples", "pears", "plums")


def main(count: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    stored = 0

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        nonlocal stored
        if error is not None:
            raise SystemExit(f"not stored: {error.str()}")
        stored += 1
        if stored % 100 == 0 or stored == count:
            print(f"stored {stored} orders", flush=True)

    for number in range(1, count + 1):
        order = f"order {number}: {1 + number % 5} {ITEMS[number % 3]}"
        producer.produce("orders", order, key=f"customer-{number % 10}", on_delivery=on_delivery)
        producer.poll(0)  # lets on_delivery run for what was answered meanwhile
    producer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
