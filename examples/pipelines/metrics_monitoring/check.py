"""Compare what the pipeline has made with a computation in plain Python over the same topic.

    python check.py                           # after `moldau pipeline run --once`; exit code 1 where something differs
    python check.py --tables spark-warehouse  # after `spark-pipelines run`, whose tables are folders of Parquet

Windows that may still change (they end less than two minutes before the last sample) need not be there yet.
"""

import argparse
import json
import math
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
HERE = Path(__file__).parent
LATE = timedelta(minutes=2)
MINUTE = timedelta(minutes=1)
WATCHED = timedelta(minutes=5)
SILENT = timedelta(minutes=3)
LIMITS = {"cpu": 90.0, "disk": 95.0, "errors": 0.05}
PERCENTAGES = ("cpu", "memory", "disk")
COUNTS = ("requests", "errors")
MALFORMED = "not the JSON of a sample"

Place = tuple[int, int]
"""Partition and offset."""


class Sample(NamedTuple):
    host: str
    time: datetime
    cpu: float
    memory: float
    disk: float
    requests: int
    errors: int


class Alert(NamedTuple):
    host: str
    rule: str
    value: float | None
    start: datetime
    end: datetime


def read_topic(topic: str) -> Iterator[Message]:
    """Every record that is there now; of transactions only the committed ones."""
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


def parse(value: bytes | None) -> Sample | str:
    """A sample, or what is wrong with it."""
    if value is None:
        return "no host or no time"
    try:
        found = json.loads(value)
        time = None if found.get("time") is None else datetime.fromisoformat(found["time"])
    except (ValueError, AttributeError, TypeError):
        return MALFORMED
    numbers = {name: found.get(name) for name in (*PERCENTAGES, *COUNTS)}
    if any(isinstance(number, str) for number in numbers.values()):
        return MALFORMED
    if found.get("host") is None or time is None:
        return "no host or no time"
    if not all(numbers[name] is not None and 0 <= numbers[name] <= 100 for name in PERCENTAGES):
        return "no percentage"
    if not all(numbers[name] is not None and numbers[name] >= 0 for name in COUNTS):
        return "no count"
    return Sample(found["host"], time, **numbers)


def windows(samples: Iterable[Sample], length: timedelta) -> dict[tuple[datetime, str], list[Sample]]:
    """By begin and host."""
    found = defaultdict(list)
    for sample in samples:
        begin = sample.time - (sample.time - datetime.fromtimestamp(0, UTC)) % length
        found[begin, sample.host].append(sample)
    return found


def measures(samples: list[Sample]) -> dict[str, float]:
    """One minute of a host, by the names of the columns."""
    cpu = sorted(sample.cpu for sample in samples)
    return {
        "samples": len(samples),
        "cpu_avg": rounded(math.fsum(cpu) / len(cpu)),
        "cpu_max": cpu[-1],
        "cpu_p95": rounded(percentile(cpu, 0.95)),
        "memory_max": max(sample.memory for sample in samples),
        "disk_max": max(sample.disk for sample in samples),
        "requests": sum(sample.requests for sample in samples),
        "errors": sum(sample.errors for sample in samples),
    }


def percentile(ordered: list[float], share: float) -> float:
    """Between the two values around the place, as SQL's percentile_cont."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rounded(value: float) -> float:
    """Sums in another order differ in the last digits."""
    return round(value, 6)


def too_much(samples: Iterable[Sample]) -> Iterator[Alert]:
    for (begin, host), together in windows(samples, WATCHED).items():
        found = {
            "cpu": math.fsum(sample.cpu for sample in together) / len(together),
            "disk": max(sample.disk for sample in together),
            "errors": sum(sample.errors for sample in together)
            / max(sum(sample.requests for sample in together), 1),
        }
        for rule, limit in LIMITS.items():
            if found[rule] > limit:
                yield Alert(host, rule, round(found[rule], 3), begin, begin + WATCHED)


def silences(samples: Iterable[Sample]) -> Iterator[Alert]:
    """After the last sample before a pause of three minutes, and after the last one of all."""
    times = defaultdict(list)
    for sample in samples:
        times[sample.host].append(sample.time)
    for host, all_times in times.items():
        all_times.sort()
        for time, following in zip(all_times, [*all_times[1:], None], strict=True):
            if following is None or following - time >= SILENT:
                yield Alert(host, "silent", None, time, time + SILENT)


def alert_of(value: bytes) -> Alert:
    found = json.loads(value)
    start, end = (datetime.fromisoformat(found[name]) for name in ("start", "end"))
    return Alert(found["host"], found["rule"], found.get("value"), start, end)


class Tables:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, name: str) -> list[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.dataset
        from deltalake import DeltaTable

        folder = self._folder / name
        is_delta = (folder / "_delta_log").is_dir()
        files = DeltaTable(folder).file_uris() if is_delta else sorted(map(str, folder.glob("*.parquet")))
        table = pyarrow.dataset.dataset(files).to_table()
        for index, field in enumerate(table.schema):
            if pa.types.is_timestamp(field.type):  # Spark's own files do not say that they mean UTC
                times = (
                    table.column(index)
                    .cast(pa.timestamp("us", field.type.tz))
                    .cast(pa.timestamp("us", "UTC"))
                )
                table = table.set_column(index, field.name, times)
        return table.to_pylist()


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def compare(self, what: str, found: object, expected: object) -> None:
        same = found == expected
        self.is_right &= same
        size = len(expected) if hasattr(expected, "__len__") else expected
        print(f"{what}: {size}, {'as expected' if same else 'WRONG'}")

    def compare_windows(self, what: str, found: dict, expected: dict, closed: dict) -> None:
        """Each that is there is right, and each that cannot change any more is there."""
        complete = {**{key: expected.get(key) for key in found}, **closed}
        self.compare(what, {key: found.get(key) for key in complete}, complete)


def check_minutes(report: Report, tables: Tables, samples: set[Sample], watermark: datetime) -> None:
    expected = {key: measures(together) for key, together in windows(samples, MINUTE).items()}
    rows = tables.rows("host_minutes")
    found = {}
    for row in rows:
        key = row.pop("minute"), row.pop("host")
        found[key] = {**row, "cpu_avg": rounded(row["cpu_avg"]), "cpu_p95": rounded(row["cpu_p95"])}
    report.compare("minutes, each once", len(rows), len(found))
    closed = {key: value for key, value in expected.items() if key[0] + MINUTE <= watermark}
    report.compare_windows("minutes", found, expected, closed)


def check_alerts(report: Report, samples: set[Sample], watermark: datetime) -> None:
    expected = dict.fromkeys([*too_much(samples), *silences(samples)], 1)
    found = Counter(alert_of(message.value()) for message in read_topic("alerts"))
    for rule in (*LIMITS, "silent"):
        of_rule = {alert: times for alert, times in found.items() if alert.rule == rule}
        closed = {alert: 1 for alert in expected if alert.rule == rule and alert.end <= watermark}
        report.compare_windows(f"alerts, {rule}", of_rule, expected, closed)


def check_rejected(report: Report, expected: dict[Place, tuple[str, bytes | None]]) -> None:
    found: dict[Place, list[tuple[str, bytes | None]]] = defaultdict(list)
    for message in read_topic("host-metrics-rejected"):
        headers = {name: value.decode() for name, value in message.headers()}
        place = int(headers["partition"]), int(headers["offset"])
        is_as_it_came = headers["reason"] == MALFORMED
        found[place].append((headers["reason"], message.value() if is_as_it_came else None))
    report.compare("rejected", dict(found), {place: [value] for place, value in expected.items()})


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the results of the monitoring pipeline.")
    parser.add_argument("--tables", type=Path, default=Path("storage"), help="the folder with the tables")
    tables = Tables(HERE / parser.parse_args().tables)
    report = Report()
    samples: set[Sample] = set()
    rejected: dict[Place, tuple[str, bytes | None]] = {}
    for message in read_topic("host-metrics"):
        value = message.value()
        match parse(value):
            case Sample() as sample:
                samples.add(sample)
            case reason:
                place = message.partition(), message.offset()
                rejected[place] = reason, value if reason == MALFORMED else None
    watermark = max(sample.time for sample in samples) - LATE
    report.compare("samples", Counter(Sample(**row) for row in tables.rows("samples")), Counter(samples))
    check_rejected(report, rejected)
    check_minutes(report, tables, samples, watermark)
    check_alerts(report, samples, watermark)
    hosts = {row["host"]: (row["samples"], row["last_seen"], row["requests"]) for row in tables.rows("hosts")}
    expected = {}
    for host in {sample.host for sample in samples}:
        own = [sample for sample in samples if sample.host == host]
        expected[host] = len(own), max(one.time for one in own), sum(one.requests for one in own)
    report.compare("hosts", hosts, expected)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
