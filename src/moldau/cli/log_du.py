"""`moldau log du`: how much room topics and partitions take, and from when to when their records go."""

from __future__ import annotations

import os
from dataclasses import asdict
from datetime import datetime
from typing import Any

import click

from moldau.base.ids import TopicPartition
from moldau.cli.complete import files
from moldau.cli.errors import file_error, not_found, usage
from moldau.cli.help import Command
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.cli.log_places import DEFAULT_DATA, data_folders, existing
from moldau.cli.options import json_option
from moldau.cli.output import Column, count_of, human_bytes, note, print_json, print_table, say
from moldau.log import names
from moldau.log.inspect.files import Place
from moldau.log.inspect.sizes import LogSize, measure_folder, measure_log

SORTS = ("size", "name")


@click.command(
    cls=Command,
    examples="""
moldau log du
# Each partition, not only the topics
moldau log du ./moldau-data --partitions
moldau log du --json | jq '.partitions[] | select(.bytes > 1e9)'
""",
)
@click.argument("path", default=DEFAULT_DATA, metavar="[PATH]", shell_complete=files)
@click.option("-p", "--partitions", is_flag=True, help="A line for each partition, not only for each topic.")
@click.option("-t", "--topic", metavar="TOPIC", help="Only this topic.")
@click.option("--sort", type=click.Choice(SORTS), default="size", help="The largest first, or by name.")
@json_option()
def du(path: str, partitions: bool, topic: str | None, sort: str, as_json: bool) -> None:
    """Show the room that topics and partitions take on the disk.

    PATH is a data folder (./moldau-data where none is given) or the folder of a partition. Sparse files count
    with what they occupy.
    """
    disk = ReadOnlyDisk()
    path, place = existing(disk, path)
    try:
        logs = [log for log in measure(disk, path, place) if topic in (None, log.partition.topic)]
    except PermissionError as error:
        raise file_error(error, path) from error
    if not logs and topic is not None:
        raise not_found(
            f"{path} holds no partition of topic '{topic}'.", "`moldau log du` shows what it holds."
        )
    if as_json:
        print_json(document(path, logs))
    elif not logs:
        note(f"No partitions in {path}.")
    else:
        print_sizes(logs, by_partition=partitions or place is Place.PARTITION, by_size=sort == "size")


def measure(disk: ReadOnlyDisk, path: str, place: Place) -> list[LogSize]:
    if place is Place.FILE:
        raise usage(f"{path} is a file.", "Name a data folder or the folder of a partition.")
    if place is Place.PARTITION:
        name = os.path.basename(os.path.abspath(path))
        partition = names.log_of(name) or TopicPartition(name, 0)
        return [measure_log(disk, partition, path, disk.occupied)]
    folders = data_folders(disk, path, place)
    return [log for folder in folders for log in measure_folder(disk, folder, disk.occupied)]


def print_sizes(logs: list[LogSize], *, by_partition: bool, by_size: bool) -> None:
    grouped: dict[str, list[LogSize]] = {}
    for log in logs:
        name = str(log.partition) if by_partition else log.partition.topic
        grouped.setdefault(f"{name} (on its way)" if log.is_future else name, []).append(log)
    groups = list(grouped.items())
    if by_size:
        groups.sort(key=lambda group: -total(group[1]))
    columns = [
        Column("partition" if by_partition else "topic", style="bold"),
        Column("size", right=True, fold=False),
    ]
    columns += [] if by_partition else [Column("logs", right=True)]
    columns += [
        Column("segments", right=True),
        Column("indexes", right=True, fold=False),
        Column("oldest", fold=False),
        Column("newest", fold=False),
    ]
    print_table(columns, [row(name, group, by_partition=by_partition) for name, group in groups])
    say(f"{human_bytes(total(logs))} in {count_of(len(logs), 'partition')}.")


def row(name: str, logs: list[LogSize], *, by_partition: bool) -> list[str]:
    oldest = min((log.oldest_ms for log in logs if log.oldest_ms is not None), default=None)
    newest = max((log.newest_ms for log in logs if log.newest_ms is not None), default=None)
    return [
        name,
        human_bytes(total(logs)),
        *([] if by_partition else [str(len(logs))]),
        str(sum(log.segments for log in logs)),
        human_bytes(sum(log.index_bytes for log in logs)),
        minute(oldest),
        minute(newest),
    ]


def total(logs: list[LogSize]) -> int:
    return sum(log.bytes for log in logs)


def minute(timestamp_ms: int | None) -> str:
    """Local time, short enough for a table."""
    if timestamp_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # no year that a calendar knows


def document(path: str, logs: list[LogSize]) -> dict[str, Any]:
    partitions = []
    for log in logs:
        fields = asdict(log) | {"bytes": log.bytes}
        topic, number = fields.pop("partition")
        partitions.append({"topic": topic, "partition": number, **fields})
    return {"path": path, "bytes": total(logs), "partitions": partitions}
