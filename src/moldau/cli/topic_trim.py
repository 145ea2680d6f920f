"""`moldau topic trim`: delete the oldest messages of a topic, up to an offset or a time."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import click

from moldau.cli.client import Connection
from moldau.cli.complete import topic_names
from moldau.cli.errors import CliError, not_found, usage
from moldau.cli.help import Command
from moldau.cli.offsets import Kind, Position, parse_position, partition_offsets, resolve
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import Column, count_of, good, note, print_json, print_table, say


class Cut(NamedTuple):
    """What goes of a partition: the messages from its first offset to the new one."""

    partition: int
    first: int
    new_first: int

    @property
    def messages(self) -> int:
        return self.new_first - self.first


@click.command(
    cls=Command,
    examples="""
# Everything before offset 1500 of partition 0
moldau topic trim orders --before 1500 --partition 0
# Everything older than a week, in all partitions
moldau topic trim orders --before -7d
# All messages, without asking
moldau topic trim orders --before end --yes
""",
)
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.option(
    "--before",
    required=True,
    metavar="POSITION",
    help="What to keep begins here: an offset, a time (2026-07-31T10:00, -7d) or end.",
)
@click.option(
    "-p", "--partition", "partitions", type=Whole(0), multiple=True, metavar="N", help="Default: all."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask (asked only on a terminal).")
@cluster_options
@json_option()
def trim(
    name: str, before: str, partitions: tuple[int, ...], yes: bool, target: Target, as_json: bool
) -> None:
    """Delete the oldest messages of a topic."""
    position = parse_position(before)
    connection = Connection(target)
    cuts = planned_cuts(connection, name, partitions, position)
    if not any(cut.messages for cut in cuts):
        if as_json:
            print_json([document(cut) for cut in cuts])
        else:
            note(f"Nothing of {name} lies before {before}.")
        return
    if not as_json:
        print_cuts(cuts)
    total = count_of(sum(cut.messages for cut in cuts), "message")
    if not yes and sys.stdin.isatty() and not click.confirm(f"Delete {total} of {name}?", err=True):
        raise CliError("Nothing was deleted.")
    delete_before(connection, name, cuts)
    if as_json:
        print_json([document(cut) for cut in cuts])
    else:
        say(f"{name}: {good('trimmed')}")


def planned_cuts(
    connection: Connection, name: str, partitions: tuple[int, ...], position: Position
) -> list[Cut]:
    known = sorted(connection.topic(name).partitions)
    wanted = sorted(set(partitions)) or known
    for partition in wanted:
        if partition not in known:
            raise not_found(
                f"Topic '{name}' has no partition {partition}.", f"Its partitions are 0 to {known[-1]}."
            )
    bounds = partition_offsets(connection, name, wanted)
    for partition in wanted:
        if partition not in bounds:
            raise CliError(f"Partition {partition} of {name} has no leader now.", "Try again later.")
        if position.kind is Kind.OFFSET and position.value > bounds[partition].next:
            raise usage(
                f"Partition {partition} of {name} ends before {position.value}: its next offset is "
                f"{bounds[partition].next}.",
                "Name partitions with --partition, or delete all messages with --before end.",
            )
    offsets = resolve(connection, name, bounds, position)
    return [Cut(partition, bounds[partition].first, offsets[partition]) for partition in wanted]


def delete_before(connection: Connection, name: str, cuts: list[Cut]) -> None:
    from confluent_kafka import TopicPartition

    futures = connection.admin.delete_records(
        [TopicPartition(name, cut.partition, cut.new_first) for cut in cuts if cut.messages],
        request_timeout=connection.target.timeout_s,
        operation_timeout=connection.target.timeout_s,
    )
    for future in futures.values():
        try:
            connection.result(future, subject=name)
        except CliError as refusal:
            raise explained(refusal, name) from refusal


def explained(refusal: CliError, name: str) -> CliError:
    from confluent_kafka import KafkaError, KafkaException

    cause = refusal.__cause__
    if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError.POLICY_VIOLATION:
        return CliError(
            f"The cleanup.policy of {name} is compact: nothing was deleted.",
            f"`moldau config set topic {name} cleanup.policy=compact,delete` allows it; or write messages without"
            " a value for the keys that are to go.",
        )
    return refusal


def print_cuts(cuts: list[Cut]) -> None:
    columns = [
        Column("partition", right=True),
        Column("first offset", right=True),
        Column("new first offset", right=True),
        Column("messages deleted", right=True),
    ]
    rows = [[str(cut.partition), str(cut.first), str(cut.new_first), f"{cut.messages:,}"] for cut in cuts]
    print_table(columns, rows)


def document(cut: Cut) -> dict[str, Any]:
    return {"partition": cut.partition, "first_offset": cut.new_first, "messages_deleted": cut.messages}
