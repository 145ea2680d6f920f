"""`moldau cluster move-logs`: replicas to another data folder of their broker (KIP-113), and the folders of a plan."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click

from moldau.base.errors import ErrorCode
from moldau.base.ids import TopicPartition
from moldau.cli.cluster_client import BrokerView, ClusterClient, LogFolder
from moldau.cli.cluster_progress import PAUSE_S, Step, shown
from moldau.cli.complete import topic_names
from moldau.cli.errors import CliError, Exit, not_found, usage
from moldau.cli.help import Command
from moldau.cli.options import Target, Whole, cluster_options, json_option
from moldau.cli.output import Column, count_of, good, human_bytes, note, print_json, print_table, say
from moldau.cli.partition_health import listed

ANY = "any"
"""Of a plan: wherever the broker likes."""
Folders = dict[int, dict[TopicPartition, str]]
"""Where logs are to lie, by broker."""

topics_option = click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=topic_names,
    help="Only this topic; may be repeated.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would move, and move nothing.")
no_wait_option = click.option("--no-wait", is_flag=True, help="Do not wait for the end of the move.")


@click.command(
    name="move-logs",
    cls=Command,
    examples="""
# The data folders of a broker, and what lies in them
moldau cluster move-logs --broker 1
# A new disk: give it a topic
moldau cluster move-logs --broker 1 --to /disk2/moldau --topic orders
# A disk that is to go: everything off it
moldau cluster move-logs --broker 1 --from /disk1/moldau --to /disk2/moldau
""",
)
@click.option("--broker", "broker_id", type=Whole(), required=True, metavar="ID", help="Whose logs.")
@click.option("--to", "to_path", metavar="DIR", help="One of its data folders.  [default: only show them]")
@click.option("--from", "from_path", metavar="DIR", help="Only what lies in this one.")
@topics_option
@dry_run_option
@no_wait_option
@cluster_options
@json_option()
def move_logs(
    broker_id: int,
    to_path: str | None,
    from_path: str | None,
    topics: tuple[str, ...],
    dry_run: bool,
    no_wait: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Move logs from one data folder of a broker to another.

    Clients go on meanwhile. replica.alter.log.dirs.io.max.bytes.per.second of the broker says how fast. Ctrl-C
    stops the watching, not the move; moving a log to where it lies ends its move.
    """
    with ClusterClient(target) as client:
        broker = broker_of(client, broker_id)
        folders = client.log_folders(broker)
        if to_path is None:
            print_folders(folders, as_json=as_json)
            return
        for path in (to_path, from_path or to_path):
            if path not in [folder.path for folder in folders]:
                there = ", ".join(folder.path for folder in folders)
                raise not_found(f"{path} is no data folder of broker {broker_id}.", f"It has {there}.")
        places = chosen(folders, to_path, from_path, topics)
        if dry_run:
            print_choice(folders, places, to_path, as_json=as_json)
            return
        carry_out(client, broker, places, to_path, waits=not no_wait, as_json=as_json)


def broker_of(client: ClusterClient, broker_id: int) -> BrokerView:
    brokers = {broker.id: broker for broker in client.cluster().brokers}
    if broker_id not in brokers:
        raise not_found(
            f"There is no broker {broker_id} in this cluster.", f"It has {listed(list(brokers))}."
        )
    if brokers[broker_id].is_fenced:
        raise CliError(f"Broker {broker_id} does not run.", "Its logs can be moved when it does.")
    return brokers[broker_id]


def chosen(
    folders: Sequence[LogFolder], to_path: str, from_path: str | None, topics: Sequence[str]
) -> list[TopicPartition]:
    """What is to move: what is asked for, and not there already, or on its way elsewhere."""
    found = {
        place
        for folder in folders
        for place, log in folder.logs.items()
        if not log.is_future
        and (folder.path != to_path or _is_leaving(folders, place, to_path))
        and (from_path is None or folder.path == from_path)
        and (not topics or place.topic in topics)
    }
    known = {place.topic for folder in folders for place in folder.logs}
    for topic in topics:
        if topic not in known:
            raise not_found(f"The broker has nothing of a topic '{topic}'.")
    return sorted(found)


def _is_leaving(folders: Sequence[LogFolder], place: TopicPartition, path: str) -> bool:
    return any(
        place in folder.logs and folder.logs[place].is_future for folder in folders if folder.path != path
    )


def carry_out(
    client: ClusterClient,
    broker: BrokerView,
    places: Sequence[TopicPartition],
    path: str,
    *,
    waits: bool,
    as_json: bool,
) -> None:
    refused = client.move_logs(broker, dict.fromkeys(places, path))
    accepted = [place for place in places if place not in refused]
    lost = watch(client, {broker.id: dict.fromkeys(accepted, path)}) if waits and accepted else []
    if as_json:
        failed = {str(place): one.message for place, one in refused.items()}
        failed |= {str(place): "the broker has given it up" for place in lost}
        print_json({"status": "moved" if waits else "moving", "logs": len(accepted), "failed": failed})
    elif accepted:
        say(f"{count_of(len(accepted) - len(lost), 'log')} {good('moved' if waits else 'moving')}")
    elif not refused:
        say("Nothing to move.")
    if refused:
        place, outcome = next(iter(sorted(refused.items())))
        raise CliError(f"{place} cannot be moved: {outcome.message}.", "", Exit.FAILED)
    if lost:
        raise CliError(
            f"{lost[0]} was not moved: broker {broker.id} has given it up.",
            "Its log says why: the folder may be full, or have failed.",
            Exit.FAILED,
        )


def watch(client: ClusterClient, wanted: Folders) -> list[TopicPartition]:
    """Until the logs lie where they should, or are not on their way there any more; those that do not."""
    goals: dict[tuple[int, TopicPartition], int] = {}
    with shown(sum(map(len, wanted.values()))) as show:
        while True:
            moving, done_bytes, lost = 0, 0, []
            for broker_id, paths in wanted.items():
                folders = {folder.path: folder for folder in client.log_folders(broker_of(client, broker_id))}
                for place, path in paths.items():
                    sizes = [folder.logs[place].size for folder in folders.values() if place in folder.logs]
                    goal = goals[broker_id, place] = max([goals.get((broker_id, place), 0), *sizes])
                    log = folders[path].logs.get(place) if path in folders else None
                    moving += log is not None and log.is_future
                    done_bytes += goal if log is None or not log.is_future else log.size
                    if log is None:
                        lost.append(place)
            total = sum(map(len, wanted.values()))
            show(Step(total - moving, total, done_bytes, sum(goals.values())))
            if not moving:
                return sorted(lost)
            time.sleep(PAUSE_S)


# The folders of a plan


def read_log_dirs(path: str) -> Folders:
    """What a plan of kafka-reassign-partitions.sh says of folders; it was read before, and is one."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    wanted: Folders = {}
    for one in document["partitions"]:
        replicas, paths = one["replicas"], one.get("log_dirs") or [ANY] * len(one["replicas"])
        if len(paths) != len(replicas) or not all(isinstance(text, str) for text in paths):
            raise usage(
                f"{path}: {one['topic']}-{one['partition']} has not one of log_dirs for each replica."
            )
        for broker_id, text in zip(replicas, paths, strict=True):
            if text != ANY:
                place = TopicPartition(str(one["topic"]), int(one["partition"]))
                wanted.setdefault(int(broker_id), {})[place] = text
    return wanted


def ask_for_folders(client: ClusterClient, wanted: Folders) -> None:
    """Before the replicas are assigned: those that are there begin to move, others will be created there."""
    for broker_id, paths in sorted(wanted.items()):
        refused = client.move_logs(broker_of(client, broker_id), paths)
        for place, outcome in sorted(refused.items()):
            if outcome.error is not ErrorCode.replica_not_available:
                raise CliError(
                    f"{place} cannot lie in {paths[place]} of broker {broker_id}: {outcome.message}.",
                    "",
                    Exit.FAILED,
                )


# Showing


def print_folders(folders: Sequence[LogFolder], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(folder) for folder in folders])
        return
    columns = [
        Column("folder", style="bold"),
        Column("logs", right=True),
        Column("size", right=True),
        Column("free", right=True),
        Column("coming", right=True),
        Column("state"),
    ]
    rows = []
    for folder in folders:
        logs = [log for log in folder.logs.values() if not log.is_future]
        free = "-" if folder.usable_bytes < 0 else human_bytes(folder.usable_bytes)
        coming = len(folder.logs) - len(logs)
        state = folder.error or "ok"
        size = human_bytes(sum(log.size for log in logs))
        rows.append([folder.path, str(len(logs)), size, free, str(coming), state])
    print_table(columns, rows)


def _document(folder: LogFolder) -> Mapping[str, Any]:
    return {
        "path": folder.path,
        "error": folder.error,
        "usable_bytes": folder.usable_bytes,
        "logs": [
            {"topic": place.topic, "partition": place.partition} | log._asdict()
            for place, log in sorted(folder.logs.items())
        ],
    }


def print_choice(
    folders: Sequence[LogFolder], places: Collection[TopicPartition], path: str, *, as_json: bool
) -> None:
    rows = [
        (str(place), folder.path, log.size)
        for folder in folders
        for place, log in sorted(folder.logs.items())
        if place in places and not log.is_future
    ]
    if as_json:
        print_json([{"log": name, "from": source, "to": path, "size": size} for name, source, size in rows])
    elif not rows:
        say("Nothing to move.")
    else:
        columns = [Column("log", style="bold"), Column("from"), Column("size", right=True)]
        print_table(columns, [[name, source, human_bytes(size)] for name, source, size in rows])
        total = human_bytes(sum(size for _, _, size in rows))
        note(f"{count_of(len(rows), 'log')}, {total}, would be copied to {path}.")
