"""Workloads of clusters: replicated writes, brokers that are killed and come back, thousands of partitions.

A fail-over is timed with a client of our own that asks every living broker in turn, each few milliseconds: what client
libraries add by their retries and back-offs is not the cluster's.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from bench.clusters import Cluster
from bench.librdkafka import paced_times, produce_all, producer, synchronous_times
from bench.measure import MB, Meter, Reading, WorkNotDone, latency_readings
from bench.raw import RawConnection, produce_request
from bench.raw_load import batch_of

REPLICAS = 3
PATIENCE_S = 180.0
PROBE_PAUSE_S = 0.003
LOOK_PAUSE_S = 0.02
SETTLE_S = 1.0
IDLE_S = 10.0
TOPIC_PARTITIONS_MAX = 1000
"""Of one topic where there are thousands of partitions."""
WRITTEN_TO_MAX = 200
"""Of those that lose their leader, over all topics: a write to each is waited for."""
BESIDE_RATE = 200
BESIDE_S_MIN = 2.0
"""Writes beside something else: how many a second, and for how long at least."""
NOTE = """\
Three brokers on this machine, three replicas, min.insync.replicas=2, acks=all; CPU and memory are those of all brokers
together, unless it says otherwise. A broker is killed with SIGKILL; the time is that to the first write that any of the
others acknowledges with acks=all, found by asking them in turn every few milliseconds.
"""
MANY_NOTE = """\
Three replicas, min.insync.replicas=2; CPU and memory are those of all brokers together. A broker is killed with
SIGKILL. *Writes to all* is the time until each of up to 200 of the partitions that it led, the first and the last among
them, has acknowledged a write with acks=all; *led by others*, until every broker says so of all partitions.
"""
_numbers = itertools.count(1)


@contextlib.contextmanager
def topics(cluster: Cluster, *new: NewTopic) -> Iterator[None]:
    """Topics that all brokers know, with every replica in sync; deleted at the end."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for topic in new:
        admin.create_topics([topic], request_timeout=PATIENCE_S)[topic.topic].result(PATIENCE_S)
    until_all(cluster, lambda found: {one.topic for one in new} <= _whole_topics(found))
    try:
        yield
    finally:
        for topic in new:
            admin.delete_topics([topic.topic])[topic.topic].result(PATIENCE_S)


def _whole_topics(found: Any) -> set[str]:
    return {
        topic.name
        for topic in found.topics
        if all(len(partition.isr_nodes) == REPLICAS for partition in topic.partitions)
    }


def new_topic(partitions: int = 1, leader: int | None = None) -> NewTopic:
    """`leader`: the broker that leads its only partition, of three brokers."""
    name = f"replicated-{next(_numbers)}"
    if leader is None:
        return NewTopic(name, partitions, REPLICAS)
    others = [number for number in range(1, REPLICAS + 1) if number != leader]
    return NewTopic(name, 1, replica_assignment=[[leader, *others]])


def until_all(cluster: Cluster, is_so: Callable[[Any], bool]) -> float:
    """Wait until every living broker says so of the cluster; how long that took."""
    started = time.perf_counter()
    while True:
        with contextlib.suppress(OSError):  # a broker that is about to end, or just began
            if all(is_so(cluster.describe(node)) for node in cluster.living.values()):
                return time.perf_counter() - started
        if time.perf_counter() - started > PATIENCE_S:
            raise WorkNotDone(f"{cluster.name} did not come to rest within {PATIENCE_S:g} s")
        time.sleep(LOOK_PAUSE_S)


def throughput(cluster: Cluster, size: int, total_bytes: int) -> Iterator[Reading]:
    topic = new_topic()
    client, value = producer(cluster), os.urandom(size)
    with topics(cluster, topic):
        produce_all(client, topic.topic, 1, 100, value)
        with Meter(cluster) as meter:
            produce_all(client, topic.topic, 1, total_bytes // size, value)
    total_mb = total_bytes / MB
    yield Reading(f"replicated produce, {size} B", total_mb / meter.wall_s, "MB/s", more_is_better=True)
    yield Reading(f"CPU of all brokers, replicated produce, {size} B", meter.cpu_s * 1000 / total_mb, "ms/MB")


def latency(cluster: Cluster, duration_s: float, size: int = 1000) -> Iterator[Reading]:
    topic = new_topic()
    count, rate = int(500 * duration_s), 500
    client, value = producer(cluster, linger_ms=0), os.urandom(size)
    with topics(cluster, topic):
        produce_all(client, topic.topic, 1, 50, value)
        with Meter(cluster) as meter:
            one_by_one = synchronous_times(client, topic.topic, count, value)
        yield from latency_readings("replicated synchronous produce", one_by_one)
        yield Reading("CPU of all brokers per synchronous message", meter.cpu_s * 1e6 / count, "us")
        paced = paced_times(client, topic.topic, rate, int(rate * duration_s), value)
        yield from latency_readings(f"replicated paced produce, {rate}/s", paced)


def fail_over(cluster: Cluster, *, with_controller: bool) -> Iterator[Reading]:
    """Kill a leader until another acknowledges a write, then start the killed one until it is in all sets."""
    controller = cluster.controller()
    leader = controller if with_controller else next(one for one in cluster.living if one != controller)
    topic = new_topic(leader=leader)
    who = "the leader that is the controller" if with_controller else "the leader"
    with topics(cluster, topic):
        time.sleep(SETTLE_S)
        yield Reading(f"kill -9 of {who} to the next write", _kill(cluster, leader, topic.topic), "s")
        time.sleep(SETTLE_S)
        yield Reading("killed broker started again to all in-sync sets", _start_again(cluster, leader), "s")


def _kill(cluster: Cluster, leader: int, topic: str) -> float:
    return _kill_until_written(cluster, leader, [(topic, 0)])


def _kill_until_written(cluster: Cluster, leader: int, places: Sequence[tuple[str, int]]) -> float:
    """Kill a broker, and ask the others in turn until a write to each of these partitions is acknowledged."""
    writes = {place: produce_request(*place, batch_of(1), acks=-1) for place in places}
    others = [node for number, node in cluster.living.items() if number != leader]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(RawConnection(node.bootstrap_servers)) for node in others]
        for connection in connections:
            connection.ask(writes[places[0]])
        started = time.perf_counter()
        cluster.nodes[leader].kill()
        while time.perf_counter() - started < PATIENCE_S:
            for place in list(writes):
                if any(_is_written(connection, writes[place]) for connection in connections):
                    del writes[place]
            if not writes:
                return time.perf_counter() - started
            time.sleep(PROBE_PAUSE_S)
    raise WorkNotDone(
        f"{len(writes)} writes were not acknowledged within {PATIENCE_S:g} s after a leader's end"
    )


def _is_written(connection: RawConnection, write: Any) -> bool:
    return not connection.ask(write).responses[0].partition_responses[0].error_code


def _start_again(cluster: Cluster, number: int) -> float:
    started = time.perf_counter()
    cluster.nodes[number].launch()
    cluster.wait_joined(cluster.nodes[number])
    until_all(cluster, lambda found: len(_whole_topics(found)) == len(found.topics))
    return time.perf_counter() - started


def catching_up(cluster: Cluster, total_bytes: int) -> Iterator[Reading]:
    """A follower that was away while much was written; and what a writer beside it, to the same leader, feels."""
    controller = cluster.controller()
    away = next(number for number in cluster.living if number != controller)
    topic, beside = new_topic(leader=controller), new_topic(leader=controller)
    with topics(cluster, topic, beside):
        cluster.nodes[away].kill()
        until_all(cluster, lambda found: len(found.brokers) == REPLICAS - 1)
        produce_all(producer(cluster), topic.topic, 1, total_bytes // 1000, os.urandom(1000))
        with _writing(cluster, beside.topic, "with a follower away") as undisturbed:
            time.sleep(BESIDE_S_MIN)
        with _writing(cluster, beside.topic, "beside a catch-up") as disturbed, Meter(cluster) as meter:
            taken_s = _start_again(cluster, away)
    what = f"a killed follower, {total_bytes / MB / 1000:g} GB behind"
    yield Reading(f"{what}, to all in-sync sets", taken_s, "s")
    yield Reading(f"{what}, CPU of all brokers", meter.cpu_s * 1000 / (total_bytes / MB), "ms/MB")
    yield from undisturbed
    yield from disturbed


@contextlib.contextmanager
def _writing(cluster: Cluster, topic: str, what: str) -> Iterator[list[Reading]]:
    """A steady stream of writes with acks=all while the body runs; how long they took is given at its end."""
    readings: list[Reading] = []
    client, value = producer(cluster, linger_ms=0), os.urandom(1000)
    produce_all(client, topic, 1, 50, value)
    times: list[float] = []
    problems: list[Exception] = []
    ended = threading.Event()

    def write() -> None:
        started = time.perf_counter()
        try:
            while not ended.is_set() or time.perf_counter() - started < BESIDE_S_MIN:
                times.extend(paced_times(client, topic, BESIDE_RATE, BESIDE_RATE // 2, value))
        except WorkNotDone as problem:
            problems.append(problem)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield readings
    finally:
        ended.set()
        thread.join(PATIENCE_S)
    if problems or not times:
        raise WorkNotDone(f"writes {what} were not acknowledged: {problems}")
    readings += latency_readings(f"replicated produce {what}, {BESIDE_RATE}/s", times)


def many_partitions(cluster: Cluster, count: int) -> Iterator[Reading]:
    """Made, left alone, and led by others when a broker dies. On a cluster of its own, which is running."""
    what = f"{count:,} partitions on {len(cluster.nodes)} brokers"
    time.sleep(SETTLE_S)
    before = cluster.usage()
    size = min(count, TOPIC_PARTITIONS_MAX)
    made = [new_topic(size) for _ in range(count // size)]
    started = time.perf_counter()
    with topics(cluster, *made):
        yield Reading(f"{what}, made", time.perf_counter() - started, "s")
        time.sleep(3 * SETTLE_S)
        grown = cluster.usage().rss_bytes - before.rss_bytes
        yield Reading(f"{what}, memory per 1,000", grown / 2**20 / (count / 1000), "MiB")
        with Meter(cluster) as meter:
            time.sleep(IDLE_S)
        idle_ms = meter.cpu_s * 1000 / meter.wall_s
        yield Reading(f"{what}, idle CPU per 1,000", idle_ms / (count / 1000), "ms/s")
        controller = cluster.controller()
        killed = next(number for number in cluster.living if number != controller)
        led = _led_by(cluster.describe(), killed)
        started = time.perf_counter()
        some = [*led[:: max(1, len(led) // WRITTEN_TO_MAX)], led[-1]]
        yield Reading(f"{what}, writes to all after a kill", _kill_until_written(cluster, killed, some), "s")
        until_all(cluster, lambda found: _leads_nothing(found, killed))
        yield Reading(f"{what}, led by others after a kill", time.perf_counter() - started, "s")
        yield Reading(f"{what}, killed broker back in all sets", _start_again(cluster, killed), "s")


def _led_by(found: Any, number: int) -> list[tuple[str, int]]:
    return [
        (topic.name, partition.partition_index)
        for topic in found.topics
        for partition in topic.partitions
        if partition.leader_id == number
    ]


def _leads_nothing(found: Any, killed: int) -> bool:
    return all(
        partition.leader_id not in (killed, -1) for topic in found.topics for partition in topic.partitions
    )


def idle(cluster: Cluster) -> Iterator[Reading]:
    """Right after the start, with next to nothing in it."""
    time.sleep(SETTLE_S)
    with Meter(cluster) as meter:
        time.sleep(IDLE_S)
    yield Reading("idle CPU of three brokers", meter.cpu_s * 1000 / meter.wall_s, "ms/s")
    yield Reading("memory of a broker, idle", cluster.usage().rss_bytes / 2**20 / len(cluster.nodes), "MiB")
