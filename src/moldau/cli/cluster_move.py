"""`moldau cluster reassign` and `drain`: partitions to other brokers, planned, shown, carried out and watched."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import ClusterClient, ClusterView, Moving, Refusal
from moldau.cli.cluster_logs import (
    Folders,
    ask_for_folders,
    dry_run_option,
    no_wait_option,
    read_log_dirs,
    topics_option,
)
from moldau.cli.cluster_logs import watch as watch_folders
from moldau.cli.cluster_progress import follow
from moldau.cli.cluster_throttle import (
    TAKE_AWAY,
    note_left_over,
    put_on,
    standing,
    take_all_away,
    take_away,
    under_way,
)
from moldau.cli.complete import files
from moldau.cli.errors import CliError, Exit, did_you_mean, file_error, not_found, usage
from moldau.cli.help import Command
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import Column, count_of, good, human_bytes, note, print_json, print_table, say
from moldau.cli.partition_health import PartitionView, listed
from moldau.cli.reassign_plan import NotEnoughBrokers, Replicas, place_of, spread
from moldau.cli.reassign_plan import drain as plan_drain
from moldau.cli.throttles import (
    NO_THROTTLE,
    Rate,
    Standing,
    Throttles,
    planned_copies,
    text_of,
    throttles_of,
)

AT_ONCE = 500  # partitions in one request
SHOWN_MAX = 50
Wanted = dict[TopicPartition, Replicas]

throttle_option = click.option(
    "--throttle",
    type=Rate(),
    metavar="RATE",
    help="Copy no faster than this on each broker, such as 50MB/s.",
)


@click.command(
    name="reassign",
    cls=Command,
    examples="""
# Spread everything evenly over these brokers, with few moves
moldau cluster reassign --brokers 1,2,3,4
moldau cluster reassign --brokers 1,2,3,4 --topic orders --dry-run
# Three copies instead of one
moldau cluster reassign --topic orders --replication-factor 3
# What kafka-reassign-partitions.sh takes; --dry-run --json makes such a file
moldau cluster reassign --file plan.json
# Leave room for clients: each broker copies 50 MB a second at most
moldau cluster reassign --brokers 1,2,3,4 --throttle 50MB/s
# Another throttle for what is under way, or none
moldau cluster reassign --throttle none
# Stop what is under way, and go back
moldau cluster reassign --cancel
""",
)
@topics_option
@click.option("--brokers", metavar="ID,...", help="Where replicas may be.  [default: all that run]")
@click.option("-r", "--replication-factor", type=Whole(1), metavar="N", help="Copies of each partition.")
@click.option(
    "-f", "--file", "path", metavar="FILE", shell_complete=files, help="A plan in Kafka's JSON format."
)
@click.option("--cancel", is_flag=True, help="End moves that are under way; replicas go back.")
@throttle_option
@dry_run_option
@no_wait_option
@cluster_options
@json_option()
def reassign(
    topics: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    path: str | None,
    cancel: bool,
    throttle: int | None,
    dry_run: bool,
    no_wait: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Move partitions to other brokers.

    Clients go on meanwhile: new replicas copy what there is, and take the place of the old ones when they
    are in sync. Ctrl-C stops the watching, not the move. A throttle ends with the move that it came with; by
    itself, --throttle is for what is under way.
    """
    if path is not None and (topics or brokers or replication_factor or cancel):
        raise usage("--file says all that is to move.", "Leave out the other options.")
    if cancel and (brokers or replication_factor or throttle is not None):
        raise usage("--cancel goes back to where the replicas were.", "Leave out the other options.")
    moves = path or topics or brokers or replication_factor
    if throttle == NO_THROTTLE and moves:
        raise usage("--throttle none is for what is under way.", "Leave out the other options.")
    if not (moves or cancel or throttle is not None):
        raise usage("Say what to move.", "Give --brokers, --topic, --replication-factor, --file or --cancel.")
    with ClusterClient(target) as client:
        if cancel:
            cancel_moves(client, topics, dry_run=dry_run, as_json=as_json)
            return
        if throttle is not None and not moves:
            throttle_moves(client, throttle, as_json=as_json)
            return
        partitions = client.partitions()
        folders: Folders = {}
        if path is not None:
            wanted, folders = read_plan(path), read_log_dirs(path)
        else:
            racks = allowed(client.cluster(), brokers)
            names = list(topics) or sorted({partition.topic for partition in partitions})
            require_topics(partitions, names)
            wanted = planned(lambda: spread(partitions, names, racks, replication_factor))
        if not dry_run:
            ask_for_folders(client, folders)
        note_left_over(client, {one.topic for one in partitions})
        work = Work(throttle, dry_run=dry_run, waits=not no_wait, as_json=as_json)
        carry_out(client, partitions, wanted, work)
        if folders and not (dry_run or no_wait):
            watch_folders(client, folders)


@click.command(
    name="drain",
    cls=Command,
    examples="""
moldau cluster drain 4 --dry-run
moldau cluster drain 4
# It holds nothing now: stop it, and forget it
moldau cluster unregister 4
""",
)
@click.argument("broker_id", type=Whole(), metavar="ID")
@throttle_option
@dry_run_option
@no_wait_option
@cluster_options
@json_option()
def drain(
    broker_id: int, throttle: int | None, dry_run: bool, no_wait: bool, target: Target, as_json: bool
) -> None:
    """Move everything off a broker, to the others that run.

    The broker may run or be down. Topics that are created afterwards may be placed on it until it is
    stopped.
    """
    if throttle == NO_THROTTLE:
        raise usage("--throttle none is for `moldau cluster reassign`.", "Leave it out for no throttle.")
    with ClusterClient(target) as client:
        cluster, partitions = client.cluster(), client.partitions()
        known = [broker.id for broker in cluster.brokers]
        if broker_id not in known and not any(broker_id in one.replicas for one in partitions):
            raise not_found(f"There is no broker {broker_id} in this cluster.", f"It has {listed(known)}.")
        racks = {broker: rack for broker, rack in allowed(cluster, None).items() if broker != broker_id}
        wanted = planned(lambda: plan_drain(partitions, broker_id, racks))
        note_left_over(client, {one.topic for one in partitions})
        work = Work(throttle, dry_run=dry_run, waits=not no_wait, as_json=as_json)
        carry_out(client, partitions, wanted, work)
    if not (dry_run or no_wait or as_json):
        note(f"Broker {broker_id} holds nothing now. Stop it, then `moldau cluster unregister {broker_id}`.")


def allowed(cluster: ClusterView, text: str | None) -> dict[int, str | None]:
    """The brokers that may get replicas, with their racks: those that were named, or all that run."""
    racks = {broker.id: broker.rack for broker in cluster.brokers}
    if text is None:
        return {broker: racks[broker] for broker in cluster.live}
    try:
        wanted = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise usage(f"--brokers takes ids with commas between them, not '{text}'.") from error
    for broker in wanted:
        if broker not in racks:
            raise not_found(f"There is no broker {broker} in this cluster.", f"It has {listed(list(racks))}.")
    return {broker: racks[broker] for broker in wanted}


def require_topics(partitions: Sequence[PartitionView], names: Sequence[str]) -> None:
    known = {partition.topic for partition in partitions}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, sorted(known)) or "`moldau topic list` shows what is there."
            raise not_found(f"There is no topic '{name}'.", hint)


def planned(plan: Any) -> Wanted:
    try:
        wanted: Wanted = plan()
    except NotEnoughBrokers as error:
        number = len(error.brokers)
        there = f"only {count_of(number, 'broker')}" if number else "no broker"
        ids = f" ({', '.join(map(str, error.brokers))})" if number else ""
        raise CliError(
            f"{error.place} is to have {count_of(error.wanted, 'replica')}, and there "
            f"{'is' if number < 2 else 'are'} {there} for them{ids}.",
            "Add brokers, or lower it with `moldau cluster reassign --replication-factor`.",
        ) from error
    return wanted


def read_plan(path: str) -> Wanted:
    """A file as kafka-reassign-partitions.sh takes it; `cluster_logs` looks at the log folders in it."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return {
            TopicPartition(str(one["topic"]), int(one["partition"])): tuple(map(int, one["replicas"]))
            for one in document["partitions"]
        }
    except OSError as error:
        raise file_error(error, path) from error
    except (ValueError, KeyError, TypeError) as error:
        raise usage(
            f"{path} is no plan of Kafka's.",
            'It has {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2]}]}.',
        ) from error


def plan_document(wanted: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": place.topic, "partition": place.partition, "replicas": list(replicas)}
            for place, replicas in sorted(wanted.items())
        ],
    }


class Work(NamedTuple):
    """How a move is to be carried out."""

    throttle: int | None
    """Bytes a second on each broker."""
    dry_run: bool
    waits: bool
    as_json: bool


def carry_out(client: ClusterClient, partitions: Sequence[PartitionView], wanted: Wanted, work: Work) -> None:
    before = {place_of(partition): partition.replicas for partition in partitions}
    if work.dry_run:
        print_json(plan_document(wanted)) if work.as_json else print_plan(before, wanted)
        return
    throttles = None
    if work.throttle is not None:
        throttles = put_on(client, planned_copies(before, wanted), work.throttle)
    refused: dict[TopicPartition, Refusal] = {}
    places = sorted(wanted)
    for first in range(0, len(places), AT_ONCE):
        refused |= client.reassign({place: wanted[place] for place in places[first : first + AT_ONCE]})
    accepted = [place for place in places if place not in refused]
    if work.waits and accepted:
        watch(client, accepted, is_throttled=throttles is not None)
    if throttles is not None:
        end_throttle(client, throttles, is_over=work.waits or not accepted)
    if work.as_json:
        document = {
            "status": "moved" if work.waits else "moving",
            "throttle": work.throttle,
            "previous": plan_document(only(before, accepted)),
        }
        print_json(document | {"failed": {str(place): one.message for place, one in refused.items()}})
    elif accepted:
        say(f"{count_of(len(accepted), 'partition')} {good('moved' if work.waits else 'moving')}")
    elif not refused:
        say("Nothing to move.")
    raise_refused(refused)


def end_throttle(client: ClusterClient, throttles: Throttles, *, is_over: bool) -> None:
    if is_over:
        take_away(client, throttles)
    elif throttles.brokers:
        note(f"The throttle stays when the move is done: {TAKE_AWAY}.")


def throttle_moves(client: ClusterClient, rate: int, *, as_json: bool) -> None:
    """Another throttle for all that is under way, or none."""
    if rate == NO_THROTTLE:
        found = take_all_away(client)
        if as_json:
            print_json({"throttle": None, "topics": sorted(found.lists), "brokers": sorted(found.rates)})
        else:
            say(f"{text_of(found)}: {good('no longer throttled')}" if found else "Nothing is throttled.")
        return
    copies = under_way(client.moving())
    throttles = put_on(client, copies, rate)
    if as_json:
        document = {"throttle": rate, "topics": sorted(throttles.lists), "brokers": list(throttles.brokers)}
        print_json(document)
    elif copies:
        moves = count_of(len(copies), "move")
        say(f"{moves} {good(f'throttled to {human_bytes(rate)}/s')}")
        note(f"The throttle stays when the move is done: {TAKE_AWAY}.")
    else:
        say("Nothing is being moved.")


def only(before: Mapping[TopicPartition, Replicas], places: Sequence[TopicPartition]) -> Wanted:
    return {place: before[place] for place in places if place in before}


def watch(client: ClusterClient, places: Sequence[TopicPartition], *, is_throttled: bool) -> None:
    try:
        follow(client, places)
    except (KeyboardInterrupt, CliError):
        note(
            "\nThe move goes on: `moldau cluster describe` shows it, `moldau cluster reassign --cancel` ends it."
        )
        if is_throttled:
            note(f"So does its throttle, also when the move is done: {TAKE_AWAY}.")
        raise


def print_plan(before: Mapping[TopicPartition, Replicas], wanted: Wanted) -> None:
    if not wanted:
        say("Nothing to move.")
        return
    columns = [
        Column("partition", style="bold"),
        Column("replicas"),
        Column("would become"),
        Column("copied to"),
    ]
    rows = []
    for place, replicas in sorted(wanted.items()):
        old = before.get(place, ())
        new = [broker for broker in replicas if broker not in old]
        rows.append([str(place), *(",".join(map(str, ids)) or "-" for ids in (old, replicas, new))])
    print_table(columns, rows[:SHOWN_MAX])
    if len(rows) > SHOWN_MAX:
        note(f"... and {len(rows) - SHOWN_MAX} more; --json shows all")
    copies = sum(len(set(replicas) - set(before.get(place, ()))) for place, replicas in wanted.items())
    note(f"{count_of(copies, 'replica')} of {count_of(len(wanted), 'partition')} would be copied.")


def cancel_moves(client: ClusterClient, topics: Sequence[str], *, dry_run: bool, as_json: bool) -> None:
    moving = client.moving()
    places = sorted(place for place in moving if not topics or place.topic in topics)
    refused: dict[TopicPartition, Refusal] = {}
    throttled = Standing({}, {})
    if places and not dry_run:
        refused = client.reassign(dict.fromkeys(places))
        # It may have come to its end in the meantime.
        refused = {
            place: one
            for place, one in refused.items()
            if one.error is not ErrorCode.no_reassignment_in_progress
        }
    if not dry_run:
        throttled = unthrottle(client, {place: moving[place] for place in places if place not in refused})
    if as_json:
        print_json({"cancelled": [str(place) for place in places if place not in refused]})
    elif not places:
        say("Nothing is being moved.")
    else:
        done = "would be cancelled" if dry_run else "cancelled"
        say(f"{count_of(len(places) - len(refused), 'move')} {good(done)}")
    if throttled and not as_json:
        say(f"{text_of(throttled)}: {good('no longer throttled')}")
    raise_refused(refused)


def unthrottle(client: ClusterClient, cancelled: Mapping[TopicPartition, Moving]) -> Standing:
    """What a cancelled move was throttled with; all that there is, where nothing moves any more."""
    before = standing(client)
    if not before:
        return before
    if under_way(client.moving()):
        take_away(client, throttles_of(under_way(cancelled)))
        return Standing({}, {})
    return take_all_away(client)


def raise_refused(refused: Mapping[TopicPartition, Refusal]) -> None:
    if refused:
        place, outcome = next(iter(sorted(refused.items())))
        more = f" ({len(refused) - 1} more)" if len(refused) > 1 else ""
        raise CliError(f"{place} cannot be moved: {outcome.message.rstrip('.')}{more}.", "", Exit.FAILED)
