"""Log lines of a shop's services, as an agent on each machine would send them.

    python generate.py                      # those of the last three full hours, as fast as it goes
    python generate.py --live               # as time goes by, until Ctrl-C
    python generate.py --lines 500 --seed 7

Some lines come up to a minute late, and the lines of a machine that was cut off come an hour late and more; one in a
hundred is sent twice, and one in a hundred is no log line, but a piece of a stack trace or worse.
"""

import argparse
import heapq
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, cycle, islice

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
TOPIC = "service-logs"
LINES_PER_S = 2.0
HOURS = 3
LINES = int(LINES_PER_S * 3600 * HOURS)
LATE_S_MAX = 60.0
CUT_OFF_S_MAX = 5400.0
ENDPOINTS = {
    "gateway": (("GET", "/", 40), ("GET", "/health", 2), ("POST", "/login", 120)),
    "catalog": (("GET", "/products", 60), ("GET", "/products/{id}", 25), ("GET", "/prices", 15)),
    "search": (("GET", "/search", 180), ("POST", "/reindex", 2600)),
    "cart": (("GET", "/cart", 20), ("PUT", "/cart/items", 35), ("DELETE", "/cart/items", 30)),
    "payment": (("POST", "/payments", 450), ("GET", "/payments/{id}", 30)),
}
FAILING = {"gateway": 0.002, "catalog": 0.005, "search": 0.02, "cart": 0.004, "payment": 0.06}
"""The share of requests that fail."""
REASONS = ("upstream timed out", "connection reset by peer", "out of stock", "no such card")
MESSAGES = (("INFO", "cache of 1200 items loaded"), ("WARN", "retry 2 of 3"), ("DEBUG", "heartbeat"))
MALFORMED = (
    b"",
    b"Traceback (most recent call last):",
    b'  File "/srv/shop/payment.py", line 88, in charge',
    b"2026-11-18T12:00:00.000Z FATAL disk is gone",
    b"yesterdayZ INFO cart cart-1 restarted",
    b"\xff\xfe\x00 binary",
)

Record = tuple[str, bytes]
"""A key and a value."""


def line(random_: random.Random, service: str, id_: str, at_s: float) -> str:
    when = datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if random_.random() < 0.1:
        level, text = random_.choice(MESSAGES)
        return f"{when} {level} {service} {id_} {text}"
    method, path, usual_ms = random_.choice(ENDPOINTS[service])
    duration_ms = int(usual_ms * random_.lognormvariate(0, 0.5))
    request = f"{method} {path.replace('{id}', str(random_.randrange(100)))}"
    if random_.random() < FAILING[service]:
        status = random_.choice((500, 502, 503))
        return (
            f"{when} ERROR {service} {id_} {request} {status} {duration_ms * 4}ms {random_.choice(REASONS)}"
        )
    return f"{when} INFO {service} {id_} {request} 200 {duration_ms}ms"


def lines(random_: random.Random, begin_s: float) -> Iterator[tuple[float, Record]]:
    """In the order of their times, for ever."""
    at_s = begin_s
    for number in count(1):
        at_s += random_.expovariate(LINES_PER_S)
        service = random_.choice(tuple(ENDPOINTS))
        yield at_s, (service, line(random_, service, f"{service}-{number}", at_s).encode())


def records(seed: int, begin_s: float) -> Iterator[tuple[float, Record]]:
    """What is sent, with the time at which it is: some lines late, some twice, and some that are none."""
    random_ = random.Random(seed)
    malformed = cycle(MALFORMED)
    late: list[tuple[float, Record]] = []
    for at_s, record in lines(random_, begin_s):
        while late and late[0][0] <= at_s:
            yield heapq.heappop(late)
        chance = random_.random()
        if chance < 0.03:
            late_s_max = CUT_OFF_S_MAX if chance < 0.005 else LATE_S_MAX
            heapq.heappush(late, (at_s + random_.uniform(0.0, late_s_max), record))
            continue
        yield at_s, record
        if chance > 0.99:
            yield at_s, record
        elif chance > 0.98:
            yield at_s, (record[0], next(malformed))


def main() -> None:
    parser = argparse.ArgumentParser(description="Log lines for the lake.")
    parser.add_argument("--lines", type=int, default=LINES, help="how many; --live: no end")
    parser.add_argument("--live", action="store_true", help="as time goes by")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--begin", type=float, help="seconds since 1970 of the first line; three full hours ago"
    )
    options = parser.parse_args()
    now_s = time.time()
    begin_s = options.begin or (now_s if options.live else now_s // 3600 * 3600 - 3600 * HOURS)
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    sent = 0
    try:
        for at_s, (key, value) in islice(
            records(options.seed, begin_s), None if options.live else options.lines
        ):
            if options.live:
                time.sleep(max(0.0, at_s - time.time()))
            producer.produce(TOPIC, value, key, on_delivery=stop_on_error)
            producer.poll(0)
            sent += 1
    except KeyboardInterrupt:
        pass
    producer.flush()
    print(f"sent {sent} lines to {TOPIC}")


def stop_on_error(error: object, _: object) -> None:
    if error is not None:
        raise SystemExit(f"not stored: {error}")


if __name__ == "__main__":
    main()
