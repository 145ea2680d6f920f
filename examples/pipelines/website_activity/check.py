"""Compare what the pipeline has made with a computation in plain Python over the same topic.

    python check.py                           # after `moldau pipeline run --once`; exit code 1 where something differs
    python check.py --tables spark-warehouse  # after `spark-pipelines run`, whose tables are folders of Parquet

Windows and sessions that may still change (they end less than two minutes before the last view) need not be there yet.
"""

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
HERE = Path(__file__).parent
LATE = timedelta(minutes=2)
SESSION_GAP = timedelta(minutes=5)
MINUTE = timedelta(minutes=1)


class View(NamedTuple):
    visitor: str
    page: str
    time: datetime
    load_ms: int


def read_topic(topic: str) -> Iterator[bytes]:
    """Every value that is there now; of transactions only the committed ones."""
    consumer = Consumer({"bootstrap.servers": BOOTSTRAP, "group.id": "check", "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    open_ends = set(partitions)
    while open_ends:
        message = consumer.poll(30)
        if message is None:
            raise SystemExit(f"{topic}: no answer")
        if message.error() is not None:
            open_ends.discard(message.partition())
        else:
            yield message.value() or b""
    consumer.close()


def views_of(values: Iterator[bytes]) -> tuple[list[View], int]:
    """The views, each once, and how many values are none."""
    found: dict[str, View] = {}
    rejected = 0
    for value in values:
        try:
            view = json.loads(value)
            time = datetime.fromisoformat(view["time"])
            found.setdefault(view["id"], View(view["visitor"], view["page"], time, view["load_ms"]))
        except (ValueError, KeyError, TypeError):
            rejected += 1
    return list(found.values()), rejected


def per_minute(views: list[View]) -> dict[tuple[datetime, str], int]:
    return dict(Counter((view.time.replace(second=0, microsecond=0), view.page) for view in views))


def sessions(views: list[View]) -> dict[tuple[str, datetime], tuple[datetime, int]]:
    """By visitor and start: the end, and how many views."""
    times = defaultdict(list)
    for view in views:
        times[view.visitor].append(view.time)
    found: dict[tuple[str, datetime], tuple[datetime, int]] = {}
    for visitor, all_times in times.items():
        start = last = None
        count = 0
        for time in sorted(all_times):
            if last is None or start is None or time - last >= SESSION_GAP:
                start, count = time, 0
            count, last = count + 1, time
            found[visitor, start] = last + SESSION_GAP, count
    return found


def table(folder: Path) -> list[dict[str, Any]]:
    """Of Delta, as Moldau's runner keeps it, or a folder of Parquet, as Spark's does."""
    import pyarrow as pa
    import pyarrow.dataset
    from deltalake import DeltaTable

    files: Any = DeltaTable(folder).file_uris() if (folder / "_delta_log").is_dir() else folder
    found = pyarrow.dataset.dataset(files).to_table()
    in_utc = pa.timestamp("us", "UTC")  # Spark's Parquet leaves the zone to the reader
    kinds = [in_utc if pa.types.is_timestamp(kind) else kind for kind in found.schema.types]
    fields = [field.with_type(kind) for field, kind in zip(found.schema, kinds, strict=True)]
    rows: list[dict[str, Any]] = found.cast(pa.schema(fields)).to_pylist()
    return rows


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def compare(self, what: str, found: object, expected: object) -> None:
        same = found == expected
        self.is_right &= same
        size = len(expected) if hasattr(expected, "__len__") else expected
        print(f"{what}: {size}, {'as expected' if same else 'WRONG'}")

    def compare_windows(self, what: str, found: list[tuple], expected: dict, closed: dict) -> None:
        """Each that is there is right and there once, and each that cannot change any more is there."""
        complete = {**{key: expected.get(key) for key, _ in found}, **closed}
        self.compare(what, Counter(found), Counter(complete.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the results with a computation in plain Python.")
    parser.add_argument("--tables", default="storage", help="the folder that has them")
    tables = HERE / parser.parse_args().tables
    report = Report()
    views, rejected = views_of(read_topic("page-views"))
    watermark = max(view.time for view in views) - LATE
    rows = table(tables / "page_views")
    kept = Counter(View(row["visitor"], row["page"], row["time"], row["load_ms"]) for row in rows)
    report.compare("page views", kept, Counter(views))
    report.compare("rejected", len(table(tables / "rejected")), rejected)
    minutes = per_minute(views)
    told = [json.loads(value) for value in read_topic("page-views-per-minute")]
    counted = [((datetime.fromisoformat(row["minute"]), row["page"]), row["views"]) for row in told]
    closed = {key: count for key, count in minutes.items() if key[0] + MINUTE <= watermark}
    report.compare_windows("minutes and pages", counted, minutes, closed)
    expected = sessions(views)
    rows = table(tables / "sessions")
    found = [((row["visitor"], row["start"]), (row["end"], row["views"])) for row in rows]
    ended = {key: value for key, value in expected.items() if value[0] <= watermark}
    report.compare_windows("sessions", found, expected, ended)
    pages = Counter(view.page for view in views)
    counts = {row["page"]: row["views"] for row in table(tables / "top_pages")}
    report.compare("top pages", counts, dict(pages))
    hours = defaultdict(set)
    for view in views:
        hours[view.time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)].add(view.visitor)
    visitors = {row["hour"]: row["visitors"] for row in table(tables / "visitors_per_hour")}
    report.compare("visitors per hour", visitors, {hour: len(who) for hour, who in hours.items()})
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
