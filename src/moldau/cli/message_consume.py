"""`moldau message consume`: messages of a topic on stdout.

It reads what is there when it starts and ends; with `--follow` it stays. Partitions are assigned, not joined
as a group: nothing is committed, and no other reader is disturbed. With `--group` it is a member of a consumer
group instead (`message_group`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.client import Connection
from moldau.cli.complete import group_names, topic_names
from moldau.cli.errors import CliError, not_found, usage
from moldau.cli.help import Command
from moldau.cli.message_format import ENCODINGS, Rendering, compile_template, encoder, json_line, unescape
from moldau.cli.message_group import GroupReader, reset_policy
from moldau.cli.message_read import Range, read
from moldau.cli.offsets import Position, parse_position, partition_offsets, resolve
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import note
from moldau.cli.topic_patterns import expanded

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

FORMAT_HELP = (
    "Text with {topic} {partition} {offset} {timestamp} {time} {key} {value} {headers} {header.NAME} {size}, "
    "\\t and \\n."
)
FROM_HELP = (
    "beginning, end, an offset (1500), the last messages (-10), a time (2026-07-31T10:00, "
    "@MILLISECONDS) or a time ago (-1h30m)."
)


@click.command(
    cls=Command,
    examples="""
# All that is there
moldau message consume orders
# The last ten of each partition, then whatever comes
moldau message consume orders --from -10 --follow
# An hour's messages with keys and times
moldau message consume orders --from -1h --format '{time}\\t{key}\\t{value}'
# The values as JSON for jq
moldau message consume orders --json --parse | jq .value.total
# As a member of a group: go on where it is, and commit what was printed
moldau message consume orders --group billing --follow
# Of several topics, those that are there now
moldau message consume 'orders-*' --format '{topic}: {value}'
# One message by partition and offset
moldau message consume orders --partition 2 --from 1500 --count 1
""",
)
@click.argument("topic", shell_complete=topic_names)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=Whole(0),
    multiple=True,
    metavar="N",
    help="Only this partition; may be repeated.",
)
@click.option(
    "--from",
    "start",
    default="beginning",
    metavar="POSITION",
    show_default=True,
    help=FROM_HELP,
)
@click.option(
    "--to", "stop", metavar="POSITION", help="Stop before this position.  [default: what is there now]"
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=group_names,
    help="Read as a member of this consumer group, and commit what was printed.",
)
@click.option("-f", "--follow", is_flag=True, help="Stay and print new messages until Ctrl-C.")
@click.option("-n", "--count", type=Whole(0), metavar="N", help="Stop after so many messages.")
@click.option(
    "--format", "template", default="{value}", show_default=True, metavar="TEMPLATE", help=FORMAT_HELP
)
@click.option("--key-as", type=click.Choice(ENCODINGS), default="text", help="How keys are written.")
@click.option("--value-as", type=click.Choice(ENCODINGS), default="text", help="How values are written.")
@click.option("--null", default="", metavar="TEXT", help="What stands for a null key or value.")
@click.option(
    "--delimiter", default="\\n", metavar="TEXT", show_default=True, help="What follows each message."
)
@cluster_options
@json_option("Print one JSON object per message and line.")
@click.option("--parse", is_flag=True, help="With --json: values that are JSON become part of the object.")
def consume(
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    stop: str | None,
    group: str | None,
    follow: bool,
    count: int | None,
    template: str,
    key_as: str,
    value_as: str,
    null: str,
    delimiter: str,
    target: Target,
    as_json: bool,
    parse: bool,
) -> None:
    """Print the messages of a topic to stdout, or of all topics that match a pattern with * and ?."""
    if follow and stop is not None:
        raise usage("--follow and --to exclude each other.", "Leave one of them out.")
    if group is not None and (partitions or stop is not None):
        raise usage("--group excludes --partition and --to.", "The group says who reads which partition.")
    if as_json:
        write = lambda message: json_line(message, parse_values=parse)  # noqa: E731
    else:
        write = compile_template(template, rendering(key_as, value_as, null, delimiter))

    consumer: Consumer | GroupReader
    if group is not None:
        reset = reset_policy(start)
        connection = Connection(target)
        topics = expanded(connection, [topic])
        consumer = reader = GroupReader(connection, topics, group, reset)
        messages: Iterable[list[Message]] = reader.messages(count, follow=follow)
    else:
        first, last = parse_position(start), None if follow else parse_position(stop or "end")
        connection = Connection(target)
        ranges = {
            (name, partition): range_
            for name in expanded(connection, [topic])
            for partition, range_ in plan(connection, name, partitions, first, last).items()
        }
        consumer = member = connection.consumer()
        messages = read(member, connection, ranges, count)
    try:
        # What is committed must have been printed.
        printed = print_messages(messages, write, follow=follow or group is not None)
    except KeyboardInterrupt:
        if not follow:
            raise
        return  # the way in which following ends
    finally:
        consumer.close()
    if not printed and sys.stdout.isatty():
        note(f"No messages in {topic} there.")


def rendering(key_as: str, value_as: str, null: str, delimiter: str) -> Rendering:
    terminal = sys.stdout.isatty()
    return Rendering(
        key=encoder(key_as, null.encode(), terminal=terminal),
        value=encoder(value_as, null.encode(), terminal=terminal),
        delimiter=unescape(delimiter).encode(),
    )


def plan(
    connection: Connection, topic: str, wanted: Iterable[int], first: Position, last: Position | None
) -> dict[int, Range]:
    """The range of each partition, without those in which there is nothing to read."""
    existing = sorted(connection.topic(topic).partitions)
    chosen = sorted(set(wanted)) or existing
    for partition in chosen:
        if partition not in existing:
            raise not_found(f"Topic '{topic}' has no partition {partition}.", f"It has 0 to {existing[-1]}.")
    bounds = partition_offsets(connection, topic, chosen)
    missing = [partition for partition in chosen if partition not in bounds]
    if missing:
        raise CliError(
            f"Partition {missing[0]} of '{topic}' has no leader.", "See `moldau doctor` for the brokers."
        )
    starts = resolve(connection, topic, bounds, first)
    if last is None:
        return {partition: Range(offset, None) for partition, offset in starts.items()}
    stops = resolve(connection, topic, bounds, last)
    return {p: Range(starts[p], stops[p]) for p in chosen if starts[p] < stops[p]}


def print_messages(
    batches: Iterable[list[Message]], write: Callable[[Message], bytes], *, follow: bool
) -> int:
    out: Any = sys.stdout.buffer
    flush = follow or sys.stdout.isatty()
    printed = 0
    for batch in batches:
        out.write(b"".join([write(message) for message in batch]))
        if flush:
            out.flush()
        printed += len(batch)
    out.flush()
    return printed
