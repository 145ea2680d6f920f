"""Positions of vehicles from the topic `positions`: each with its speed, the stops, and what is entered and left.

A position may come up to two minutes late, and twice. What is none goes to a table of its own.

Each result depends on the vehicle's position before, by the time at which it was taken and not by when it came. Spark
has no `lag()` over a stream, so this is `transformWithState`: a vehicle's positions are kept until the watermark has
passed them, and are then taken in the order of their times. Nothing that comes later can change what was told.
"""

import json
import math
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DoubleType, StringType, StructField, StructType, TimestampType

BROKERS = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
POSITION = StructType(
    [
        StructField("vehicle", StringType()),
        StructField("time", TimestampType()),
        StructField("lat", DoubleType()),
        StructField("lon", DoubleType()),
    ]
)
IS_POSITION = (
    "one.vehicle IS NOT NULL AND one.time IS NOT NULL AND coalesce(abs(one.lat) <= 90 AND abs(one.lon) <= 180, false) "
    "AND NOT (one.lat = 0 AND one.lon = 0)"  # what a receiver says that knows nothing
)
LATE = "2 minutes"
STANDS_M = 50.0
"""Who stays within so many metres stands."""
STOP_S = 300
"""Who stands for so long has stopped."""
EARTH_M = 6_371_000.0
ZONES = [
    (zone["zone"], zone["lat"], zone["lon"], zone["radius_m"])
    for zone in json.loads((Path(__file__).parents[1] / "zones.json").read_text())
]

spark = SparkSession.active()


def positions_read() -> DataFrame:
    rows = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", BROKERS)
        .option("subscribe", "positions")
        .option("startingOffsets", "earliest")
        .load()
    )
    text = F.col("value").cast("string")
    one = rows.select(F.from_json(text, POSITION).alias("one"), text.alias("text"), "partition", "offset")
    return one.withColumn("is_right", F.expr(IS_POSITION))


@dp.table
def rejected() -> DataFrame:
    """What is no position, and where it lies in the topic."""
    return positions_read().where("NOT is_right").select("partition", "offset", "text")


class Seen(NamedTuple):
    """What is kept of a vehicle: its last position, and where and since when it stands."""

    time_ms: int
    lat: float
    lon: float
    zone: str | None
    stands_since_ms: int
    stands_lat: float
    stands_lon: float


SEEN = (
    "time_ms BIGINT, lat DOUBLE, lon DOUBLE, zone STRING, "
    "stands_since_ms BIGINT, stands_lat DOUBLE, stands_lon DOUBLE"
)
WAITING = "time_ms BIGINT, lat DOUBLE, lon DOUBLE"
STEP = StructType(
    [
        *POSITION.fields,
        StructField("metres", DoubleType()),
        StructField("speed_kmh", DoubleType()),
        StructField("zone", StringType()),
        StructField("entered", StringType()),
        StructField("left", StringType()),
        StructField("stopped_since", TimestampType()),
        StructField("stood_since", TimestampType()),
        StructField("stood_until", TimestampType()),
    ]
)
"""A position with what it tells: `stopped_since` when a stop is long enough to be one, the last two when it is over."""


def metres_between(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    a, b = math.radians(lat), math.radians(other_lat)
    half = math.sin((b - a) / 2) ** 2
    half += math.cos(a) * math.cos(b) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return 2 * EARTH_M * math.asin(math.sqrt(half))


def zone_at(lat: float, lon: float) -> str | None:
    inside = (zone for zone, at, by, radius_m in ZONES if metres_between(lat, lon, at, by) <= radius_m)
    return next(inside, None)


def moment(time_ms: int | None) -> datetime | None:
    return None if time_ms is None else datetime.fromtimestamp(time_ms / 1000, UTC)


def step(vehicle: str, seen: Seen | None, time_ms: int, lat: float, lon: float) -> tuple[Row, Seen]:
    """The next position of a vehicle: what it tells, and what is to be kept."""
    zone = zone_at(lat, lon)
    stands = time_ms, lat, lon
    metres = speed_kmh = entered = left = stopped = stood_since = stood_until = None
    if seen is not None:
        metres = metres_between(seen.lat, seen.lon, lat, lon)
        speed_kmh = metres / (time_ms - seen.time_ms) * 3600
        if zone != seen.zone:
            entered, left = zone, seen.zone
        stood_ms = seen.time_ms - seen.stands_since_ms
        if metres_between(seen.stands_lat, seen.stands_lon, lat, lon) <= STANDS_M:
            stands = seen.stands_since_ms, seen.stands_lat, seen.stands_lon
            if stood_ms < STOP_S * 1000 <= time_ms - seen.stands_since_ms:
                stopped = seen.stands_since_ms
        elif stood_ms >= STOP_S * 1000:
            stood_since, stood_until = seen.stands_since_ms, seen.time_ms
    told = Row(
        vehicle=vehicle,
        time=moment(time_ms),
        lat=lat,
        lon=lon,
        metres=metres,
        speed_kmh=speed_kmh,
        zone=zone,
        entered=entered,
        left=left,
        stopped_since=moment(stopped),
        stood_since=moment(stood_since),
        stood_until=moment(stood_until),
    )
    return told, Seen(time_ms, lat, lon, zone, *stands)


class Track(StatefulProcessor):
    """One vehicle's positions, in the order of their times."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._seen = handle.getValueState("seen", SEEN)
        self._waiting = handle.getListState("waiting", WAITING)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        self._waiting.appendList([(int(row.time.timestamp() * 1000 + 0.5), row.lat, row.lon) for row in rows])
        yield from self._take(key[0], timerValues.getCurrentWatermarkInMs())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield from self._take(key[0], timerValues.getCurrentWatermarkInMs())

    def _take(self, vehicle: str, watermark_ms: int) -> Iterator[Row]:
        """What the watermark has passed; a timer wakes us for the rest."""
        kept = self._seen.get()
        seen = None if kept is None else Seen(*kept)
        waiting = sorted(set(map(tuple, self._waiting.get())))
        due = [one for one in waiting if one[0] <= watermark_ms]
        for time_ms, lat, lon in due:
            if seen is None or time_ms > seen.time_ms:  # else it came twice
                told, seen = step(vehicle, seen, time_ms, lat, lon)
                yield told
        if due and seen is not None:
            self._seen.update(tuple(seen))
        rest = waiting[len(due) :]
        if rest:
            self._waiting.put(rest)
            self._handle.registerTimer(rest[0][0])
        else:
            self._waiting.clear()

    def close(self) -> None:
        """Nothing is open."""


@dp.table
def tracks() -> DataFrame:
    """Every position once, in the order of each vehicle's times."""
    positions = positions_read().where("is_right").select("one.*")
    return (
        positions.withWatermark("time", LATE)
        .to(POSITION)  # says the columns, which nobody may ask for while Spark's own runner declares flows
        .groupBy("vehicle")
        .transformWithState(Track(), outputStructType=STEP, outputMode="Append", timeMode="EventTime")
    )


@dp.table
def stops() -> DataFrame:
    """Where vehicles have stood for at least five minutes, known when they have moved on."""
    over = spark.readStream.table("tracks").where("stood_since IS NOT NULL")
    seconds = F.col("stood_until").cast("long") - F.col("stood_since").cast("long")
    return over.select("vehicle", "stood_since", "stood_until", seconds.alias("seconds"))


dp.create_sink(
    "fleet_events",
    "moldau",
    {"kafka.bootstrap.servers": BROKERS, "topic": "fleet-events", "exactlyOnce": "true"},
)


@dp.append_flow(target="fleet_events")
def tell() -> DataFrame:
    """Zones left and entered, and stops as soon as they are long enough."""
    tracks = spark.readStream.table("tracks")
    left = F.struct(F.lit("left").alias("event"), F.col("left").alias("zone"))
    entered = F.struct(F.lit("entered").alias("event"), F.col("entered").alias("zone"))
    stopped = F.struct(F.lit("stopped").alias("event"), F.col("zone").alias("zone"))
    found = F.array(
        F.when(F.col("left").isNotNull(), left),
        F.when(F.col("entered").isNotNull(), entered),
        F.when(F.col("stopped_since").isNotNull(), stopped),
    )
    told = tracks.select("*", F.explode(F.filter(found, lambda one: one.isNotNull())).alias("told"))
    row = F.struct("vehicle", "time", "told.event", "told.zone", "stopped_since", "lat", "lon")
    return told.select(F.col("vehicle").alias("key"), F.to_json(row).alias("value"))
