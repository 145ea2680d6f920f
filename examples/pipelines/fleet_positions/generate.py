"""Positions of vehicles that drive from place to place, stand there for a while, and wait at lights on the way.

    python generate.py                      # two hours of 12 vehicles, as fast as it goes
    python generate.py --live               # one every ten seconds of each vehicle, for ever
    python generate.py --records 500 --seed 7

One in fifty is sent twice, some come up to a minute late, one in two hundred is no position at all.
"""

import argparse
import heapq
import json
import math
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
TOPIC = "positions"
EVERY_S = 10.0
LATE_S_MAX = 60.0
METRES_PER_DEGREE = 111_195.0
JITTER_M = 3.0
"""A receiver that does not move sees itself move so much."""
MALFORMED = (
    b"",
    b"not json",
    b'{"vehicle": "truck-1", "time": "2026-',
    b'{"vehicle": "truck-1", "lat": 52.5, "lon": 13.4}',
    b'{"vehicle": "truck-1", "time": "2026-11-05T00:00:00Z", "lat": 0, "lon": 0}',
    b'{"vehicle": "truck-1", "time": "2026-11-05T00:00:00Z", "lat": 212.5, "lon": 13.4}',
    b"[52.5, 13.4]",
)


class Point(NamedTuple):
    lat: float
    lon: float


class Sent(NamedTuple):
    at_s: float
    key: str
    value: bytes


def places() -> list[Point]:
    """Where vehicles go: the zones' centres, and some addresses between them."""
    zones = json.loads((Path(__file__).parent / "zones.json").read_text())
    centres = [Point(zone["lat"], zone["lon"]) for zone in zones]
    return [*centres, Point(52.47, 13.38), Point(52.55, 13.42), Point(52.41, 13.45), Point(52.50, 13.28)]


def metres_between(one: Point, other: Point) -> float:
    """Near enough for a town."""
    east = (other.lon - one.lon) * math.cos(math.radians(one.lat))
    return math.hypot(other.lat - one.lat, east) * METRES_PER_DEGREE


def drive(random_: random.Random) -> Iterator[Point]:
    """A vehicle's true position at every tick, for ever."""
    everywhere = places()
    here = random_.choice(everywhere)
    while True:
        for _ in range(int(random_.uniform(1, 25) * 60 / EVERY_S)):
            yield here
        there = random_.choice([place for place in everywhere if place != here])
        whole_m = metres_between(here, there)
        gone_m = 0.0
        while gone_m < whole_m:
            gone_m += random_.uniform(30, 70) / 3.6 * EVERY_S
            part = min(1.0, gone_m / whole_m)
            at = Point(here.lat + (there.lat - here.lat) * part, here.lon + (there.lon - here.lon) * part)
            waits = int(random_.uniform(2, 15)) if random_.random() < 0.05 else 1
            for _ in range(waits):
                yield at
        here = there


def positions(seed: int, vehicle: int, begin_s: float) -> Iterator[Sent]:
    """What a vehicle's receiver says, every ten seconds or so."""
    name = f"truck-{vehicle}"
    random_ = random.Random(f"{seed}-{vehicle}")
    for tick, at in enumerate(drive(random_)):
        now_s = begin_s + tick * EVERY_S + random_.uniform(0.0, 1.0)
        jitter = [random_.gauss(0.0, JITTER_M) / METRES_PER_DEGREE for _ in range(2)]
        position = {
            "vehicle": name,
            "time": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
            "lat": round(at.lat + jitter[0], 6),
            "lon": round(at.lon + jitter[1], 6),
        }
        yield Sent(now_s, name, json.dumps(position).encode())


def records(seed: int, begin_s: float, vehicles: int) -> Iterator[Sent]:
    """What is sent, in the order of sending, for ever: some late, some twice, and some that are no positions."""
    random_ = random.Random(seed)
    coming: list[tuple[float, int, Sent]] = []
    number = count()
    for sent in heapq.merge(*(positions(seed, vehicle, begin_s) for vehicle in range(1, vehicles + 1))):
        chance = random_.random()
        later_s = sent.at_s + random_.uniform(0.0, LATE_S_MAX)
        copies = [later_s if chance < 0.04 else sent.at_s]
        if 0.03 < chance < 0.05:
            copies.append(later_s)
        for at_s in copies:
            heapq.heappush(coming, (at_s, next(number), sent))
        if chance > 0.995:
            malformed = Sent(sent.at_s, sent.key, random_.choice(MALFORMED))
            heapq.heappush(coming, (sent.at_s, next(number), malformed))
        while coming and coming[0][0] <= sent.at_s:
            at_s, _, due = heapq.heappop(coming)
            yield due._replace(at_s=at_s)


def main() -> None:
    parser = argparse.ArgumentParser(description="Positions for the fleet pipeline.")
    parser.add_argument("--records", type=int, default=8_700, help="how many; without effect on --live")
    parser.add_argument("--live", action="store_true", help="as they come, for ever")
    parser.add_argument("--vehicles", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=float, help="seconds since 1970 of the first position; two hours ago")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, which were sent before")
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    begin_s = time.time() if options.live else options.begin or time.time() - 7200
    stream = records(options.seed, begin_s, options.vehicles)
    if not options.live:
        stream = islice(stream, options.skip, options.skip + options.records)
    sent = 0
    try:
        for at_s, key, value in stream:
            if options.live:
                time.sleep(max(0.0, at_s - time.time()))
            producer.produce(TOPIC, value, key, on_delivery=stop_on_error)
            producer.poll(0)
            sent += 1
    except KeyboardInterrupt:
        pass
    producer.flush()
    print(f"sent {sent} records to {TOPIC}")


def stop_on_error(error: object, _: object) -> None:
    if error is not None:
        raise SystemExit(f"not stored: {error}")


if __name__ == "__main__":
    main()
