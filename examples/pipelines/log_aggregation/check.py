"""Compare the lake with the topic, record by record, and its answers with a computation in plain Python.

python check.py            # after `moldau pipeline run --once`; exit code 1 where something differs
"""

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
LINE = re.compile(
    r"(?P<time>\S+Z) (?P<level>DEBUG|INFO|WARN|ERROR) (?P<service>\S+) (?P<id>\S+) "
    r"(?:(?P<method>GET|POST|PUT|DELETE) (?P<endpoint>\S+) (?P<status>\d{3}) (?P<duration_ms>\d+)ms ?)?(?P<message>.*)"
)

Place = tuple[int, int]
"""Partition and offset."""


class Line(NamedTuple):
    time: datetime
    level: str
    service: str
    id: str
    method: str | None
    endpoint: str | None
    status: int | None
    duration_ms: int | None
    message: str | None


def read_topic(topic: str) -> Iterator[Message]:
    """Every record that is there now."""
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
            yield message
    consumer.close()


def parse(value: bytes) -> Line | None:
    """None where it is no log line."""
    try:
        found = LINE.fullmatch(value.decode())
        if found is None:
            return None
        time = datetime.fromisoformat(found["time"])
    except ValueError:
        return None
    numbers = {name: None if found[name] is None else int(found[name]) for name in ("status", "duration_ms")}
    return Line(**{**found.groupdict(), **numbers, "time": time, "message": found["message"] or None})


def errors(lines: Iterable[Line]) -> list[tuple[str, str, int, int, int]]:
    """Service, date, hour, lines, errors: each line once."""
    counted: Counter[tuple[str, str, int]] = Counter()
    failed: Counter[tuple[str, str, int]] = Counter()
    for line in set(lines):
        time = line.time.astimezone(UTC)
        key = line.service, time.date().isoformat(), time.hour
        counted[key] += 1
        failed[key] += line.level == "ERROR"
    return [(*key, counted[key], failed[key]) for key in sorted(counted)]


def slowest(lines: Iterable[Line]) -> list[tuple[str, int, float]]:
    """Endpoint, requests, 95th percentile of the duration."""
    durations = defaultdict(list)
    for line in set(lines):
        if line.endpoint is not None and line.duration_ms is not None:
            endpoint = re.sub("[0-9]+$", "ID", line.endpoint)
            durations[f"{line.service} {line.method} {endpoint}"].append(line.duration_ms)
    found = [(name, len(times), percentile(sorted(times), 0.95)) for name, times in durations.items()]
    return sorted(found, key=lambda row: (-row[2], row[0]))[:5]


def percentile(ordered: list[int], share: float) -> float:
    """Between the two values around the place, as SQL's percentile_cont."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 6)


def table(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table of the lake, with the columns of its folders."""
    import pyarrow.dataset
    from deltalake import DeltaTable

    files = DeltaTable(folder).file_uris()
    return pyarrow.dataset.dataset(files, partitioning="hive").to_table().to_pylist()


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def compare(self, what: str, found: object, expected: object) -> None:
        same = found == expected
        self.is_right &= same
        size = len(expected) if hasattr(expected, "__len__") else expected
        print(f"{what}: {size}, {'as expected' if same else 'WRONG'}")


def main() -> int:
    import query  # the program beside this one

    report = Report()
    lines: dict[Place, Line] = {}
    unparsed: dict[Place, bytes] = {}
    for message in read_topic("service-logs"):
        place = message.partition(), message.offset()
        value = message.value() or b""
        line = parse(value)
        if line is None:
            unparsed[place] = value
        else:
            lines[place] = line
    rows = table(query.LAKE / "lines")
    places = Counter((row.pop("partition"), row.pop("offset")) for row in list(rows))
    report.compare("lines, each once", places, Counter(lines.keys()))
    folders = [(str(row.pop("date")), int(row.pop("hour")), row["time"]) for row in rows]
    report.compare("lines, each in its hour", [one for one in folders if not is_in_its_hour(*one)], [])
    report.compare("lines, as they were sent", Counter(Line(**row) for row in rows), Counter(lines.values()))
    rest = [((row["partition"], row["offset"]), row["value"]) for row in table(query.LAKE / "unparsed")]
    report.compare("unparsed, each once", sorted(rest), sorted(unparsed.items()))
    lake = query.DuckDb()
    report.compare("hours of services", lake.rows(query.ERRORS), errors(lines.values()))
    found = [(name, requests, round(p95_ms, 6)) for name, requests, p95_ms in lake.rows(query.SLOWEST)]
    report.compare("slowest endpoints", found, slowest(lines.values()))
    return 0 if report.is_right else 1


def is_in_its_hour(date: str, hour: int, time: datetime) -> bool:
    time = time.astimezone(UTC)
    return (date, hour) == (time.date().isoformat(), time.hour)


if __name__ == "__main__":
    sys.exit(main())
