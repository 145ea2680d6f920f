"""Compare what the pipeline has made with a computation in plain Python over the same topic.

    python check.py            # after `moldau pipeline run --once`; exit code 1 where something differs

Windows and sessions that may still change (they end less than two minutes before the last view) need not be there yet.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pyarrow.dataset
from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
STORAGE = Path(__file__).parent / "storage"
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


def table(name: str) -> list[dict[str, object]]:
    files = DeltaTable(STORAGE / name).file_uris()
    rows: list[dict[str, object]] = pyarrow.dataset.dataset(files).to_table().to_pylist()
    return rows


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def compare(self, what: str, found: object, expected: object) -> None:
        same = found == expected
        self.is_right &= same
        size = len(expected) if hasattr(expected, "__len__") else expected
        print(f"{what}: {size}, {'as expected' if same else 'WRONG'}")


def check_windows(report: Report, what: str, found: dict, expected: dict, closed: dict) -> None:
    """Each that is there is right, and each that cannot change any more is there."""
    report.compare(what, {**found, **closed}, {**{key: expected.get(key) for key in found}, **closed})
    report.compare(f"{what}, complete", sorted(closed.keys() - found.keys()), [])


def main() -> int:
    report = Report()
    views, rejected = views_of(read_topic("page-views"))
    watermark = max(view.time for view in views) - LATE
    report.compare("page views", len(table("page_views")), len(views))
    report.compare("rejected", len(table("rejected")), rejected)
    minutes = per_minute(views)
    rows = [json.loads(value) for value in read_topic("page-views-per-minute")]
    counted = {(datetime.fromisoformat(row["minute"]), row["page"]): row["views"] for row in rows}
    report.compare("minutes, each once", len(rows), len(counted))
    closed = {key: count for key, count in minutes.items() if key[0] + MINUTE <= watermark}
    check_windows(report, "minutes and pages", counted, minutes, closed)
    expected = sessions(views)
    found = {(row["visitor"], row["start"]): (row["end"], row["views"]) for row in table("sessions")}
    ended = {key: value for key, value in expected.items() if value[0] <= watermark}
    check_windows(report, "sessions", found, expected, ended)
    pages = Counter(view.page for view in views)
    report.compare("top pages", {row["page"]: row["views"] for row in table("top_pages")}, dict(pages))
    hours = defaultdict(set)
    for view in views:
        hours[view.time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)].add(view.visitor)
    visitors = {row["hour"]: row["visitors"] for row in table("visitors_per_hour")}
    report.compare("visitors per hour", visitors, {hour: len(who) for hour, who in hours.items()})
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
