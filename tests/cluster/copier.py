"""A consume-transform-produce worker, to be killed: `python copier.py BOOTSTRAP IN OUT GROUP ID SEED`.

Copies messages from one topic to another, each transaction with the offsets of what it read. Some transactions are
aborted on purpose. Whatever goes wrong, or takes too long, ends the process: its successor begins from the committed
offsets.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BATCH_MAX = 20
ABORTED_SHARE = 0.2
ROUND_S = 30
"""Of one transaction: `send_offsets_to_transaction` of librdkafka 2.16 may never return (its issues 5511 and 5456)."""
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


def copy(bootstrap: str, source: str, target: str, group: str, transactional_id: str, seed: int) -> None:
    chance = random.Random(seed)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **QUICK,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 1,
            **QUICK,
        }
    )
    producer.init_transactions(20)
    partitions = consumer.list_topics(source, 10).topics[source].partitions
    begin = consumer.committed([TopicPartition(source, index) for index in partitions], 10)
    for place in begin:
        place.offset = max(place.offset, 0)
    consumer.assign(begin)
    positions = {place.partition: place.offset for place in begin}
    while True:
        faulthandler.dump_traceback_later(ROUND_S, exit=True)
        messages = [m for m in consumer.consume(chance.randint(1, BATCH_MAX), 0.5) if m.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        read = dict(positions)
        for message in messages:
            producer.produce(target, message.value(), message.key(), partition=message.partition() or 0)
            read[message.partition() or 0] = (message.offset() or 0) + 1
        offsets = [TopicPartition(source, index, offset) for index, offset in read.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 20)
        if chance.random() < ABORTED_SHARE:
            producer.abort_transaction(20)
            for index, offset in positions.items():
                consumer.seek(TopicPartition(source, index, offset))
        else:
            producer.commit_transaction(20)
            positions = read


if __name__ == "__main__":
    try:
        copy(*sys.argv[1:6], int(sys.argv[6]))
    except KafkaException as error:
        print(error, file=sys.stderr)
        os._exit(1)
