"""`moldau log verify`: every byte of a data folder against every other that speaks of it.

Findings come as they are found, in three grades (`log.inspect.findings` says which); damage makes the exit code
1. It reads only, also beside a running broker.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import click

from moldau.cli.complete import files
from moldau.cli.errors import Exit, usage
from moldau.cli.help import Command
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.cli.log_places import DEFAULT_DATA, data_folders, existing, shown
from moldau.cli.log_store import topic_ids
from moldau.cli.options import json_option
from moldau.cli.output import bold, count_of, dim, good, human_bytes, print_json, say, wrapped
from moldau.cli.plot import knows_blocks
from moldau.log import names
from moldau.log.inspect.files import SEGMENT_SUFFIXES, Place, standing_of
from moldau.log.inspect.findings import Finding, Seen, Severity
from moldau.log.inspect.folder import running_note, verify_folder, verify_log
from moldau.log.inspect.partition import verify_partition

MARKS = {
    Severity.DAMAGE: ("✗", "x", "red"),
    Severity.REPAIR: ("!", "!", "yellow"),
    Severity.NOTE: ("·", "-", "blue"),
}
COUNTED = {
    Severity.DAMAGE: "damaged",
    Severity.REPAIR: "to be repaired by the next start",
    Severity.NOTE: "noted",
}
PROGRESS_WIDTH = 70


@click.command(
    cls=Command,
    examples="""
moldau log verify
moldau log verify ./moldau-data
# One partition, or one segment of it
moldau log verify ./moldau-data/broker-1/orders-0
moldau log verify ./orders-0/00000000000000000000.log
# What is damaged, for programs
moldau log verify --json | jq '.findings[] | select(.severity == "damage")'
""",
)
@click.argument("path", default=DEFAULT_DATA, metavar="[PATH]", shell_complete=files)
@click.option("--records", is_flag=True, help="Also look into each batch, at every record.")
@json_option()
def verify(path: str, records: bool, as_json: bool) -> int:
    """Find damage in a data folder, and say what it means.

    PATH is a data folder (./moldau-data where none is given), the folder of a partition, or a segment file.
    Every batch, index, snapshot and checkpoint is read and compared with the others; nothing is changed. The
    exit code is 1 where something is damaged.
    """
    disk = ReadOnlyDisk()
    path, place = existing(disk, path)
    seen = Seen(on_segment=lambda _segment: None if as_json else show_progress(seen))
    found: list[Finding] = []
    for finding in look(disk, path, place, seen, records=records):
        found.append(finding)
        if not as_json:
            clear_progress()
            print_finding(finding)
    clear_progress()
    counts = Counter(finding.severity for finding in found)
    if as_json:
        print_json(document(path, seen, found))
    else:
        print_summary(seen, counts)
    return Exit.FAILED if counts[Severity.DAMAGE] else Exit.OK


def look(disk: ReadOnlyDisk, path: str, place: Place, seen: Seen, *, records: bool) -> Iterator[Finding]:
    if place is Place.FILE:
        folder, name = os.path.split(os.path.abspath(path))
        suffix = os.path.splitext(name)[1]
        offset = names.offset_of(name, suffix) if suffix in SEGMENT_SUFFIXES else None
        if offset is None or not disk.exists(os.path.join(folder, names.file_name(offset, names.LOG))):
            raise usage(
                f"{path} is no segment of a log.", "Name its folder: small files are verified with it."
            )
        standing = standing_of(disk, folder)
        if standing.running:
            yield running_note(folder)
        yield from verify_partition(disk, folder, standing, seen, records=records, only_segment=offset)
    elif place is Place.PARTITION:
        folder = os.path.abspath(path)
        standing = standing_of(disk, folder)
        if standing.running:
            yield running_note(folder)
        yield from verify_log(disk, folder, standing, seen, records=records)
    else:
        for folder in data_folders(disk, path, place):
            yield from verify_folder(disk, folder, seen, records=records, topic_ids=topic_ids(folder))


def print_finding(finding: Finding) -> None:
    fine, plain, colour = MARKS[finding.severity]
    mark = click.style(fine if knows_blocks() else plain, fg=colour, bold=True)
    where = shown(finding.path)
    at = "" if finding.position is None else f" at byte {finding.position:,}"
    say(f"{mark} {bold(where)}{at}")
    say("  " + wrapped(finding.what, 2))
    if finding.advice:
        say("  " + dim(wrapped(finding.advice, 2)))


def print_summary(seen: Seen, counts: Counter[Severity]) -> None:
    looked_at = ", ".join(
        [
            count_of(seen.partitions, "partition"),
            count_of(seen.segments, "segment"),
            count_of(seen.batches, "batch", "batches"),
            human_bytes(seen.bytes),
        ]
    )
    say(f"{looked_at} read.")
    parts = [f"{counts[severity]} {text}" for severity, text in COUNTED.items() if counts[severity]]
    if counts[Severity.DAMAGE]:
        say(click.style(", ".join(parts) + ".", fg="red", bold=True))
    else:
        say(good("No damage found.") + (f" {', '.join(parts).capitalize()}." if parts else ""))


def document(path: str, seen: Seen, found: list[Finding]) -> dict[str, Any]:
    return {
        "path": path,
        "partitions": seen.partitions,
        "segments": seen.segments,
        "batches": seen.batches,
        "bytes": seen.bytes,
        "findings": [
            {
                "severity": finding.severity.value,
                "kind": finding.kind.value,
                "file": finding.path,
                "position": finding.position,
                "what": finding.what,
                "advice": finding.advice,
            }
            for finding in found
        ],
    }


def show_progress(seen: Seen) -> None:
    """One line that is written over, for a person who waits."""
    if sys.stderr.isatty():
        text = f"{count_of(seen.partitions, 'partition')}, {human_bytes(seen.bytes)} read ..."
        click.echo(f"\r{text:<{PROGRESS_WIDTH}}", err=True, nl=False)


def clear_progress() -> None:
    if sys.stderr.isatty():
        click.echo(f"\r{'':<{PROGRESS_WIDTH}}\r", err=True, nl=False)
