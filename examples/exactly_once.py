"""Exactly once, from topic to topic: for each order one invoice, whatever crashes.

    python examples/exactly_once.py              # turns orders into invoices, until Ctrl-C
    moldau message consume invoices              # in another terminal: what is committed

Guaranteed: invoices and the offsets of their orders are committed in one transaction, so both are there or neither.
A reader of committed messages sees every invoice once; one of uncommitted messages may see more. That is the reader's
choice: `isolation.level` is `read_committed` by default in librdkafka, not in Java's client, kafka-python and aiokafka.

A crash hurts nowhere. Before the commit: the worker that is started again under the same `transactional.id` ends the
open transaction and begins with its first order. After it: with the order that comes next. A broker that crashes is
waited for, for half a minute. Any error ends the program, and so does a call that never returns, since a crash does no
harm: have it started again.
What is not a message has no part in it: an e-mail that is sent within the transaction may go out twice.
"""

import faulthandler
import os
import signal
import time
from threading import Event

from confluent_kafka import Consumer, Message, Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
WORKER = "invoices-1"  # each worker has a name of its own: of two with the same, the older one is fenced off
BATCH = 10
TIMEOUT_S = 30
BATCH_S = 90  # librdkafka 2.16 may wait for ever for a restarted coordinator (its issues 5511 and 5456)


def main() -> None:
    stopping = Event()
    signal.signal(signal.SIGINT, lambda *_: stopping.set())  # Ctrl-C ends it after the batch
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "transactional.id": WORKER,
            # Where there is only one broker, this is enough for it not to wait for ever:
            "metadata.recovery.strategy": "none",
        }
    )
    producer.init_transactions(TIMEOUT_S)  # ends what a worker of this name has left open
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": "invoices",
            "group.instance.id": WORKER,  # the same worker when it is started again: it need not wait
            "auto.offset.reset": "earliest",  # where a new group begins
            "enable.auto.commit": False,  # the transaction commits
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe(["orders"])
    try:
        while not stopping.is_set():
            faulthandler.dump_traceback_later(BATCH_S, exit=True)  # unless the next batch begins before
            orders = next_batch(consumer)
            if orders:
                producer.begin_transaction()
                for order in orders:
                    producer.produce("invoices", invoice_for(order), key=order.key())
                read = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), TIMEOUT_S)
                producer.commit_transaction(TIMEOUT_S)
                print(f"committed {len(orders)} invoices", flush=True)
    finally:
        consumer.close()


def next_batch(consumer: Consumer) -> list[Message]:
    messages: list[Message] = consumer.consume(BATCH, timeout=1)
    for message in messages:
        if message.error():
            raise SystemExit(message.error().str())
    return messages


def invoice_for(order: Message) -> str:
    time.sleep(0.02)  # work takes its time
    invoice = f"invoice for {order.value().decode()}"
    print(invoice, flush=True)
    return invoice


if __name__ == "__main__":
    main()
