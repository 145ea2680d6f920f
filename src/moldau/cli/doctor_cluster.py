"""Whether a cluster is well: brokers answer where they say they are, and every partition is led and whole."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from moldau.cli.client import Connection, reason_of
from moldau.cli.config import min_isr_of, read_configs
from moldau.cli.errors import CliError
from moldau.cli.findings import Finding, ok, problem, remark, warning
from moldau.cli.options import Target
from moldau.cli.output import count_of, human_ms
from moldau.cli.partition_health import findings, listed, of_metadata
from moldau.cli.shortages import shortages_of

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

    from moldau.cli.cluster_client import ClusterView

CONNECT_TIMEOUT_S = 3.0


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
        yield from who_gets_in(connection, node)
    cluster = registered(target)
    yield from fenced_found(cluster)
    if description.controller is None:
        yield problem(
            "controller", "none", "Topics cannot be changed until a broker takes over; see the brokers' logs."
        )
    else:
        yield ok("controller", f"broker {description.controller.id}")
    yield from partitions(metadata.topics, min_isr_of(connection, sorted(metadata.topics)))
    yield from internal_topics(connection, metadata, cluster)


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


def who_gets_in(connection: Connection, node: Any) -> Iterator[Finding]:
    """The listeners of a broker that ask nobody who they are, and its certificate where this client speaks TLS."""
    from moldau.cli.doctor_security import open_listeners, shown_certificate

    subject = f"broker {node.id}"
    try:
        found = read_configs(connection, "broker", str(node.id))
    except CliError:
        return
    yield from open_listeners(subject, {name: entry.value for name, entry in found.items() if entry.value})
    if "ssl" in connection.target.properties.get("security.protocol", "").lower():
        yield from shown_certificate(subject, node.host, node.port)


def registered(target: Target) -> ClusterView | None:
    """With the brokers that do not serve, which librdkafka does not ask for; None where they cannot be asked for."""
    from moldau.cli.cluster_client import ClusterClient

    try:
        with ClusterClient(target) as client:
            return client.cluster()
    except CliError:
        return None


def fenced_found(cluster: ClusterView | None) -> Iterator[Finding]:
    fenced = [broker.id for broker in cluster.brokers if broker.is_fenced] if cluster else []
    if fenced:
        yield warning(
            "fenced",
            f"{listed(fenced)}: registered, and not serving",
            "Start what is down; `moldau cluster unregister ID` forgets a broker that will not come back.",
        )


def internal_topics(
    connection: Connection, metadata: ClusterMetadata, cluster: ClusterView | None
) -> Iterator[Finding]:
    """What keeps groups and transactions from working before anybody has tried."""
    try:
        found = shortages_of(connection, metadata, len(cluster.brokers) if cluster else None)
    except (CliError, KeyError) as error:
        yield remark("settings", f"those of the brokers cannot be read: {error}")
        return
    for one in found:
        yield problem(one.topic, one.text, one.advice)


def partitions(topics: dict[str, Any], least: dict[str, int]) -> Iterator[Finding]:
    every = [
        of_metadata(name, partition, least.get(name, 1))
        for name, topic in sorted(topics.items())
        for _, partition in sorted(topic.partitions.items())
    ]
    yield ok("topics", f"{count_of(len(topics), 'topic')}, {count_of(len(every), 'partition')}")
    yield from findings(every)
