"""Compare what the pipeline has made with a computation in plain Python over the same topic.

    python check.py                           # after `moldau pipeline run --once`; exit code 1 where something differs
    python check.py --tables spark-warehouse  # after `spark-pipelines run`

Positions less than two minutes before the last one need not be told yet.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from math import acos, cos, isclose, radians, sin
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
LATE = timedelta(minutes=2)
STOP = timedelta(minutes=5)
STANDS_M = 50.0
ZONES = json.loads((Path(__file__).parent / "zones.json").read_text())


class Position(NamedTuple):
    time: datetime
    lat: float
    lon: float


Fleet = dict[str, list[Position]]
"""Each vehicle's positions, each once, by time."""
Event = tuple[str, datetime, str, str | None]
"""Vehicle, time, what, and in which zone."""
Stop = tuple[str, datetime, datetime]


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


def fleet_of(values: Iterable[bytes]) -> tuple[Fleet, int]:
    """The positions, and how many values are none."""
    found: dict[str, set[Position]] = defaultdict(set)
    rejected = 0
    for value in values:
        try:
            one = json.loads(value)
            position = Position(datetime.fromisoformat(one["time"]), one["lat"], one["lon"])
            if abs(position.lat) > 90 or abs(position.lon) > 180 or position[1:] == (0, 0):
                raise ValueError("nowhere")
            found[one["vehicle"]].add(position)
        except (ValueError, KeyError, TypeError):
            rejected += 1
    return {vehicle: sorted(positions) for vehicle, positions in found.items()}, rejected


def metres_between(one: Position, other: Position) -> float:
    a, b = radians(one.lat), radians(other.lat)
    cosine = sin(a) * sin(b) + cos(a) * cos(b) * cos(radians(other.lon - one.lon))
    return 6_371_000.0 * acos(min(1.0, cosine))


def zone_at(position: Position) -> str | None:
    for zone in ZONES:
        centre = Position(position.time, zone["lat"], zone["lon"])
        if metres_between(position, centre) <= zone["radius_m"]:
            return str(zone["zone"])
    return None


def standings(positions: list[Position]) -> Iterator[list[Position]]:
    """The positions, cut where the vehicle is no more within 50 metres of where the cut began."""
    begin = 0
    for at, position in enumerate(positions):
        if metres_between(positions[begin], position) > STANDS_M:
            yield positions[begin:at]
            begin = at
    yield positions[begin:]


def stops_of(fleet: Fleet) -> tuple[set[Stop], set[Event]]:
    """Stops that are over, and the moments at which stops were long enough to be one."""
    over, long_enough = set(), set()
    for vehicle, positions in fleet.items():
        parts = list(standings(positions))
        for part in parts:
            late_enough = [one for one in part if one.time - part[0].time >= STOP]
            if late_enough:
                long_enough.add((vehicle, late_enough[0].time, "stopped", zone_at(late_enough[0])))
                if part is not parts[-1]:
                    over.add((vehicle, part[0].time, part[-1].time))
    return over, long_enough


def crossings(fleet: Fleet) -> Iterator[Event]:
    for vehicle, positions in fleet.items():
        stays = [(zone, next(stay).time) for zone, stay in groupby(positions, zone_at)]
        for (before, _), (after, time) in pairwise(stays):
            if before is not None:
                yield vehicle, time, "left", before
            if after is not None:
                yield vehicle, time, "entered", after


def speeds_of(fleet: Fleet) -> dict[tuple[str, datetime], float | None]:
    """In km/h, by vehicle and time; a vehicle's first position has none."""
    found: dict[tuple[str, datetime], float | None] = {}
    for vehicle, positions in fleet.items():
        found[vehicle, positions[0].time] = None
        for one, other in pairwise(positions):
            seconds = (other.time - one.time) / timedelta(seconds=1)
            found[vehicle, other.time] = metres_between(one, other) / seconds * 3.6
    return found


def table(folder: Path) -> list[dict[str, Any]]:
    """Of Delta, as Moldau's runner keeps it, or a folder of Parquet, as Spark's does."""
    import pyarrow.dataset
    from deltalake import DeltaTable

    files: Any = DeltaTable(folder).file_uris() if (folder / "_delta_log").exists() else folder
    found = pyarrow.dataset.dataset(files).to_table()
    in_utc = pyarrow.timestamp("us", "UTC")  # Spark's Parquet leaves the zone to the reader
    kinds = [in_utc if pyarrow.types.is_timestamp(kind) else kind for kind in found.schema.types]
    fields = [field.with_type(kind) for field, kind in zip(found.schema, kinds, strict=True)]
    rows: list[dict[str, Any]] = found.cast(pyarrow.schema(fields)).to_pylist()
    return rows


class Report:
    def __init__(self) -> None:
        self.is_right = True

    def say(self, what: str, number: int, is_right: bool) -> None:
        self.is_right &= is_right
        print(f"{what}: {number}, {'as expected' if is_right else 'WRONG'}")

    def compare(self, what: str, found: list[Any], expected: set[Any], needed: set[Any]) -> None:
        """Each that is there is right and there once, and each that cannot change any more is there."""
        self.say(what, len(found), len(set(found)) == len(found) and needed <= set(found) <= expected)


def is_near(found: float | None, expected: float | None) -> bool:
    """Two formulas for one distance differ by what a GPS receiver could not see."""
    if found is None or expected is None:
        return found is expected
    return isclose(found, expected, rel_tol=1e-6, abs_tol=0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the results with a computation in plain Python.")
    parser.add_argument("--tables", default="storage", help="the folder that has them")
    tables = Path(parser.parse_args().tables)
    report = Report()
    fleet, rejected = fleet_of(read_topic("positions"))
    watermark = max(positions[-1].time for positions in fleet.values()) - LATE
    report.say("rejected", rejected, len(table(tables / "rejected")) == rejected)
    speeds = speeds_of(fleet)
    rows = table(tables / "tracks")
    times = [(row["vehicle"], row["time"]) for row in rows]
    report.compare("positions", times, set(speeds), {one for one in speeds if one[1] < watermark})
    right = [is_near(row["speed_kmh"], speeds.get((row["vehicle"], row["time"]))) for row in rows]
    report.say("speeds", len(right), all(right))
    over, long_enough = stops_of(fleet)
    stops = [(row["vehicle"], row["stood_since"], row["stood_until"]) for row in table(tables / "stops")]
    report.compare("stops", stops, over, {stop for stop in over if stop[2] < watermark - STOP})
    events = long_enough | set(crossings(fleet))
    told = [json.loads(value) for value in read_topic("fleet-events")]
    found = [
        (one["vehicle"], datetime.fromisoformat(one["time"]), one["event"], one.get("zone")) for one in told
    ]
    for what in ("entered", "left", "stopped"):
        expected = {event for event in events if event[2] == what}
        needed = {event for event in expected if event[1] < watermark}
        report.compare(what, [event for event in found if event[2] == what], expected, needed)
    return 0 if report.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
