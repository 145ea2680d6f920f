"""Topics for one measurement each: made, found ready, deleted."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient, NewTopic

from bench.measure import WorkNotDone
from bench.raw import RawConnection, fetch_request
from bench.server import Server

READY_TIMEOUT_S = 30
_numbers = itertools.count(1)


@contextlib.contextmanager
def fresh_topic(server: Server, partitions: int = 1, **configs: str) -> Iterator[str]:
    name = f"bench-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers, "log_level": 0})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(READY_TIMEOUT_S)
    with RawConnection(server.bootstrap_servers) as connection:
        for partition in range(partitions):
            _wait_until_led(connection, name, partition)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(READY_TIMEOUT_S)


def expect_messages(server: Server, topic: str, count: int) -> None:
    """Raise `WorkNotDone` unless the first partition holds so many: a broker that refuses them all is fast, too."""
    with RawConnection(server.bootstrap_servers) as connection:
        answer = connection.ask(fetch_request(topic, 0, 0, bytes_max=1, wait_ms=0, bytes_min=0))
    (found,) = answer.responses[0].partitions
    if found.error_code or found.high_watermark != count:
        raise WorkNotDone(
            f"{found.high_watermark} messages are stored, {count} were sent ({found.error_code!r})"
        )


def _wait_until_led(connection: RawConnection, topic: str, partition: int) -> None:
    """Kafka answers CreateTopics before its broker leads the partitions."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    request = fetch_request(topic, partition, 0, wait_ms=0, bytes_min=0)
    while connection.ask(request).responses[0].partitions[0].error_code:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} [{partition}] has no leader")
        time.sleep(0.02)
