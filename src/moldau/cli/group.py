"""`moldau group`: list, describe and delete consumer groups; `reset` is in `group_reset`."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable
from typing import Any

import click

from moldau.cli.client import Connection
from moldau.cli.complete import group_names
from moldau.cli.errors import CliError, Exit, not_found
from moldau.cli.group_reset import reset
from moldau.cli.group_view import GroupView, PartitionView, all_groups, no_group, view_group
from moldau.cli.help import Group
from moldau.cli.options import Target, cluster_options, json_option
from moldau.cli.outcomes import Outcome, report
from moldau.cli.output import Column, bold, count_of, dim, note, print_json, print_table, say
from moldau.cli.shortages import result_of_group

PARTITION_COLUMNS = [
    Column("topic"),
    Column("partition", right=True),
    Column("offset", right=True),
    Column("next offset", right=True),
    Column("lag", right=True),
    Column("client"),
    Column("member", style="dim"),
]
NAMES: dict[str, Any] = {"nargs": -1, "required": True, "metavar": "GROUP...", "shell_complete": group_names}


@click.group(
    name="group",
    cls=Group,
    examples="""
moldau group list
moldau group describe billing
moldau group reset billing --to -1h --execute
moldau group delete billing
""",
)
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command(
    name="list",
    examples="""
moldau group list
moldau group list 'billing*'
moldau group list --json | jq -r '.[].group'
""",
)
@click.argument("pattern", default="*", metavar="[PATTERN]")
@cluster_options
@json_option()
def list_groups(pattern: str, target: Target, as_json: bool) -> None:
    """List groups, all or those that match a pattern with * and ?."""
    listed = all_groups(Connection(target))
    groups = [group for group in listed if fnmatch.fnmatchcase(group["group"], pattern)]
    if as_json:
        print_json(groups)
    elif not groups:
        note("No groups." if pattern == "*" else f"No group matches '{pattern}'.")
    else:
        columns = [Column("group", style="bold"), Column("state"), Column("type")]
        print_table(columns, [list(group.values()) for group in groups])


@command.command(
    examples="""
moldau group describe billing
# All of them
moldau group describe '*'
moldau group describe billing --json | jq '.[0].lag'
"""
)
@click.argument("names", **NAMES)
@cluster_options
@json_option()
def describe(names: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Show the members of groups, their offsets and how far they lag behind.

    GROUP is a name, or a pattern with * and ?.
    """
    connection = Connection(target)
    views = [view_group(connection, name) for name in named(connection, names)]
    if as_json:
        print_json([view.document() for view in views])
        return
    for index, view in enumerate(views):
        if index:
            say("")
        print_group(view)


def named(connection: Connection, names: Iterable[str]) -> list[str]:
    """The groups that names and patterns mean, each once. A group may have a * in its own name."""
    if not any(is_pattern(name) for name in names):
        return list(dict.fromkeys(names))
    known = [group["group"] for group in all_groups(connection)]
    found: dict[str, None] = {}
    for name in names:
        if name in known or not is_pattern(name):
            matches = [name]
        else:
            matches = [group for group in known if fnmatch.fnmatchcase(group, name)]
        if not matches:
            raise not_found(f"No group matches '{name}'.", "`moldau group list` shows what is there.")
        found.update(dict.fromkeys(matches))
    return list(found)


def is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def print_group(view: GroupView) -> None:
    facts = [view.state, count_of(len(view.members), "member")]
    if view.assignor:
        facts.append(f"assignor {view.assignor}")
    facts.append(f"coordinator {view.coordinator}")
    say(f"{bold(view.name)}  {', '.join(facts)}  {dim(lag_text(view))}")
    if view.partitions:
        # In a classic group the member's id begins with the instance: once is enough.
        is_static = any(not member.member_id.startswith(member.instance_id or "") for member in view.members)
        columns = [*PARTITION_COLUMNS, *([Column("instance")] if is_static else [])]
        print_table(columns, [partition_row(partition)[: len(columns)] for partition in view.partitions])
    else:
        note("No offsets are committed, and no partitions are assigned.")
    for member in view.members:
        if not member.partitions:
            say(dim(f"{member.client_id} ({member.host}) has no partition"))


def lag_text(view: GroupView) -> str:
    """The sum, and what it leaves out: where nothing is committed, nobody knows where reading will begin."""
    unknown = sum(partition.lag is None for partition in view.partitions)
    if unknown == len(view.partitions):
        return "lag unknown"
    return f"lag {view.lag:,}" + (f", unknown for {count_of(unknown, 'partition')}" if unknown else "")


def partition_row(partition: PartitionView) -> list[str]:
    def shown(number: int | None) -> str:
        return "-" if number is None else f"{number:,}"

    member = partition.member
    client = f"{member.client_id} ({member.host})" if member else "-"
    return [
        partition.topic,
        str(partition.partition),
        "-" if partition.offset is None else str(partition.offset),
        "-" if partition.next_offset is None else str(partition.next_offset),
        shown(partition.lag),
        client,
        member.member_id if member else "-",
        (member.instance_id or "-") if member else "-",
    ]


command.add_command(reset)


@command.command(
    examples="""
moldau group delete billing
# In scripts
moldau group delete billing --yes --if-exists
"""
)
@click.argument("names", **NAMES)
@click.option("--if-exists", is_flag=True, help="Groups that are not there are fine.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask (asked only on a terminal).")
@cluster_options
@json_option()
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, target: Target, as_json: bool) -> None:
    """Delete groups without members, with their offsets."""
    connection = Connection(target)
    if not yes and sys.stdin.isatty():
        question = f"Delete {', '.join(names)} with all offsets?"
        if not click.confirm(question, err=True):
            raise CliError("Nothing was deleted.")
    futures = connection.admin.delete_consumer_groups(
        list(dict.fromkeys(names)), request_timeout=target.timeout_s
    )
    outcomes = {name: delete_outcome(connection, name, futures[name], if_exists) for name in futures}
    report("group", outcomes, as_json)


def delete_outcome(connection: Connection, name: str, future: Any, if_exists: bool) -> Outcome:
    """What became of one group; several are carried out even where one fails."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        result_of_group(connection, future, name)
    except CliError as error:
        cause = error.__cause__
        code = cause.args[0].code() if isinstance(cause, KafkaException) else None
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return "absent" if if_exists else no_group(connection, name)
        if code == KafkaError.NON_EMPTY_GROUP:
            return CliError(
                f"Group '{name}' has members.",
                f"End its consumers first; `moldau group describe {name}` shows them.",
            )
        if error.code is Exit.UNREACHABLE:
            raise
        return error
    return "deleted"
