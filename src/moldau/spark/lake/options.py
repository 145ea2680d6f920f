"""What `.option(...)` may say to the format `moldau_lake`, with defaults; a wrong value is refused by its name.

Spark passes options of its own along (checkpointLocation, ...), so an unknown one is only refused where it looks like
one of these misspelled.
"""

from __future__ import annotations

import difflib
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass

DELTA = "delta"
PARQUET = "parquet"
CODECS = ("zstd", "snappy", "gzip", "lz4", "none")

KNOWN = (
    "path",
    "tableFormat",
    "partitionBy",
    "partitionByTime",
    "partitionTimeUnit",
    "mergeSchema",
    "compression",
    "maxRecordsPerFile",
    "maxFileBytes",
    "compactAfter",
    "vacuumRetentionHours",
    "txnAppId",
    "txnVersion",
    "versionAsOf",
    "timestampAsOf",
    "startingVersion",
    "skipChangeCommits",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
)


class BadOption(ValueError):
    """An option, by its name, and what is wrong with it."""


@dataclass(frozen=True)
class Transaction:
    """Who writes, and which of his batches: what is written twice under one name is kept once."""

    app_id: str
    version: int


@dataclass(frozen=True)
class LakeOptions:
    path: str
    table_format: str = DELTA
    partition_by: tuple[str, ...] = ()
    partition_by_time: str | None = None
    partition_time_unit: str = "hour"
    merge_schema: bool = True
    compression: str = "zstd"
    max_records_per_file: int = 10_000_000
    max_file_bytes: int = 128 << 20
    compact_after: int = 0
    vacuum_retention_hours: int = 168
    transaction: Transaction | None = None
    version_as_of: int | None = None
    timestamp_as_of: str | None = None
    starting_version: str | None = None
    skip_change_commits: bool = False
    max_files_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None


def parse(options: Mapping[str, str]) -> LakeOptions:
    """The options of one reader or writer; Spark's names are the same in any case."""
    given = {key.lower(): value for key, value in options.items()}
    _refuse_misspelled(given)
    read = _Reader(given)
    table_format = read.one_of("tableFormat", (DELTA, PARQUET), DELTA)
    parsed = LakeOptions(
        path=local_path(read.text("path")),
        table_format=table_format,
        partition_by=read.names("partitionBy"),
        partition_by_time=given.get("partitionbytime"),
        partition_time_unit=read.one_of("partitionTimeUnit", ("day", "hour"), "hour"),
        merge_schema=read.boolean("mergeSchema", True),
        compression=read.one_of("compression", CODECS, "zstd"),
        max_records_per_file=read.number("maxRecordsPerFile", 10_000_000, least=1),
        max_file_bytes=read.number("maxFileBytes", 128 << 20, least=1),
        compact_after=read.number("compactAfter", 0, least=0),
        vacuum_retention_hours=read.number("vacuumRetentionHours", 168, least=1),
        transaction=_transaction(read),
        version_as_of=read.maybe_number("versionAsOf", least=0),
        timestamp_as_of=given.get("timestampasof"),
        starting_version=_starting_version(read),
        skip_change_commits=read.boolean("skipChangeCommits", False),
        max_files_per_trigger=read.maybe_number("maxFilesPerTrigger", least=1),
        max_bytes_per_trigger=read.maybe_number("maxBytesPerTrigger", least=1),
    )
    _refuse_combinations(parsed)
    return parsed


def local_path(path: str) -> str:
    """`path` without `file:`; what is no folder for Python is refused."""
    if path.startswith("file:"):
        path = urllib.parse.unquote(urllib.parse.urlsplit(path).path)
    if "://" in path:
        raise BadOption(
            f"path={path}: the lake writes to folders of this file system, not to {path.split(':')[0]}://"
        )
    return path.rstrip("/") or "/"


def _refuse_misspelled(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in KNOWN}
    for name in given:
        if name not in known:
            for near in difflib.get_close_matches(name, known, n=1, cutoff=0.85):
                raise BadOption(f"unknown option {name}: did you mean {known[near]}?")


def _refuse_combinations(options: LakeOptions) -> None:
    if options.compact_after and options.table_format == PARQUET:
        raise BadOption(
            "compactAfter needs tableFormat=delta: readers that list a folder's files would see"
            " compacted rows twice, or not at all"
        )
    if options.version_as_of is not None and options.timestamp_as_of is not None:
        raise BadOption("versionAsOf and timestampAsOf exclude each other")
    if options.max_files_per_trigger is not None and options.max_bytes_per_trigger is not None:
        raise BadOption("maxFilesPerTrigger and maxBytesPerTrigger exclude each other")


def _transaction(read: _Reader) -> Transaction | None:
    app_id, version = read.given.get("txnappid"), read.maybe_number("txnVersion", least=0)
    if (app_id is None) != (version is None):
        raise BadOption("txnAppId and txnVersion are given together or not at all")
    return Transaction(app_id, version) if app_id is not None and version is not None else None


def _starting_version(read: _Reader) -> str | None:
    value = read.given.get("startingversion")
    if value is None or value == "latest":
        return value
    return str(read.number("startingVersion", 0, least=0))


class _Reader:
    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def text(self, name: str) -> str:
        value = self.given.get(name.lower(), "")
        if not value:
            raise BadOption(f"{name} is missing")
        return value

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.given.get(name.lower(), default).lower()
        if value not in choices:
            raise BadOption(f"{name}={value}: choose one of {', '.join(choices)}")
        return value

    def boolean(self, name: str, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), "true" if default else "false") == "true"

    def number(self, name: str, default: int, least: int) -> int:
        value = self.maybe_number(name, least)
        return default if value is None else value

    def maybe_number(self, name: str, least: int) -> int | None:
        text = self.given.get(name.lower())
        if text is None:
            return None
        try:
            value = int(text)
        except ValueError:
            raise BadOption(f"{name}={text}: a whole number is wanted") from None
        if value < least:
            raise BadOption(f"{name}={text}: at least {least} is wanted")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.given.get(name.lower(), "").split(",") if part.strip())
