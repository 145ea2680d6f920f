"""The counted tables without Spark: rows as the comparison takes them, and files of the last windows read by Arrow."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from moldau.audit.comparison import By, Evidence, Part, begins
from moldau.audit.messages import Counts, Life, parse
from moldau.audit.tally import Tally

Row = Mapping[str, Any]
PRODUCED, IN_TOPICS, IN_LAKE = "produced", "in_topics", "in_lake"


def counts_in(rows: Iterable[Row]) -> list[Counts]:
    found = [parse(row) for row in rows]
    return [one for one in found if isinstance(one, Counts)]


def lives_in(rows: Iterable[Row]) -> list[Life]:
    found = [parse({**row, "kind": "life"}) for row in rows]
    return [one for one in found if isinstance(one, Life)]


def parts_in(rows: Iterable[Row]) -> list[Part]:
    return [
        Part(
            row["topic"],
            row["partition"],
            milliseconds(row["window"]),
            By(row["by"]),
            Tally.of(row["counts"], row["sums"]),
            row["first_offset"],
            row["last_offset"],
        )
        for row in rows
    ]


def begins_in(rows: Iterable[Row]) -> dict[str, int]:
    return begins(
        (row["topic"], row["partition"], row["first_offset"], milliseconds(row["window"])) for row in rows
    )


def milliseconds(time: datetime) -> int:
    aware = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)


def read_evidence(storage: str, since_ms: int) -> Evidence:
    """What the pipeline has counted in windows that begin at a time or later. A table that is not there is empty."""
    import pyarrow.compute as pc

    since = datetime.fromtimestamp(since_ms / 1000, UTC)
    in_range = pc.field("window") >= since
    messages = table_rows(storage, PRODUCED, since)
    firsts = table_rows(storage, IN_TOPICS, columns=["topic", "partition", "window", "first_offset"])
    counts = counts_in(row for row in messages if row["kind"] == "counts")
    return Evidence(
        [one for one in counts if one.window_ms >= since_ms],
        lives_in(row for row in messages if row["kind"] == "life"),
        parts_in(table_rows(storage, IN_TOPICS, since, in_range)),
        parts_in(table_rows(storage, IN_LAKE, since, in_range)),
        begins_in(firsts),
    )


def table_rows(
    storage: str,
    name: str,
    since: datetime | None = None,
    condition: Any = None,
    columns: list[str] | None = None,
) -> list[dict[str, Any]]:
    """Of the days from `since` on."""
    import pyarrow.dataset
    from deltalake import DeltaTable

    path = os.path.join(storage, name)
    if not os.path.isdir(os.path.join(path, "_delta_log")):
        return []
    days = None if since is None else [("date", ">=", since.date().isoformat())]
    files = DeltaTable(path).file_uris(partition_filters=days)
    if not files:
        return []
    table = pyarrow.dataset.dataset(files).to_table(columns=columns, filter=condition)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
