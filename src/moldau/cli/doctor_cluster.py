"""Whether a cluster is well: brokers answer where they say they are, and every partition is led and whole."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

from moldau.cli.client import Connection, reason_of
from moldau.cli.errors import CliError
from moldau.cli.findings import Finding, ok, problem, warning
from moldau.cli.options import Target
from moldau.cli.output import count_of, human_ms

CONNECT_TIMEOUT_S = 3.0
NAMED_MAX = 5


def examine_cluster(target: Target) -> Iterator[Finding]:
    try:
        connection = Connection(target)
        metadata = connection.metadata()
        start = time.perf_counter()
        description = connection.result(connection.admin.describe_cluster(request_timeout=target.timeout_s))
        elapsed_ms = (time.perf_counter() - start) * 1000
    except CliError as error:
        yield problem("cluster", error.message, error.hint)
        return
    yield ok("cluster", f"{description.cluster_id} at {target.bootstrap}, answers in {human_ms(elapsed_ms)}")
    for node in sorted(description.nodes, key=lambda node: node.id):
        yield broker(node)
    if description.controller is None:
        yield problem(
            "controller", "none", "Topics cannot be changed until a broker takes over; see the brokers' logs."
        )
    else:
        yield ok("controller", f"broker {description.controller.id}")
    yield from partitions(metadata.topics)


def broker(node: Any) -> Finding:
    subject, address = f"broker {node.id}", f"{node.host}:{node.port}"
    try:
        with socket.create_connection((node.host, node.port), timeout=CONNECT_TIMEOUT_S):
            return ok(subject, address)
    except OSError as error:
        advice = "Set advertised.listeners to an address that clients can reach."
        return problem(
            subject, f"advertises {address}, which cannot be reached from here: {reason_of(error)}", advice
        )


def partitions(topics: dict[str, Any]) -> Iterator[Finding]:
    every = [
        (f"{name}-{number}", partition)
        for name, topic in sorted(topics.items())
        for number, partition in sorted(topic.partitions.items())
    ]
    yield ok("topics", f"{count_of(len(topics), 'topic')}, {count_of(len(every), 'partition')}")
    leaderless = [name for name, partition in every if partition.leader < 0]
    if leaderless:
        advice = "Start the brokers that hold their in-sync replicas."
        yield problem(
            "leaders", f"{some(leaderless)} without a leader: nothing can be read or written", advice
        )
    lagging = [name for name, partition in every if len(partition.isrs) < len(partition.replicas)]
    if lagging:
        advice = "A broker is down or slow; `moldau topic describe` shows which."
        yield warning("replicas", f"{some(lagging)} with replicas that are not in sync", advice)
    if every and not leaderless and not lagging:
        yield ok("partitions", "all led, all replicas in sync")


def some(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED_MAX])
    return f"{count_of(len(names), 'partition')} ({shown}{', ...' if len(names) > NAMED_MAX else ''})"
