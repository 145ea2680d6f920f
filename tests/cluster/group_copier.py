"""A consume-transform-produce worker in a group: `python group_copier.py BOOTSTRAP IN OUT GROUP ID SEED`.

Several share the partitions of one topic; each copies what it is given to the partition of the same number of another,
in transactions with the group's offsets (KIP-447: a member of an old generation commits nothing). A transaction that
cannot be committed is aborted, and what it had read is read again. SIGTERM ends it between two transactions; whatever
cannot be mended, or takes too long, ends the process: its successor begins from the committed offsets.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

BATCH_MAX = 100
ABORTED_SHARE = 0.1
CALL_S = 20
ROUND_S = 30
"""Of one transaction; the brokers have aborted it by then. Where the group coordinator's broker has left the metadata,
librdkafka 2.16 waits for its connection for ever, whatever time-out the call has (its issues 5511 and 5456)."""
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "log_level": 0,
}


class GroupCopier:
    def __init__(
        self, bootstrap: str, source: str, target: str, group: str, transactional_id: str, seed: int
    ) -> None:
        self._chance = random.Random(seed)
        self._target = target
        self._must_end = False
        base = {"bootstrap.servers": bootstrap, **QUICK}
        self._consumer = Consumer(
            {
                **base,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 6000,
            }
        )
        self._producer = Producer(
            {**base, "transactional.id": transactional_id, "transaction.timeout.ms": 10_000, "linger.ms": 1}
        )
        self._producer.init_transactions(CALL_S)
        self._consumer.subscribe([source])

    def end(self, *_: object) -> None:
        self._must_end = True

    def run(self) -> None:
        while not self._must_end:
            faulthandler.dump_traceback_later(ROUND_S, exit=True)
            messages = self._consumer.consume(self._chance.randint(1, BATCH_MAX), 0.2)
            good = [message for message in messages if message.error() is None]
            if good:
                self._copy(good)
        faulthandler.dump_traceback_later(ROUND_S, exit=True)
        self._consumer.close()

    def _copy(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        ends: dict[tuple[str, int], int] = {}
        for message in messages:
            topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            self._producer.produce(self._target, message.value(), partition=partition)
            ends[topic, partition] = offset + 1
        try:
            offsets = [TopicPartition(*place, offset) for place, offset in ends.items()]
            metadata = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, metadata, CALL_S)
            if self._chance.random() < ABORTED_SHARE:
                self._abort()
            else:
                self._producer.commit_transaction(CALL_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _abort(self) -> None:
        """What was read goes back to where the group has committed."""
        self._producer.abort_transaction(CALL_S)
        for place in self._consumer.committed(self._consumer.assignment(), CALL_S):
            place.offset = max(place.offset, 0)
            self._consumer.seek(place)


if __name__ == "__main__":
    try:
        copier = GroupCopier(*sys.argv[1:6], int(sys.argv[6]))
        signal.signal(signal.SIGTERM, copier.end)
        copier.run()
    except KafkaException as error:
        print(error, file=sys.stderr)
        os._exit(1)
