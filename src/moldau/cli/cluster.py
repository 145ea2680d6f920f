"""`moldau cluster`: brokers, the health of partitions, elections; moving partitions is in `cluster_move`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import PREFERRED, UNCLEAN, BrokerView, ClusterClient, ClusterView, Moving
from moldau.cli.cluster_logs import move_logs
from moldau.cli.cluster_move import drain, reassign
from moldau.cli.cluster_progress import Meter
from moldau.cli.cluster_throttle import TAKE_AWAY, standing, under_way
from moldau.cli.complete import topic_names
from moldau.cli.doctor_cluster import fenced_found
from moldau.cli.errors import CliError, Exit, did_you_mean, not_found, usage
from moldau.cli.findings import Finding, Section, Status, ok, print_section, problem, remark
from moldau.cli.help import Group
from moldau.cli.options import Amount, Target, Whole, cluster_options, json_option
from moldau.cli.output import (
    Column,
    bold,
    count_of,
    dim,
    good,
    human_bytes,
    note,
    print_json,
    print_table,
    say,
)
from moldau.cli.partition_health import PartitionView, findings, listed
from moldau.cli.reassign_plan import place_of
from moldau.cli.throttles import text_of

HEALTH_PAUSE_S = 0.5
MOVING_SHOWN_MAX = 20


@click.group(
    name="cluster",
    cls=Group,
    examples="""
moldau cluster describe
moldau cluster health --wait 60
# After a broker was added: give it its share
moldau cluster reassign --brokers 1,2,3,4
# Before a broker is taken away
moldau cluster drain 4
""",
)
def command() -> None:
    """Brokers, health, elections, and moving partitions."""


@command.command(
    examples="""
moldau cluster describe
moldau cluster describe --json | jq '.brokers[] | select(.state == "fenced")'
"""
)
@cluster_options
@json_option()
def describe(target: Target, as_json: bool) -> None:
    """Show brokers, what they lead and hold, and what is being moved.

    A fenced broker is registered and does not serve: it is down, starting, or cut off.
    """
    with ClusterClient(target) as client:
        cluster, partitions, moving = client.cluster(), client.partitions(), client.moving()
        throttled = standing(client, {one.topic for one in partitions})
        step = Meter(client, moving).step() if moving else None
    brokers = [broker_document(broker, cluster, partitions) for broker in cluster.brokers]
    if as_json:
        print_json(
            {
                "cluster_id": cluster.cluster_id,
                "controller": cluster.controller,
                "brokers": brokers,
                "partitions": counts(partitions),
                "moving": [moving_document(place, one) for place, one in sorted(moving.items())],
                "moving_bytes": {"done": step.bytes, "total": step.of_bytes} if step else None,
                "throttled": {
                    "topics": {topic: sorted(lists) for topic, lists in sorted(throttled.lists.items())},
                    "brokers": {str(broker): rates for broker, rates in sorted(throttled.rates.items())},
                },
            }
        )
        return
    print_cluster(cluster, brokers, partitions)
    if moving:
        say("")
        print_moving(moving)
        if step is not None and step.of_bytes:
            say(dim(f"{human_bytes(step.bytes)} of {human_bytes(step.of_bytes)} copied"))
    if throttled:
        say(f"throttled: {text_of(throttled)}")
        if not under_way(moving):
            note(f"Nothing is being moved: {TAKE_AWAY}.")


def broker_document(
    broker: BrokerView, cluster: ClusterView, partitions: Sequence[PartitionView]
) -> dict[str, Any]:
    return {
        "id": broker.id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "state": "fenced" if broker.is_fenced else "running",
        "is_controller": broker.id == cluster.controller,
        "leads": sum(partition.leader == broker.id for partition in partitions),
        "replicas": sum(broker.id in partition.replicas for partition in partitions),
        "in_sync": sum(broker.id in partition.isr for partition in partitions),
    }


def counts(partitions: Sequence[PartitionView]) -> dict[str, int]:
    states = Counter(partition.state for partition in partitions)
    return {
        "total": len(partitions),
        "offline": states["offline"],
        "under_min_isr": states["under min ISR"],
        "under_replicated": states["under-replicated"],
    }


def moving_document(place: TopicPartition, moving: Moving) -> dict[str, Any]:
    return {"topic": place.topic, "partition": place.partition} | {
        name: list(value) for name, value in moving._asdict().items()
    }


def print_cluster(
    cluster: ClusterView, brokers: Sequence[dict[str, Any]], partitions: Sequence[PartitionView]
) -> None:
    topics = len({partition.topic for partition in partitions})
    say(
        f"{bold('cluster')}  {dim('id ' + cluster.cluster_id)}  {count_of(len(brokers), 'broker')}, "
        f"{count_of(topics, 'topic')}, {count_of(len(partitions), 'partition')}"
    )
    columns = [
        Column("broker", right=True),
        Column("address"),
        Column("rack"),
        Column("state"),
        Column("leads", right=True),
        Column("replicas", right=True),
        Column("in sync", right=True),
    ]
    rows = [
        [
            str(broker["id"]),
            f"{broker['host']}:{broker['port']}",
            broker["rack"] or "-",
            "controller" if broker["is_controller"] else broker["state"],
            *(str(broker[name]) for name in ("leads", "replicas", "in_sync")),
        ]
        for broker in brokers
    ]
    print_table(columns, rows)
    states = Counter(partition.state for partition in partitions)
    for state, colour in (("offline", "red"), ("under min ISR", "red"), ("under-replicated", "yellow")):
        if states[state]:
            text = f"{count_of(states[state], 'partition')} {state}"
            say(f"{click.style(text, fg=colour, bold=True)}  {dim('`moldau cluster health` names them')}")


def print_moving(moving: dict[TopicPartition, Moving]) -> None:
    columns = [Column("moving", style="bold"), Column("replicas"), Column("adding"), Column("removing")]
    rows = [
        [str(place), *(",".join(map(str, ids)) or "-" for ids in one)]
        for place, one in sorted(moving.items())[:MOVING_SHOWN_MAX]
    ]
    print_table(columns, rows)
    if len(moving) > MOVING_SHOWN_MAX:
        say(dim(f"... and {len(moving) - MOVING_SHOWN_MAX} more"))


@command.command(
    examples="""
moldau cluster health
# Between two steps of a rolling restart: go on when all is well again
moldau cluster health --wait 120
"""
)
@click.option(
    "-w",
    "--wait",
    "wait_s",
    type=Amount(),
    metavar="SECONDS",
    help="Wait until all is well, so long at most.",
)
@cluster_options
@json_option()
def health(wait_s: float | None, target: Target, as_json: bool) -> int:
    """Say whether all brokers run and all replicas are in sync.

    The exit code is 1 where that is not so: a broker is fenced, or a partition is offline, under min ISR or
    under-replicated.
    """
    deadline_s = time.monotonic() + (wait_s or 0.0)
    while True:
        try:
            with ClusterClient(target) as client:
                found, is_well = _examined_until_well(client, deadline_s)
            break
        except CliError as error:  # the broker that was asked is being restarted
            if error.code is not Exit.UNREACHABLE or time.monotonic() >= deadline_s:
                raise
            time.sleep(HEALTH_PAUSE_S)
    if as_json:
        print_json({"healthy": is_well, "findings": [finding.document() for finding in found]})
    else:
        print_section(Section("Cluster", found))
    return Exit.OK if is_well else Exit.FAILED


def _examined_until_well(client: ClusterClient, deadline_s: float) -> tuple[list[Finding], bool]:
    while True:
        found = list(examine(client))
        is_well = not any(finding.status in (Status.PROBLEM, Status.WARNING) for finding in found)
        if is_well or time.monotonic() >= deadline_s:
            return found, is_well
        time.sleep(HEALTH_PAUSE_S)


def examine(client: ClusterClient) -> Iterator[Finding]:
    cluster, partitions, moving = client.cluster(), client.partitions(), client.moving()
    yield from brokers_found(cluster)
    yield from findings(partitions)
    if moving:
        yield remark("moving", f"{count_of(len(moving), 'partition')} to other brokers")


def brokers_found(cluster: ClusterView) -> Iterator[Finding]:
    yield ok("brokers", f"{len(cluster.live)} of {count_of(len(cluster.brokers), 'broker')} running")
    yield from fenced_found(cluster)
    if cluster.controller is None:
        advice = "Topics cannot be changed until a broker takes over; see the brokers' logs."
        yield problem("controller", "none", advice)
    else:
        yield ok("controller", f"broker {cluster.controller}")


command.add_command(reassign)


@command.command(
    examples="""
# Every partition back to its preferred leader, the first of its replicas
moldau cluster elect
moldau cluster elect --topic orders --topic payments:3
# A partition whose in-sync replicas are all lost: what only they had is gone
moldau cluster elect --topic orders:3 --unclean
"""
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC[:PARTITION]",
    shell_complete=topic_names,
    help="Only this topic or partition; may be repeated.",
)
@click.option(
    "--unclean", is_flag=True, help="Elect a replica that is not in sync where no other is left; loses data."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@cluster_options
@json_option()
def elect(topics: tuple[str, ...], unclean: bool, yes: bool, target: Target, as_json: bool) -> None:
    """Elect leaders: the preferred ones, or where none is left any.

    Brokers elect preferred leaders by themselves every few minutes (auto.leader.rebalance.enable).
    """
    if unclean and not topics:
        raise usage("An unclean election loses data.", "Name what it is for with --topic TOPIC:PARTITION.")
    with ClusterClient(target) as client:
        places = chosen(client.partitions(), topics) if topics else None
        if unclean and not yes:
            question = (
                f"Messages that only lost replicas have are gone for good. Elect for {', '.join(topics)}?"
            )
            if not click.confirm(question, err=True):
                raise CliError("Nothing was elected.")
        outcomes = client.elect(UNCLEAN if unclean else PREFERRED, places)
    elected = sorted(place for place, outcome in outcomes.items() if not outcome.error)
    refused = {
        place: outcome
        for place, outcome in sorted(outcomes.items())
        if outcome.error and outcome.error is not ErrorCode.election_not_needed
    }
    if as_json:
        print_json(
            {
                "elected": [str(place) for place in elected],
                "failed": {str(place): outcome.message for place, outcome in refused.items()},
            }
        )
    elif elected:
        say(f"{count_of(len(elected), 'partition')} {good('led anew')}")
    elif not refused:
        say("Nothing to elect: all are led as they should be.")
    if refused:
        place, outcome = next(iter(refused.items()))
        more = f" ({count_of(len(refused) - 1, 'more')})" if len(refused) > 1 else ""
        raise CliError(
            f"No leader could be elected for {place}: {outcome.message.rstrip('.')}{more}.",
            "`moldau cluster health` shows which brokers are missing.",
        )


def chosen(partitions: Sequence[PartitionView], topics: Sequence[str]) -> list[TopicPartition]:
    """The partitions that `TOPIC` and `TOPIC:PARTITION` name."""
    every = [place_of(partition) for partition in partitions]
    found: dict[TopicPartition, None] = {}
    for text in topics:
        name, colon, number = text.rpartition(":")
        if not colon or not number.isdigit():
            name, number = text, ""
        mine = [
            place for place in every if place.topic == name and (not number or place.partition == int(number))
        ]
        if not mine:
            known = {place.topic for place in every}
            hint = did_you_mean(name, sorted(known)) if name not in known else ""
            raise not_found(
                f"There is no {'partition' if name in known else 'topic'} '{text if name in known else name}'.",
                hint or "`moldau topic list` shows what is there.",
            )
        found |= dict.fromkeys(mine)
    return list(found)


command.add_command(drain)
command.add_command(move_logs)


@command.command(
    examples="""
# A broker that was drained and stopped, or will never come back
moldau cluster unregister 4
"""
)
@click.argument("broker_id", type=Whole(), metavar="ID")
@click.option("-y", "--yes", is_flag=True, help="Even if partitions have replicas on it.")
@cluster_options
@json_option()
def unregister(broker_id: int, yes: bool, target: Target, as_json: bool) -> None:
    """Forget a broker that is gone for good.

    It must not run. Where it still has replicas, these count as missing until they are moved.
    """
    with ClusterClient(target) as client:
        require_broker(client.cluster(), broker_id)
        if broker_id in client.cluster().live:
            raise CliError(
                f"Broker {broker_id} is running.",
                f"Move its partitions with `moldau cluster drain {broker_id}`, and stop it first.",
            )
        held = [partition for partition in client.partitions() if broker_id in partition.replicas]
        if held and not yes:
            raise CliError(
                f"{count_of(len(held), 'partition')} still have a replica on broker {broker_id}.",
                f"Move them with `moldau cluster drain {broker_id}`, or insist with --yes.",
            )
        client.unregister(broker_id)
    if as_json:
        print_json({"broker": broker_id, "status": "unregistered"})
    else:
        say(f"broker {broker_id}: {good('unregistered')}")


def require_broker(cluster: ClusterView, broker_id: int) -> None:
    known = [broker.id for broker in cluster.brokers]
    if broker_id not in known:
        raise not_found(
            f"There is no broker {broker_id} in this cluster.",
            f"It has {listed(known)}; `moldau cluster describe` says more.",
        )
