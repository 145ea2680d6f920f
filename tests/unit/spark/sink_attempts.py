"""Attempts of exactly-once tasks as Spark would start them, without Spark; and what readers of the topic see.

As a program it is one attempt in a process of its own: `sink_attempts.py SERVERS VERSION FIRST LAST [STEP]` kills
itself with -9 when it has reached that step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, KafkaError, TopicPartition

from moldau.spark.topic_sink.columns import Rows
from moldau.spark.topic_sink.exactly_once import ExactlyOnceTask, TaskIdentity, Written
from moldau.spark.topic_sink.options import SinkOptions

TOPIC = "out"
STEPS = (
    "begin",
    "marker read",
    "fenced the others",
    "marker read again",
    "rows sent",
    "rows delivered",
    "marked",
    "committed",
)


def sink_options(servers: str, **more: str) -> SinkOptions:
    options = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "exactlyOnce": "true"}
    return SinkOptions.of(
        options | {name.replace("_", "."): value for name, value in more.items()}, streaming=True
    )


def values(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


def batches(rows: list[bytes], size: int = 10) -> Iterator[Rows]:
    for start in range(0, len(rows), size):
        yield Rows(TOPIC, None, list(rows[start : start + size]), None, None)


def attempt(
    options: SinkOptions,
    version: int,
    rows: list[bytes],
    reached: Callable[[str], None] = lambda step: None,
    *,
    application: str = "query",
    partition: int = 0,
) -> Written:
    return ExactlyOnceTask(options, TaskIdentity(application, version, partition), reached).write(
        batches(rows)
    )


def committed(servers: str, topic: str = TOPIC) -> list[bytes]:
    """What a reader with read_committed finds, up to where the topic ends for it now."""
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    places = [
        TopicPartition(topic, index, 0) for index in reader.list_topics(topic, 30).topics[topic].partitions
    ]
    reader.assign(places)
    found, ended = [], 0
    while ended < len(places):
        message = reader.poll(30)
        assert message is not None, "the topic's end was not reached within 30 s"
        if message.error() is None:
            found.append(message.value())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended += 1
    reader.close()
    return found


def in_a_process(servers: str, version: int, first: int, last: int, step: str = "") -> int:
    """The attempt's exit code: -9 where it was killed."""
    command = [sys.executable, __file__, servers, str(version), str(first), str(last), step]
    return subprocess.run(command, timeout=120, check=False).returncode


def main() -> None:
    servers, version, first, last, step = sys.argv[1:]

    def reached(now: str) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGKILL)

    attempt(sink_options(servers), int(version), values(int(first), int(last)), reached)


if __name__ == "__main__":
    main()
