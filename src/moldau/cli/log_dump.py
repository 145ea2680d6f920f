"""`moldau log dump`: what is in the files of a log, as a table for people or as JSON lines.

It reads piece by piece, so a segment of any size needs no more memory than its largest batch.
"""

from __future__ import annotations

import os

import click

from moldau.cli.complete import files
from moldau.cli.errors import file_error, not_found, usage
from moldau.cli.help import Command
from moldau.cli.log_disk import ReadOnlyDisk
from moldau.cli.log_dump_print import JsonPrinter, Printer, TextPrinter
from moldau.cli.log_dump_small import SMALL_FILES, dump_small
from moldau.cli.log_places import DEFAULT_DATA, data_folders, existing, shown
from moldau.cli.message_format import ENCODINGS
from moldau.cli.options import Whole, json_option
from moldau.cli.output import note
from moldau.log import names
from moldau.log.index import OFFSET_ENTRY, TIME_ENTRY
from moldau.log.inspect.batches import BadStretch
from moldau.log.inspect.dump import segment_content
from moldau.log.inspect.files import OFFSET_CHECKPOINTS, TRANSACTION_INDEX, LogFiles, Place, partitions_in
from moldau.log.inspect.indexes import IndexFile
from moldau.log.transactions_index import ENTRY as TRANSACTION_ENTRY

INDEXES = {
    names.OFFSET_INDEX: OFFSET_ENTRY,
    names.TIME_INDEX: TIME_ENTRY,
    TRANSACTION_INDEX: TRANSACTION_ENTRY,
}


@click.command(
    cls=Command,
    examples="""
# The batches of a segment
moldau log dump orders-0/00000000000000000000.log
# Ten records of a partition, from an offset on
moldau log dump moldau-data -t orders -p 0 --decode --from 1500 -n 10
# What a group has committed, and when
moldau log dump moldau-data -t __consumer_offsets --decode | grep billing
# Indexes, snapshots and checkpoints are read as well
moldau log dump orders-0/00000000000000000000.timeindex
moldau log dump moldau-data/broker-1/recovery-point-offset-checkpoint
# For programs: one JSON object per line
moldau log dump orders-0 --json | jq 'select(.type == "batch").size'
""",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=files)
@click.option("-t", "--topic", metavar="TOPIC", help="In a data folder: the logs of this topic.")
@click.option("-p", "--partition", type=Whole(0), metavar="N", help="Only this partition of the topic.")
@click.option(
    "-d", "--decode", is_flag=True, help="Show the records, those of groups and transactions in words."
)
@click.option("-i", "--indexes", is_flag=True, help="In a folder: index entries too.")
@click.option("--from", "start", type=Whole(0), default=0, metavar="OFFSET", help="Begin at this offset.")
@click.option(
    "-n", "--count", type=Whole(0), metavar="N", help="Stop after so many batches, or records with --decode."
)
@click.option("--key-as", type=click.Choice(ENCODINGS), default="text", help="How keys are written.")
@click.option("--value-as", type=click.Choice(ENCODINGS), default="text", help="How values are written.")
@json_option("Print one JSON object per line.")
def dump(
    paths: tuple[str, ...],
    topic: str | None,
    partition: int | None,
    decode: bool,
    indexes: bool,
    start: int,
    count: int | None,
    key_as: str,
    value_as: str,
    as_json: bool,
) -> None:
    """Show what is in the files of a log.

    PATH is a file of a log, the folder of a partition, or a data folder with --topic (without one, its small
    files are shown). Nothing is changed, and a running broker is not disturbed.
    """
    if partition is not None and topic is None:
        raise usage("--partition needs a --topic.", "Or name the folder of the partition.")
    disk = ReadOnlyDisk()
    printer: Printer = JsonPrinter() if as_json else TextPrinter(key_as, value_as)
    work = Dump(disk, printer, decode=decode, indexes=indexes, start=start, count=count)
    try:
        for path in paths or (DEFAULT_DATA,):
            work.path(path, topic, partition)
            if work.left == 0:
                break
    except PermissionError as error:
        raise file_error(error, str(error.filename)) from error


class Dump:
    """One run: where to begin, how much is left to show."""

    def __init__(
        self,
        disk: ReadOnlyDisk,
        printer: Printer,
        *,
        decode: bool,
        indexes: bool,
        start: int,
        count: int | None,
    ) -> None:
        self._disk = disk
        self._printer = printer
        self._decode = decode
        self._indexes = indexes
        self._start = start
        self.left = count
        """Batches or records that may still be shown; None: all."""

    def path(self, path: str, topic: str | None, partition: int | None) -> None:
        path, place = existing(self._disk, path)
        if place is Place.FILE:
            self.file(path)
        elif place is Place.PARTITION:
            self.partition(path)
        elif topic is None:
            for folder in data_folders(self._disk, path, place):
                self._small_files(folder)
            note("Name a topic with --topic to see its logs.")
        else:
            for folder in self._folders(path, place, topic, partition):
                self.partition(folder)

    def _folders(self, path: str, place: Place, topic: str, partition: int | None) -> list[str]:
        found = [
            (name, folder)
            for data in data_folders(self._disk, path, place)
            for name, folder in partitions_in(self._disk, data)
            if name.topic == topic
        ]
        if not found:
            raise not_found(
                f"{path} holds no partition of topic '{topic}'.", "`moldau log du` shows what it holds."
            )
        wanted = [folder for name, folder in found if partition in (None, name.partition)]
        if not wanted:
            raise not_found(f"{path} holds no partition {partition} of topic '{topic}'.")
        return wanted

    def _small_files(self, folder: str) -> None:
        for name in (names.META_PROPERTIES, names.CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS):
            if self._disk.exists(f"{folder}/{name}"):
                self.file(f"{folder}/{name}")

    def partition(self, folder: str) -> None:
        files = LogFiles(self._disk, folder)
        for name in (names.PARTITION_METADATA, names.LEADER_EPOCHS):
            if name in files.names:
                self.file(f"{folder}/{name}")
        for base_offset in files.segments_from(self._start):
            self._segment(files, base_offset)
            if self._indexes:
                for suffix in INDEXES:
                    if files.has(base_offset, suffix):
                        self._index(files.path(base_offset, suffix), base_offset, suffix)
            if self.left == 0:
                return
        for offset in files.snapshots:
            self.file(files.path(offset, names.SNAPSHOT))

    def file(self, path: str) -> None:
        folder, name = os.path.split(path)
        stem, suffix = os.path.splitext(name)
        if suffix in (names.DELETED, names.TEMPORARY):
            suffix = os.path.splitext(stem)[1]
        base_offset = names.offset_of(name, suffix)
        if name in SMALL_FILES or suffix == names.SNAPSHOT:
            self._printer.heading(shown(path))
            dump_small(self._disk.read(path), path, name, self._printer)
        elif base_offset is None:
            raise usage(
                f"{path} is no file of a log.",
                f"Known are {', '.join((names.LOG, *INDEXES, names.SNAPSHOT))} and checkpoints.",
            )
        elif suffix == names.LOG:
            self._segment(LogFiles(self._disk, folder or "."), base_offset)
        else:
            self._index(path, base_offset, suffix)

    def _segment(self, files: LogFiles, base_offset: int) -> None:
        path = files.path(base_offset, names.LOG)
        self._printer.heading(shown(path))
        self._printer.batch_columns()
        content = segment_content(
            self._disk, files, base_offset, from_offset=self._start, decode=self._decode
        )
        for piece in content:
            if self.left == 0:
                return
            if isinstance(piece, BadStretch):
                self._printer.damage(path, piece)
                continue
            records = piece.records
            if records is not None and self.left is not None:
                records = records[: self.left]
            self._printer.batch(path, piece.batch, records, piece.damage)
            if self.left is not None:
                self.left -= 1 if records is None else len(records)

    def _index(self, path: str, base_offset: int, suffix: str) -> None:
        self._printer.heading(shown(path))
        index = IndexFile(self._disk, path, INDEXES[suffix])
        for entry in index.entries():
            self._printer.index_entry(path, suffix, base_offset, entry)
        if not index.size:
            self._printer.nothing()
        if index.zeroes_at is not None:
            self._printer.remark(path, index.zeroes_at, f"{index.size - index.zeroes_at} zero bytes follow")
        if index.rest_bytes:
            self._printer.remark(
                path, index.size - index.rest_bytes, f"{index.rest_bytes} bytes are left over"
            )
