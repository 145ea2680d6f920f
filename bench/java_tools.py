"""Kafka's own performance tools against either broker.

ConsumerPerformance joins a consumer group, and EndToEndLatency commits offsets. While the broker under test
serves no groups, the console consumer with a partition assigned by hand takes the place of the first for both
brokers (it tells no rate, so only the broker's CPU is read), and the second is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bench.apache_kafka import ToolFailed, distribution
from bench.measure import MB, Meter, Reading, WorkNotDone
from bench.raw import RawConnection, api_versions_request
from bench.server import Server
from bench.topics import expect_messages, fresh_topic

JVM = ("-Xmx1g",)  # both compilers, unlike the short-lived tools
TIMEOUT_S = 300
JOIN_GROUP = 11
NO_OUTPUT = "org.apache.kafka.tools.consumer.NoOpMessageFormatter"


def serves_groups(server: Server) -> bool:
    with RawConnection(server.bootstrap_servers) as connection:
        answer = connection.ask(api_versions_request())
    return any(api.api_key == JOIN_GROUP for api in answer.api_keys)


def throughput(server: Server, size: int, total_bytes: int, *, with_groups: bool) -> Iterator[Reading]:
    """ProducerPerformance, and a consumer of the same messages. `with_groups`: whether both brokers serve
    them.
    """
    count = total_bytes // size
    with fresh_topic(server) as topic:
        with Meter(server) as meter:
            printed = _run(
                server,
                "producer-perf-test",
                *("--topic", topic, "--num-records", str(count), "--record-size", str(size)),
                *(
                    "--throughput",
                    "-1",
                    "--command-property",
                    "acks=all",
                    "linger.ms=5",
                    "batch.size=1000000",
                ),
            )
        expect_messages(server, topic, count)
        rate = _found(r"records sent, [\d.,]+ records/sec \(([\d.]+) MB/sec\)", printed)
        yield Reading(f"ProducerPerformance, {size} B", rate * 1.048576, "MB/s", more_is_better=True)
        yield _cpu(f"broker CPU under ProducerPerformance, {size} B", meter, total_bytes)
        if with_groups:
            yield from _consumer_performance(server, topic, size, count)
        else:
            yield from _console_consumer(server, topic, size, count)


def end_to_end_latency(server: Server, count: int, size: int) -> Iterator[Reading]:
    with fresh_topic(server) as topic:
        printed = _run(
            server,
            "e2e-latency",
            *(
                "--topic",
                topic,
                "--num-records",
                str(count),
                "--record-size",
                str(size),
                "--producer-acks",
                "all",
            ),
        )
    yield Reading("EndToEndLatency, mean", _found(r"Avg latency: ([\d.]+) ms", printed), "ms")
    for name in ("99", "99.9"):
        yield Reading(f"EndToEndLatency, p{name}", _found(rf"{re.escape(name)}th = (\d+)", printed), "ms")


def _consumer_performance(server: Server, topic: str, size: int, count: int) -> Iterator[Reading]:
    with Meter(server) as meter:
        printed = _run(
            server,
            "consumer-perf-test",
            *("--topic", topic, "--num-records", str(count), "--timeout", "60000"),
        )
    fields = printed.strip().splitlines()[-1].split(",")
    yield Reading(f"ConsumerPerformance, {size} B", float(fields[8]) * 1.048576, "MB/s", more_is_better=True)
    yield _cpu(f"broker CPU under ConsumerPerformance, {size} B", meter, count * size)


def _console_consumer(server: Server, topic: str, size: int, count: int) -> Iterator[Reading]:
    with Meter(server) as meter:
        printed = _run(
            server,
            "console-consumer",
            *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", str(count)),
            *("--timeout-ms", "60000", "--formatter", NO_OUTPUT),
        )
    if (
        _found(r"Processed a total of (\d+) messages", printed) != count
    ):  # it ends with 0 after a time-out, too
        raise WorkNotDone(f"the console consumer did not read {count} messages: {printed[-300:]}")
    yield _cpu(f"broker CPU under the Java console consumer, {size} B", meter, count * size)


def _run(server: Server, tool: str, *arguments: str) -> str:
    address = ("--bootstrap-server", server.bootstrap_servers)
    done = distribution().run(tool, *address, *arguments, jvm=JVM, timeout_s=TIMEOUT_S)
    return done.stderr + done.stdout


def _found(pattern: str, printed: str) -> float:
    found = re.findall(pattern, printed)
    if not found:
        raise ToolFailed(f"a tool printed something unexpected: {printed[-500:]}")
    return float(found[-1])


def _cpu(name: str, meter: Meter, total_bytes: int) -> Reading:
    return Reading(name, meter.cpu_s * 1000 / (total_bytes / MB), "ms/MB")
