"""`moldau group reset`: let a group go on from another place: the beginning, the end, an offset, a time, or a shift.

It shows what would change, and changes it with `--execute`. A group with members is refused: they would commit over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from moldau.cli.client import Connection
from moldau.cli.complete import group_names, topic_names
from moldau.cli.errors import CliError, Exit, not_found, usage
from moldau.cli.group_view import WITHOUT_MEMBERS, committed_offsets, describe_group, state_name
from moldau.cli.help import Command
from moldau.cli.offsets import Bounds, Kind, Position, parse_position, partition_offsets, resolve
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import Column, good, note, print_json, print_table, say
from moldau.cli.shortages import result_of_group

Place = tuple[str, int]


@dataclass(frozen=True)
class Move:
    """One partition: the offset that the group has, and the one that it gets."""

    topic: str
    partition: int
    before: int | None
    after: int
    next_offset: int

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.before,
            "new_offset": self.after,
            "new_lag": self.next_offset - self.after,
        }


@click.command(
    cls=Command,
    examples="""
# What would change if it read everything of its topics again
moldau group reset billing --to beginning
# Do it, for one topic
moldau group reset billing --to beginning --topic orders --execute
# From two hours ago on; from a time on
moldau group reset billing --to -2h --execute
moldau group reset billing --to 2026-07-31T10:00 --execute
# Skip the next ten messages of partition 3, or read the last ten again
moldau group reset billing --topic orders --partition 3 --shift 10 --execute
moldau group reset billing --topic orders --partition 3 --shift -10 --execute
""",
)
@click.argument("name", metavar="GROUP", shell_complete=group_names)
@click.option(
    "--to",
    "position",
    metavar="POSITION",
    help="beginning, end, an offset (1500), messages before the end (-10), a time (2026-07-31T10:00, "
    "@MILLISECONDS) or a time ago (-1h30m).",
)
@click.option("--shift", type=int, metavar="N", help="Skip N messages, or go back by N with -N.")
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topic_names,
    help="Default: all in which the group has offsets.",
)
@click.option(
    "-p", "--partition", "partitions", type=Whole(0), multiple=True, metavar="N", help="Default: all."
)
@click.option("--execute", is_flag=True, help="Change it; otherwise it is only shown.")
@cluster_options
@json_option()
def reset(
    name: str,
    position: str | None,
    shift: int | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    execute: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Let a group go on from another place."""
    if (position is None) == (shift is None):
        raise usage("Give either --to or --shift.", "For example --to beginning, --to -1h or --shift -10.")
    wanted = None if position is None else parse_position(position)
    connection = Connection(target)
    committed = {} if not_there(connection, name, topics) else committed_offsets(connection, name)
    known = {place: offset for place, (offset, _) in committed.items()}
    chosen = topics or tuple(sorted({topic for topic, _ in known}))
    if not chosen:
        raise usage(f"Group '{name}' has no offsets.", "Name the topics with --topic.")
    moves = [move for topic in chosen for move in plan(connection, topic, partitions, known, wanted, shift)]
    if not as_json:
        note_limits(moves, wanted, shift)
    if execute:
        change(connection, name, moves)
    report(name, moves, execute, as_json)


def not_there(connection: Connection, name: str, topics: tuple[str, ...]) -> bool:
    """Whether the group is new: fine where its topics are named. One with members is refused."""
    try:
        state = state_name(describe_group(connection, name).state)
    except CliError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        if topics:
            return True
        raise not_found(error.message, f"{error.hint} A new one is given a place with --topic.") from error
    if state not in WITHOUT_MEMBERS:
        raise CliError(
            f"Group '{name}' has members (it is {state}); they would go on from where they are.",
            f"End its consumers first; `moldau group describe {name}` shows them.",
        )
    return False


def plan(
    connection: Connection,
    topic: str,
    partitions: Iterable[int],
    known: dict[Place, int],
    position: Position | None,
    shift: int | None,
) -> list[Move]:
    existing = sorted(connection.topic(topic).partitions)
    chosen = sorted(set(partitions)) or existing
    for partition in chosen:
        if partition not in existing:
            raise not_found(f"Topic '{topic}' has no partition {partition}.", f"It has 0 to {existing[-1]}.")
    bounds = partition_offsets(connection, topic, chosen)
    missing = [partition for partition in chosen if partition not in bounds]
    if missing:
        raise CliError(f"Partition {missing[0]} of '{topic}' has no leader now.", "Try again later.")
    if position is not None:
        targets = resolve(connection, topic, bounds, position)
    else:
        targets = shifted(topic, bounds, known, shift or 0)
    return [
        Move(topic, partition, known.get((topic, partition)), offset, bounds[partition].next)
        for partition, offset in targets.items()
    ]


def shifted(topic: str, bounds: dict[int, Bounds], known: dict[Place, int], shift: int) -> dict[int, int]:
    """Partitions without an offset are left out: there is nothing to shift."""
    return {
        partition: min(max(known[topic, partition] + shift, bound.first), bound.next)
        for partition, bound in bounds.items()
        if (topic, partition) in known
    }


def note_limits(moves: list[Move], position: Position | None, shift: int | None) -> None:
    """Say where a partition has no such offset, and the nearest one was taken."""
    limited = [
        (move, asked)
        for move in moves
        if (asked := asked_for(move, position, shift)) is not None and asked != move.after
    ]
    if limited:
        move, asked = limited[0]
        more = f" (and so in {len(limited) - 1} more)" if len(limited) > 1 else ""
        note(f"{move.topic}:{move.partition} has no offset {asked}: {move.after} is the nearest{more}.")


def asked_for(move: Move, position: Position | None, shift: int | None) -> int | None:
    """The offset that was named, where one was: not for a time, or an end of the partition."""
    if position is not None:
        return position.value if position.kind is Kind.OFFSET else None
    return None if move.before is None else move.before + (shift or 0)


def change(connection: Connection, name: str, moves: list[Move]) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    places = [TopicPartition(move.topic, move.partition, move.after) for move in moves]
    if not places:
        return
    futures = connection.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(name, places)], request_timeout=connection.target.timeout_s
    )
    outcome = result_of_group(connection, futures[name], name)
    for place in outcome.topic_partitions:
        if place.error is not None:
            raise connection.explain(place.error, subject=f"{place.topic}-{place.partition}")


def report(name: str, moves: list[Move], executed: bool, as_json: bool) -> None:
    if as_json:
        print_json({"group": name, "executed": executed, "partitions": [move.document() for move in moves]})
        return
    if not moves:
        note(f"Nothing to change in {name}.")
        return
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("offset", right=True),
        Column("new offset", right=True),
        Column("new lag", right=True),
    ]
    rows = [
        [
            move.topic,
            str(move.partition),
            "-" if move.before is None else str(move.before),
            str(move.after),
            f"{move.next_offset - move.after:,}",
        ]
        for move in moves
    ]
    print_table(columns, rows)
    if executed:
        say(f"{name}: {good('reset')}")
    else:
        note("Nothing was changed. Add --execute to do it.")
