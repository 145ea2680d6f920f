"""Page views for the pipeline: visitors that come, look around and leave, as a website would send them.

    python generate.py                      # the last full hour of them, as fast as it goes
    python generate.py --rate 200           # 200 a second, for ever
    python generate.py --views 500 --seed 7

One in fifty is sent twice, some come up to a minute late, one in two hundred is no page view at all.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice

from confluent_kafka import Producer

BOOTSTRAP = os.environ.get("MOLDAU_BOOTSTRAP", "localhost:9092")
TOPIC = "page-views"
PAGES = ("/", "/search", "/cart", "/checkout", "/help", *(f"/product/{number}" for number in range(1, 21)))
VIEWS_PER_S = 5.0
LATE_S_MAX = 60.0
PEOPLE = 400
MALFORMED = (
    b"",
    b"not json",
    b'{"id": "cut off", "time": "2026-',
    b'{"visitor": "nobody", "page": "/"}',
    b"[1, 2]",
)

Record = tuple[str, bytes]
"""A key and a value."""


def views(
    random_: random.Random, begin_s: float, rate: float, people: int
) -> Iterator[tuple[float, dict[str, object]]]:
    """Page views in the order of their times, for ever."""
    visitors = [f"visitor-{number}" for number in range(people)]
    now_s = begin_s
    number = 0
    active: list[str] = []
    while True:
        now_s += random_.expovariate(rate)
        if not active or random_.random() < 0.1:
            active.append(random_.choice(visitors))
        visitor = random_.choice(active)
        if random_.random() < 0.09:
            active.remove(visitor)
        number += 1
        # Pages at the beginning of the list are more popular.
        page = PAGES[min(int(random_.expovariate(0.25)), len(PAGES) - 1)]
        yield (
            now_s,
            {
                "id": f"{int(begin_s)}-{number}",
                "visitor": visitor,
                "page": page,
                "time": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="milliseconds"),
                "load_ms": int(random_.lognormvariate(5, 0.6)),
            },
        )


def records(seed: int, begin_s: float, rate: float, people: int = PEOPLE) -> Iterator[tuple[float, Record]]:
    """What is sent, with the time at which it is: some views late, some twice, and some that are none."""
    random_ = random.Random(seed)
    late: list[tuple[float, Record]] = []
    for now_s, view in views(random_, begin_s, rate, people):
        record = str(view["visitor"]), json.dumps(view).encode()
        for due in sorted(one for one in late if one[0] <= now_s):
            late.remove(due)
            yield due
        chance = random_.random()
        if chance < 0.02:
            late.append((now_s + random_.uniform(0.0, LATE_S_MAX), record))
            if chance < 0.01:
                continue  # late, and not twice
        yield now_s, record
        if chance > 0.99:
            yield now_s, record
        elif chance > 0.985:
            yield now_s, ("", random_.choice(MALFORMED))


def main() -> None:
    parser = argparse.ArgumentParser(description="Page views for the website pipeline.")
    parser.add_argument("--views", type=int, default=18_000, help="how many; without effect on --rate")
    parser.add_argument("--rate", type=float, default=0.0, help="so many a second, for ever")
    parser.add_argument("--visitors", type=int, default=PEOPLE, help="how many people there are")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--begin", type=float, help="seconds since 1970 of the first view; the last full hour"
    )
    parser.add_argument("--skip", type=int, default=0, help="leave out so many, which were sent before")
    options = parser.parse_args()
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True, "linger.ms": 20})
    sent = 0
    if options.rate:
        stream = records(options.seed, time.time(), options.rate, options.visitors)
    else:
        begin_s = options.begin or time.time() // 3600 * 3600 - 3600
        stream = islice(records(options.seed, begin_s, VIEWS_PER_S, options.visitors), options.skip, None)
    try:
        for at_s, (key, value) in stream:
            if not options.rate and sent >= options.views:
                break
            if options.rate:
                time.sleep(max(0.0, at_s - time.time()))
            producer.produce(TOPIC, value, key or None, on_delivery=stop_on_error)
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
