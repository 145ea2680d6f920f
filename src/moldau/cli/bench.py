"""`moldau bench`: what a cluster gives a Python program, in messages, megabytes and milliseconds.

A quick look at one cluster. Comparisons with Apache Kafka, side by side and repeated, are `make bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from moldau.cli.bench_report import progress_bar, show
from moldau.cli.bench_work import STAMP, Load, bench_topic, consume_all, measure_latency, produce_all
from moldau.cli.client import Connection
from moldau.cli.help import Group
from moldau.cli.options import Amount, Target, Whole, cluster_options, json_option
from moldau.cli.output import note

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Decorator = Callable[[Any], Any]


def count_options(messages: int, size: int) -> Decorator:
    """How much is sent."""
    of_messages = click.option(
        "-n", "--messages", type=Whole(1), default=messages, show_default=True, metavar="N"
    )
    of_bytes = click.option(
        "-s",
        "--size",
        type=Whole(1),
        default=size,
        show_default=True,
        metavar="BYTES",
        help="Of one message.",
    )
    return lambda function: of_messages(of_bytes(function))


def topic_options(function: Any) -> Any:
    """Where it is sent."""
    topic = click.option(
        "-t",
        "--topic",
        metavar="TOPIC",
        help="An existing topic.  [default: a new one, deleted at the end]",
    )
    partitions = click.option(
        "-p",
        "--partitions",
        type=Whole(1),
        default=1,
        show_default=True,
        metavar="N",
        help="Of a new topic.",
    )
    keep = click.option("--keep", is_flag=True, help="Do not delete the new topic.")
    return topic(partitions(keep(function)))


acks_option = click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="Who must have it."
)


def rate_option(otherwise: str) -> Decorator:
    return click.option(
        "--rate",
        type=Amount(),
        default=0.0,
        metavar="N",
        help=f"Messages per second.  [default: {otherwise}]",
    )


@click.group(
    name="bench",
    cls=Group,
    examples="""
moldau bench produce
moldau bench consume --messages 1000000
moldau bench latency --rate 1000
""",
)
def command() -> None:
    """Measure throughput and latency of a cluster."""


@command.command(
    examples="""
moldau bench produce
# Small messages, eight partitions
moldau bench produce --messages 1000000 --size 100 --partitions 8
# The latency at 10,000 messages a second
moldau bench produce --rate 10000 --linger 0
"""
)
@count_options(messages=200_000, size=1024)
@topic_options
@rate_option("as fast as it goes")
@acks_option
@click.option(
    "--linger",
    "linger_ms",
    type=Amount(),
    default=5.0,
    metavar="MS",
    help="How long a batch waits to fill.  [default: 5]",
)
@click.option(
    "-z", "--codec", type=click.Choice(CODECS), default="none", show_default=True, help="Compression."
)
@cluster_options
@json_option()
def produce(
    topic: str | None, partitions: int, keep: bool, target: Target, as_json: bool, **load: Any
) -> None:
    """Measure how fast messages can be produced."""
    connection = Connection(target)
    with (
        bench_topic(connection, topic, partitions, keep=keep) as name,
        progress_bar("producing", load["messages"]) as progress,
    ):
        result = produce_all(connection, Load(name, **load), progress)
    show(result, as_json)


@command.command(
    examples="""
# Fill a topic, then read it
moldau bench consume --messages 1000000
# Read a topic that is there
moldau bench consume --topic orders
"""
)
@count_options(messages=200_000, size=1024)
@topic_options
@cluster_options
@json_option()
def consume(
    messages: int, size: int, topic: str | None, partitions: int, keep: bool, target: Target, as_json: bool
) -> None:
    """Measure how fast messages can be consumed."""
    connection = Connection(target)
    with bench_topic(connection, topic, partitions, keep=keep) as name:
        load = Load(name, messages, size)
        if topic is None:
            with progress_bar("filling", messages) as progress:
                produce_all(connection, load, progress)
        with progress_bar("consuming", messages) as progress:
            result = consume_all(connection, load, progress)
    if not result.messages:
        note(f"{name} is empty: there is nothing to read.")
    show(result, as_json)


@command.command(
    examples="""
# Each message waits for the one before it
moldau bench latency
# 1,000 messages a second
moldau bench latency --rate 1000 --messages 10000
"""
)
@count_options(messages=2_000, size=100)
@topic_options
@rate_option("one by one")
@acks_option
@cluster_options
@json_option()
def latency(
    size: int, topic: str | None, partitions: int, keep: bool, target: Target, as_json: bool, **load: Any
) -> None:
    """Measure the time to the acknowledgement, and to the consumer."""
    connection = Connection(target)
    with (
        bench_topic(connection, topic, partitions, keep=keep) as name,
        progress_bar("measuring", load["messages"]) as progress,
    ):
        result = measure_latency(connection, Load(name, size=max(size, STAMP.size), **load), progress)
    show(result, as_json)
