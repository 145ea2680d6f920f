"""`moldau topic`: create, list, describe, alter, delete; `trim` is in `topic_trim`."""

from __future__ import annotations

import fnmatch
import sys
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.client import Connection
from moldau.cli.complete import topic_keys, topic_names, topic_pairs
from moldau.cli.config import change_configs, changed_configs, min_isr, topic_configs
from moldau.cli.errors import CliError, Exit, usage
from moldau.cli.findings import Status
from moldau.cli.help import Group
from moldau.cli.message_read import count_messages
from moldau.cli.offsets import Bounds, partition_offsets
from moldau.cli.options import Target, Whole, cluster_options, json_option, parse_pairs, set_option
from moldau.cli.outcomes import Outcome, report
from moldau.cli.output import Column, bold, count_of, dim, note, print_json, print_table, say
from moldau.cli.partition_health import PartitionView, findings
from moldau.cli.topic_patterns import expanded, is_pattern, matches
from moldau.cli.topic_trim import trim

if TYPE_CHECKING:
    from confluent_kafka.admin import TopicDescription

NAMES: dict[str, Any] = {"nargs": -1, "required": True, "metavar": "TOPIC...", "shell_complete": topic_names}
OWN_TOPICS = {
    "__consumer_offsets": "the offsets of all groups",
    "__transaction_state": "the state of all transactions",
}
"""The cluster's own, and what they hold."""
_TROUBLE = {Status.PROBLEM: "red", Status.WARNING: "yellow"}


@click.group(
    name="topic",
    cls=Group,
    examples="""
moldau topic create orders --partitions 3
moldau topic list
moldau topic describe orders
moldau topic delete orders
""",
)
def command() -> None:
    """Create, list, describe, alter, trim and delete topics."""


@command.command(
    examples="""
moldau topic create orders --partitions 3
# Messages of up to 10 MiB
moldau topic create pictures --set max.message.bytes=10485760
# In scripts: it is fine if it is there already
moldau topic create orders --if-not-exists
"""
)
@click.argument("names", **{**NAMES, "shell_complete": None})
@click.option("-p", "--partitions", type=Whole(1), metavar="N", help="Default: the cluster's.")
@click.option("-r", "--replication-factor", type=Whole(1), metavar="N", help="Default: the cluster's.")
@set_option("-s", "--set", "--config", text="A config of the topic; may be repeated.", complete=topic_pairs)
@click.option("--if-not-exists", is_flag=True, help="Leave topics that exist as they are.")
@click.option("--validate-only", is_flag=True, help="Let the cluster check it, but create nothing.")
@cluster_options
@json_option()
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    validate_only: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Create topics."""
    from confluent_kafka.admin import NewTopic

    configs = parse_pairs(settings, "--set")
    connection = Connection(target)
    wanted = [
        NewTopic(
            name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            config=configs,
        )
        for name in names
    ]
    futures = connection.admin.create_topics(
        wanted,
        operation_timeout=target.timeout_s,
        request_timeout=target.timeout_s,
        validate_only=validate_only,
    )
    done = "would be created" if validate_only else "created"
    outcomes = {
        name: outcome(connection, futures[name], name, done, tolerate_exists=if_not_exists) for name in names
    }
    report("topic", outcomes, as_json)


@command.command(
    name="list",
    examples="""
moldau topic list
moldau topic list 'orders*'
moldau topic list --json | jq -r '.[].name'
""",
)
@click.argument("pattern", default="*", metavar="[PATTERN]")
@click.option(
    "-a", "--all", "internal", is_flag=True, help="With internal topics (their names begin with __)."
)
@cluster_options
@json_option()
def list_topics(pattern: str, internal: bool, target: Target, as_json: bool) -> None:
    """List topics, all or those that match a pattern with * and ?."""
    topics = Connection(target).metadata().topics
    names = [
        name
        for name in sorted(topics)
        if (fnmatch.fnmatchcase(name, pattern) if internal else matches(pattern, name))
    ]
    if as_json:
        print_json([summary(name, topics[name].partitions) for name in names])
    elif not names:
        note("No topics." if pattern == "*" else f"No topic matches '{pattern}'.")
    else:
        rows = [[str(cell) for cell in summary(name, topics[name].partitions).values()] for name in names]
        print_table(
            [Column("topic", style="bold"), Column("partitions", right=True), Column("replicas", right=True)],
            rows,
        )


def summary(name: str, partitions: dict[int, Any]) -> dict[str, Any]:
    replicas = max((len(partition.replicas) for partition in partitions.values()), default=0)
    return {"name": name, "partitions": len(partitions), "replication_factor": replicas}


@command.command(
    examples="""
moldau topic describe orders
moldau topic describe 'orders*'
moldau topic describe orders --json | jq '.[0].partitions'
"""
)
@click.argument("names", **NAMES)
@cluster_options
@json_option()
def describe(names: tuple[str, ...], target: Target, as_json: bool) -> None:
    """Show partitions, leaders, offsets and changed configs of topics, by names or patterns with * and ?.

    MESSAGES are those that a reader of committed messages is shown. Transactions and compaction leave offsets
    without a message; where the cluster has known any, few messages of one topic are read to be counted, and many
    are `up to` so many. STATE is the worst of: offline (no leader), under min ISR (writes with acks=all are
    refused), under-replicated (a replica is not in sync).
    """
    from confluent_kafka import TopicCollection

    from moldau.base.internal_topics import TRANSACTION_STATE

    connection = Connection(target)
    wanted = expanded(connection, names)
    futures = connection.admin.describe_topics(TopicCollection(wanted), request_timeout=target.timeout_s)
    described = [connection.result(futures[name], subject=name) for name in wanted]
    had_transactions = knows(connection, TRANSACTION_STATE)
    documents = [
        description_document(connection, one, had_transactions=had_transactions, is_only=len(wanted) == 1)
        for one in described
    ]
    if as_json:
        print_json(documents)
        return
    for index, document in enumerate(documents):
        if index:
            say("")
        print_description(document)


def knows(connection: Connection, topic: str) -> bool:
    """Whether there is such a topic; it is not made by asking."""
    from confluent_kafka import TopicCollection

    asked = connection.admin.describe_topics(
        TopicCollection([topic]), request_timeout=connection.target.timeout_s
    )
    try:
        connection.result(asked[topic], subject=topic)
    except CliError as error:
        return error.code is not Exit.NOT_FOUND
    return True


def description_document(
    connection: Connection, description: TopicDescription, *, had_transactions: bool, is_only: bool
) -> dict[str, Any]:
    offsets = partition_offsets(
        connection, description.name, [p.id for p in description.partitions if p.leader]
    )
    configs = topic_configs(connection, description.name)
    policy = configs.get("cleanup.policy")
    if not had_transactions and policy is not None and "compact" not in (policy.value or ""):
        messages = {partition: bounds.next - bounds.first for partition, bounds in offsets.items()}
    else:
        messages = count_messages(connection, description.name, offsets) if is_only else {}
    least = min_isr(configs)
    return {
        "name": description.name,
        "id": id_text(description.topic_id),
        "internal": description.is_internal,
        "replication_factor": max((len(p.replicas) for p in description.partitions), default=0),
        "min_insync_replicas": least,
        "configs": changed_configs(configs, "topic"),
        "partitions": [
            partition_document(
                view_of(description.name, partition, least),
                offsets.get(partition.id),
                messages.get(partition.id),
            )
            for partition in description.partitions
        ],
    }


def view_of(topic: str, partition: Any, least: int) -> PartitionView:
    return PartitionView(
        topic,
        partition.id,
        partition.leader.id if partition.leader else None,
        tuple(node.id for node in partition.replicas),
        tuple(node.id for node in partition.isr),
        least,
    )


def partition_document(
    partition: PartitionView, bounds: Bounds | None, messages: int | None
) -> dict[str, Any]:
    return {
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "state": partition.state,
        "first_offset": bounds.first if bounds else None,
        "next_offset": bounds.next if bounds else None,
        "messages": messages,
    }


def id_text(topic_id: object) -> str:
    """As Kafka writes it, in the URL-safe letters of base 64; librdkafka takes the others."""
    return str(topic_id).translate(str.maketrans("+/", "-_"))


def print_description(document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    say(
        f"{bold(document['name'])}  {dim('id ' + document['id'])}  {count_of(len(partitions), 'partition')}, "
        f"replication factor {document['replication_factor']}{', internal' if document['internal'] else ''}"
    )
    for key, value in document["configs"].items():
        say(f"  {key}={value}")
    columns = [
        Column("partition", right=True),
        Column("leader", right=True),
        Column("replicas"),
        Column("isr"),
        Column("first offset", right=True),
        Column("next offset", right=True),
        Column("messages", right=True),
        Column("state"),
    ]
    print_table(columns, [partition_row(partition) for partition in partitions])
    print_trouble(document)


def print_trouble(document: dict[str, Any]) -> None:
    """What is not well, in a line each, the worst first."""
    views = [
        PartitionView(
            document["name"],
            partition["partition"],
            partition["leader"],
            tuple(partition["replicas"]),
            tuple(partition["isr"]),
            document["min_insync_replicas"],
        )
        for partition in document["partitions"]
    ]
    for finding in findings(views):
        if colour := _TROUBLE.get(finding.status):
            say(f"{click.style(finding.text, fg=colour, bold=True)}  {dim(finding.advice)}")


def partition_row(partition: dict[str, Any]) -> list[str]:
    first, following = partition["first_offset"], partition["next_offset"]
    known = first is not None and following is not None
    messages = partition["messages"]
    if known and messages is None:
        most = following - first
        messages = f"up to {most:,}" if most else "0"
    return [
        str(partition["partition"]),
        "none" if partition["leader"] is None else str(partition["leader"]),
        ",".join(map(str, partition["replicas"])),
        ",".join(map(str, partition["isr"])),
        str(first) if known else "-",
        str(following) if known else "-",
        "-" if messages is None else str(messages),
        partition["state"],
    ]


@command.command(
    examples="""
# More partitions (fewer is not possible; keys then map to other partitions)
moldau topic alter orders --partitions 6
# Change one config, and set another back to its default
moldau topic alter orders --set compression.type=zstd --unset segment.bytes
"""
)
@click.argument("name", metavar="TOPIC", shell_complete=topic_names)
@click.option("-p", "--partitions", type=Whole(1), metavar="N", help="Raise the number of partitions.")
@set_option("-s", "--set", "--config", text="Change a config; may be repeated.", complete=topic_pairs)
@click.option(
    "-u",
    "--unset",
    multiple=True,
    metavar="KEY",
    help="Set a config back to its default.",
    shell_complete=topic_keys,
)
@cluster_options
@json_option()
def alter(
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    target: Target,
    as_json: bool,
) -> None:
    """Change a topic's number of partitions or its configs."""
    from confluent_kafka.admin import NewPartitions

    changes = parse_pairs(settings, "--set")
    if partitions is None and not changes and not unset:
        raise usage("Nothing to change.", "Give --partitions, --set or --unset.")
    connection = Connection(target)
    connection.topic(name)  # an alteration of configs alone would not say that the topic is missing
    if changes or unset:
        change_configs(connection, "topic", name, changes, unset)
    if partitions is not None:
        future = connection.admin.create_partitions(
            [NewPartitions(name, partitions)], request_timeout=target.timeout_s
        )[name]
        connection.result(future, subject=name)
    report("topic", {name: "altered"}, as_json)


command.add_command(trim)


@command.command(
    examples="""
moldau topic delete orders
# All that match; it shows them and asks
moldau topic delete 'test-*'
# In scripts
moldau topic delete orders 'test-*' --yes --if-exists
"""
)
@click.argument("names", **NAMES)
@click.option("--if-exists", is_flag=True, help="Topics that are not there are fine.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask (asked only on a terminal).")
@cluster_options
@json_option()
def delete(names: tuple[str, ...], if_exists: bool, yes: bool, target: Target, as_json: bool) -> None:
    """Delete topics with all their messages, by names or patterns with * and ?.

    What a pattern matches is shown, and asked for on a terminal; elsewhere it is deleted only with --yes. So are the
    cluster's own topics, of groups and transactions, which only patterns that begin with __ match.
    """
    connection = Connection(target)
    wanted = expanded(connection, names, tolerate_none=if_exists)
    if not yes:
        confirm_deletion(wanted, has_pattern=any(map(is_pattern, names)))
    futures = {}
    if wanted:
        futures = connection.admin.delete_topics(
            wanted, operation_timeout=target.timeout_s, request_timeout=target.timeout_s
        )
    outcomes = {
        name: outcome(connection, futures[name], name, "deleted", tolerate_absent=if_exists)
        for name in wanted
    }
    report("topic", outcomes, as_json)


def confirm_deletion(names: list[str], *, has_pattern: bool) -> None:
    """CliError unless this may be deleted without --yes."""
    for name in names:
        if name in OWN_TOPICS:
            raise CliError(f"With {name}, {OWN_TOPICS[name]} would be lost.", "Insist with --yes.")
    if not names:
        return
    if sys.stdin.isatty():
        if not click.confirm(f"Delete {', '.join(names)} with all messages?", err=True):
            raise CliError("Nothing was deleted.")
    elif has_pattern:
        raise usage(
            f"The pattern would delete {count_of(len(names), 'topic')}: {', '.join(names)}.",
            "Nobody can be asked here: delete them with --yes.",
        )


def outcome(
    connection: Connection,
    future: Any,
    name: str,
    done: str,
    *,
    tolerate_exists: bool = False,
    tolerate_absent: bool = False,
) -> Outcome:
    """What became of one topic; several are carried out even where one fails."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        connection.result(future, subject=name)
    except CliError as error:
        cause = error.__cause__
        code = cause.args[0].code() if isinstance(cause, KafkaException) else None
        if tolerate_exists and code == KafkaError.TOPIC_ALREADY_EXISTS:
            return "exists"
        if tolerate_absent and code == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return "absent"
        if error.code is Exit.UNREACHABLE:
            raise
        return error
    return done
