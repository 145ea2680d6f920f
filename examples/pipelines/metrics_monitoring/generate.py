"""Metrics of twelve hosts, a sample of each every ten seconds, as an agent on each would send them.

    python generate.py                      # those of the last full hour, as fast as it goes
    python generate.py --live               # as time goes by, until Ctrl-C
    python generate.py --records 500 --seed 7

In each hour one host runs hot, one fails requests, one fills its disk, one is silent for a while and one for the rest.
One sample in fifty comes up to a minute late, one in a hundred twice, and one in two hundred is none.
"""

import argparse
import heapq
import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, cycle, islice
from typing import NamedTuple

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
TOPIC = "host-metrics"
ROLES = {"web": 6, "db": 2, "cache": 2, "batch": 2}
HOSTS = tuple(f"{role}-{number}" for role, hosts in ROLES.items() for number in range(1, hosts + 1))
PERIOD_S = 10
RECORDS_PER_HOUR = len(HOSTS) * 3600 // PERIOD_S
LATE_S_MAX = 60.0
MALFORMED = (
    b"",
    b"cpu 17.5 memory 40.1",
    b'{"host": "web-1", "time": "2026-',
    b'{"time": "2026-11-18T12:00:00.000Z", "cpu": 17.5, "memory": 40, "disk": 50, "requests": 1, "errors": 0}',
    b'{"host": "web-1", "time": "yesterday", "cpu": 1, "memory": 1, "disk": 1, "requests": 1, "errors": 0}',
    b'{"host": "web-1", "time": "2026-11-18T12:00:00.000Z", "cpu": "high"}',
    b'{"host": "db-1", "time": "2026-11-18T12:00:00.000Z", "cpu": 1750, "memory": 40, "disk": 50}',
    b'{"host": "db-1", "time": "2026-11-18T12:00:00.000Z", "cpu": 17.5, "memory": 40, "disk": 50, "requests": -1}',
)


class Incident(NamedTuple):
    """Minutes of each hour in which something is wrong with a host."""

    host: str
    kind: str
    first: int
    last: int


INCIDENTS = (
    Incident("web-2", "hot", 10, 24),
    Incident("web-4", "failing", 14, 21),
    Incident("db-1", "filling", 5, 59),
    Incident("cache-1", "silent", 20, 28),
    Incident("batch-2", "silent", 25, 59),
)

Record = tuple[str, bytes]
"""A key and a value."""


def troubles(host: str, elapsed_s: float) -> list[str]:
    minute = elapsed_s % 3600 / 60
    return [one.kind for one in INCIDENTS if one.host == host and one.first <= minute < one.last + 1]


def sample(random_: random.Random, host: str, at_s: float, elapsed_s: float) -> dict[str, object] | None:
    """What the host's agent measures; None where it is silent."""
    kinds = troubles(host, elapsed_s)
    if "silent" in kinds:
        return None
    busy = random_.uniform(94, 100) if "hot" in kinds else random_.gauss(40, 10)
    filled = 60 + 39 * (elapsed_s % 3600) / 3600 if "filling" in kinds else random_.uniform(40, 42)
    requests = int(random_.expovariate(1 / 200)) if host.startswith("web") else 0
    wrong = 0.3 if "failing" in kinds else 0.005
    return {
        "host": host,
        "time": datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "cpu": round(min(max(busy, 0.5), 100.0), 1),
        "memory": round(min(max(random_.gauss(55, 8), 5.0), 99.0), 1),
        "disk": round(filled, 1),
        "requests": requests,
        "errors": sum(random_.random() < wrong for _ in range(requests)),
    }


def samples(random_: random.Random, begin_s: float) -> Iterator[tuple[float, Record]]:
    """Of all hosts, about in the order of their times, for ever."""
    for tick in count():
        for host in HOSTS:
            at_s = begin_s + tick * PERIOD_S + random_.uniform(0, 2)
            measured = sample(random_, host, at_s, tick * PERIOD_S)
            if measured is not None:
                yield at_s, (host, json.dumps(measured).encode())


def records(seed: int, begin_s: float) -> Iterator[tuple[float, Record]]:
    """What is sent, with the time at which it is: some samples late, some twice, and some that are none."""
    random_ = random.Random(seed)
    malformed = cycle(MALFORMED)
    late: list[tuple[float, Record]] = []
    for at_s, record in samples(random_, begin_s):
        while late and late[0][0] <= at_s:
            yield heapq.heappop(late)
        chance = random_.random()
        if chance < 0.02:
            heapq.heappush(late, (at_s + random_.uniform(0.0, LATE_S_MAX), record))
            continue
        yield at_s, record
        if chance > 0.99:
            yield at_s, record
        elif chance > 0.985:
            yield at_s, (record[0], next(malformed))


def main() -> None:
    parser = argparse.ArgumentParser(description="Metrics for the monitoring pipeline.")
    parser.add_argument("--records", type=int, default=RECORDS_PER_HOUR, help="how many; --live: no end")
    parser.add_argument("--live", action="store_true", help="as time goes by")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--begin", type=float, help="seconds since 1970 of the first sample; the last full hour"
    )
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, which were sent before")
    options = parser.parse_args()
    begin_s = options.begin or (time.time() if options.live else time.time() // 3600 * 3600 - 3600)
    last = None if options.live else options.skip + options.records
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    sent = 0
    try:
        for at_s, (key, value) in islice(records(options.seed, begin_s), options.skip, last):
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
