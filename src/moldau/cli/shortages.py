"""Whether a cluster has too few brokers for its own topics, as seen from outside: of Moldau or of Apache Kafka.

A client of such a cluster only finds that nobody coordinates its group; the settings of the brokers say why.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from moldau.base.internal_topics import CONSUMER_OFFSETS
from moldau.broker.shortage import REPLICATION_FACTORS, Shortage
from moldau.cli.client import Connection
from moldau.cli.config import read_configs
from moldau.cli.errors import CliError

if TYPE_CHECKING:
    from confluent_kafka.admin import ClusterMetadata

T = TypeVar("T")


def shortages_of(
    connection: Connection, metadata: ClusterMetadata, registered: int | None = None
) -> list[Shortage]:
    """`registered`: the brokers of the cluster, those that are down included, where that is known."""
    missing = [topic for topic in REPLICATION_FACTORS if topic not in metadata.topics]
    if not missing or not metadata.brokers:
        return []
    # Any of them may be asked for a coordinator, and makes the topic as its own settings say.
    of_brokers = [read_configs(connection, "broker", str(broker)) for broker in sorted(metadata.brokers)]
    there = max(len(metadata.brokers), registered or 0)
    found = []
    for topic in missing:
        entries = [entries[REPLICATION_FACTORS[topic]] for entries in of_brokers]
        wanted = max(int(entry.value) for entry in entries if entry.value)
        if wanted > there:
            found.append(Shortage(topic, wanted, there))
    return found


def why_nobody_coordinates(connection: Connection, topic: str) -> CliError | None:
    """What is wrong where a client finds no coordinator in this topic; None where it is something else."""
    try:
        found = shortages_of(connection, connection.metadata())
    except (CliError, KeyError):
        return None
    return next((CliError(f"{one.sentence}.", one.advice) for one in found if one.topic == topic), None)


def result_of_group(connection: Connection, future: Future[T], group: str) -> T:
    """The result of a request that goes to the coordinator of a group."""
    try:
        return connection.result(future, subject=group)
    except CliError as error:
        raise why_nobody_coordinates(connection, CONSUMER_OFFSETS) or error from error.__cause__
