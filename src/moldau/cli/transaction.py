"""`moldau transaction`: list and describe transactions, find those that hang, and end them."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import click
from click.shell_completion import CompletionItem

from moldau.base.errors import ErrorCode
from moldau.cli.client import Connection
from moldau.cli.complete import topic_names, transactional_ids
from moldau.cli.errors import CliError, did_you_mean, not_found, usage
from moldau.cli.help import Group
from moldau.cli.offsets import UNIT_MS
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import Column, bold, dim, good, human_ms, note, print_json, print_table, say
from moldau.cli.transaction_client import Described, OpenTransaction, TransactionClient

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
HANGS_AFTER = "15m"  # Kafka's largest transaction time-out by default
POLL_S = 0.1


class State(click.ParamType):  # type: ignore[type-arg]  # not generic before click 8.3
    """One of `STATES` in any case. Click's own choice would tell them in small letters."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for state in STATES:
            if state.lower() == str(value).lower():
                return state
        return self.fail(f"'{value}' is not one of {', '.join(STATES)}.", param, ctx)

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(state) for state in STATES if state.lower().startswith(incomplete.lower())]


@click.group(
    name="transaction",
    cls=Group,
    examples="""
moldau transaction list
moldau transaction describe billing-1
# Those that no coordinator will ever end, and how to end one
moldau transaction list --hanging
moldau transaction abort --partition payments:0 --offset 1500
""",
)
def command() -> None:
    """List, describe and abort transactions."""


@command.command(
    name="list",
    examples="""
moldau transaction list
moldau transaction list 'billing*' --state Ongoing
# Open in a partition, but no coordinator knows of them: consumers wait there
moldau transaction list --hanging
moldau transaction list --hanging --topic payments --longer-than 1m
""",
)
@click.argument("pattern", default="*", metavar="[PATTERN]")
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    type=State(),
    metavar="STATE",
    help=f"Only those in this state: {', '.join(STATES)}.",
)
@click.option("--hanging", is_flag=True, help="Only transactions that nobody will ever end.")
@click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC", shell_complete=topic_names,
    help="Look for hanging ones here only.",
)  # fmt: skip
@click.option(
    "--longer-than",
    metavar="TIME",
    help=f"How long nothing was written to a hanging one.  [default: {HANGS_AFTER}]",
)
@cluster_options
@json_option()
def list_transactions(
    pattern: str,
    states: tuple[str, ...],
    hanging: bool,
    topics: tuple[str, ...],
    longer_than: str | None,
    target: Target,
    as_json: bool,
) -> None:
    """List transactional ids, or transactions that hang."""
    if hanging and (pattern != "*" or states):
        raise usage("A transaction that hangs has no id and no state to choose by.", "Choose with --topic.")
    if not hanging and (topics or longer_than is not None):
        raise usage("--topic and --longer-than choose among hanging transactions.", "Add --hanging.")
    connection = Connection(target)
    with TransactionClient(connection) as client:
        if hanging:
            longer_than_ms = parse_duration(longer_than or HANGS_AFTER)
            _print_hanging(_hanging(connection, client, topics, longer_than_ms), as_json)
            return
        found = [
            one
            for one in client.listed()
            if fnmatch.fnmatchcase(one.transactional_id, pattern) and (not states or one.state in states)
        ]
    if as_json:
        print_json([one._asdict() for one in found])
    elif not found:
        note("No transactional ids." if pattern == "*" and not states else "None matches.")
    else:
        columns = [
            Column("transactional id", style="bold"),
            Column("state"),
            Column("producer id", right=True),
        ]
        print_table(columns, [[one.transactional_id, one.state, str(one.producer_id)] for one in found])


def parse_duration(text: str) -> int:
    """`90s`, `15m`, `2h` in milliseconds."""
    number = text.rstrip("mshdw")
    unit = text[len(number) :]
    if not number.isdecimal() or unit not in UNIT_MS:
        raise usage(f"'{text}' is not a time.", "Write a number and a unit: 90s, 15m, 2h.")
    return int(number) * UNIT_MS[unit]


# ---- hanging transactions -----------------------------------------------------------------------------------------


def _hanging(
    connection: Connection, client: TransactionClient, topics: Iterable[str], longer_than_ms: int
) -> list[OpenTransaction]:
    """Open in a partition for long, and no coordinator knows a transaction of that producer with that partition."""
    for name in topics:
        connection.topic(name)
    before_ms = int(time.time() * 1000) - longer_than_ms
    found = [
        one for one in client.open_transactions(topics or client.topics) if one.last_timestamp_ms <= before_ms
    ]
    if not found:
        return []
    known_to = _coordinators_word(client)
    return [one for one in found if known_to(one) is None]


def _coordinators_word(client: TransactionClient) -> Callable[[OpenTransaction], str | None]:
    """Tells the transactional id under which a coordinator knows a transaction of a partition, and will end it."""
    ids = {one.producer_id: one.transactional_id for one in client.listed()}
    known: dict[str, Described] = {}

    def known_to(one: OpenTransaction) -> str | None:
        transactional_id = ids.get(one.producer_id)
        if transactional_id is None:
            return None
        if transactional_id not in known:
            known[transactional_id] = client.described(transactional_id)
        is_part = (one.topic, one.partition) in known[transactional_id].partitions
        return transactional_id if is_part else None

    return known_to


def _print_hanging(found: list[OpenTransaction], as_json: bool) -> None:
    if as_json:
        print_json([one._asdict() for one in found])
        return
    if not found:
        note(
            "No transaction hangs. Those that their coordinators will end: `moldau transaction list -s Ongoing`."
        )
        return
    columns = [
        Column("topic"),
        Column("partition", right=True),
        Column("start offset", right=True),
        Column("producer id", right=True),
        Column("epoch", right=True),
        Column("last write"),
    ]
    rows = [
        [
            one.topic,
            str(one.partition),
            str(one.start_offset),
            str(one.producer_id),
            str(one.producer_epoch),
            _time(one.last_timestamp_ms),
        ]
        for one in found
    ]
    print_table(columns, rows)
    first = found[0]
    note(
        f"End one with: moldau transaction abort --partition {first.topic}:{first.partition}"
        f" --offset {first.start_offset}"
    )


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds") if ms >= 0 else "-"


# ---- one transaction ------------------------------------------------------------------------------------------------


@command.command(
    examples="""
moldau transaction describe billing-1
moldau transaction describe billing-1 --json | jq .state
"""
)
@click.argument("transactional_id", metavar="ID", shell_complete=transactional_ids)
@cluster_options
@json_option()
def describe(transactional_id: str, target: Target, as_json: bool) -> None:
    """Show who writes under a transactional id, and what its transaction has come to."""
    with TransactionClient(Connection(target)) as client:
        found = _described(client, transactional_id)
    if as_json:
        print_json(_document(found))
        return
    say(f"{bold(found.transactional_id)}  {found.state}")
    say(f"producer {found.producer_id}, epoch {found.producer_epoch}, time-out {human_ms(found.timeout_ms)}")
    if found.start_ms >= 0:
        ago = ""
        if found.state == "Ongoing":
            ago = f", {human_ms(max(0, time.time() * 1000 - found.start_ms))} ago"
        say(dim(f"begun {_time(found.start_ms)}{ago}"))
    if found.partitions:
        columns = [Column("topic"), Column("partition", right=True)]
        print_table(columns, [[topic, str(index)] for topic, index in found.partitions])


def _described(client: TransactionClient, transactional_id: str) -> Described:
    found = client.described(transactional_id)
    if found.error is ErrorCode.transactional_id_not_found:
        known = [one.transactional_id for one in client.listed()]
        hint = did_you_mean(transactional_id, known) or "`moldau transaction list` shows what is there."
        raise not_found(f"There is no transactional id '{transactional_id}'.", hint)
    if found.error:
        raise CliError(f"'{transactional_id}' cannot be described: {found.error.name.upper()}.")
    return found


def _document(found: Described) -> dict[str, Any]:
    document = found._asdict()
    del document["error"]
    document["start_ms"] = found.start_ms if found.start_ms >= 0 else None
    document["partitions"] = [{"topic": topic, "partition": index} for topic, index in found.partitions]
    return document


# ---- ending ---------------------------------------------------------------------------------------------------------


@command.command(
    examples="""
# An open transaction, by its id: its producer is fenced
moldau transaction abort billing-1
# One that hangs in a partition, by where it begins there
moldau transaction abort --partition payments:0 --offset 1500
"""
)
@click.argument("transactional_id", required=False, metavar="[ID]", shell_complete=transactional_ids)
@click.option("-p", "--partition", metavar="TOPIC:N", help="Where a transaction hangs.")
@click.option("-o", "--offset", type=Whole(0), metavar="OFFSET", help="Where it begins in that partition.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask (asked only on a terminal).")
@cluster_options
@json_option()
def abort(
    transactional_id: str | None,
    partition: str | None,
    offset: int | None,
    yes: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Abort a transaction: its messages are never seen by consumers of committed ones."""
    if (transactional_id is None) == (partition is None) or (partition is None) != (offset is None):
        raise usage(
            "Name one transaction.", "By its id, or where it hangs: --partition TOPIC:N --offset OFFSET."
        )
    connection = Connection(target)
    what = transactional_id or f"the transaction at offset {offset} of {partition}"
    if not yes and sys.stdin.isatty() and not click.confirm(f"Abort {what}?", err=True):
        raise CliError("Nothing was aborted.")
    with TransactionClient(connection) as client:
        if transactional_id is not None:
            document = _abort_by_id(client, transactional_id, target.timeout_s)
        else:
            assert partition is not None and offset is not None
            document = _abort_hanging(connection, client, partition, offset)
    if as_json:
        print_json(document)
    else:
        say(f"{what}: {good('aborted')}")


def _abort_by_id(client: TransactionClient, transactional_id: str, timeout_s: float) -> dict[str, Any]:
    found = _described(client, transactional_id)
    if found.state != "Ongoing":
        raise CliError(
            f"'{transactional_id}' has no open transaction: it is {found.state}.",
            "Nothing was changed; its producer can go on.",
        )
    error = client.fence(transactional_id)
    if error not in (ErrorCode.none, ErrorCode.concurrent_transactions):
        raise CliError(f"'{transactional_id}' cannot be aborted: {error.name.upper()}.")
    give_up_s = time.monotonic() + timeout_s
    while (ended := client.described(transactional_id)).state.startswith("Prepare"):
        if time.monotonic() > give_up_s:
            raise CliError(
                f"'{transactional_id}' is still being aborted.", "Its coordinator goes on with it."
            )
        time.sleep(POLL_S)
    return _document(ended)


def _abort_hanging(
    connection: Connection, client: TransactionClient, partition: str, offset: int
) -> dict[str, Any]:
    topic, colon, number = partition.rpartition(":")
    if not colon or not number.isdecimal():
        raise usage(f"'{partition}' is not a partition.", "Write TOPIC:N, for example payments:0.")
    connection.topic(topic)
    for found in client.open_transactions([topic]):
        if found.partition == int(number) and found.start_offset == offset:
            known_to = _coordinators_word(client)(found)
            if known_to is not None:
                raise CliError(
                    f"This transaction does not hang: it is part of that of '{known_to}'.",
                    f"`moldau transaction abort {known_to}` ends it in all its partitions.",
                )
            error = client.write_abort_marker(found)
            if error:
                raise CliError(f"The marker is refused: {error.name.upper()}.")
            return found._asdict()
    raise not_found(
        f"No transaction is open at offset {offset} of {partition}.",
        "`moldau transaction list --hanging` shows where some begin.",
    )
