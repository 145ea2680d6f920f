"""What a client finds in a topic that reads what is committed."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

PASSING = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)


def committed(servers: str, topic: str) -> list[bytes]:
    """Its values, up to where it ends for such a reader now."""
    return [message.value() for message in committed_messages(servers, topic)]


def committed_messages(servers: str, topic: str) -> list[Message]:
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    partitions = reader.list_topics(topic, 30).topics[topic].partitions
    reader.assign([TopicPartition(topic, index, 0) for index in partitions])
    found, ended = [], set()
    while len(ended) < len(partitions):
        message = reader.poll(60)
        assert message is not None, "the topic's end was not reached within 60 s"
        if message.error() is None:
            found.append(message)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            assert message.error().retriable() or message.error().code() in PASSING, message.error()
    reader.close()
    return found
