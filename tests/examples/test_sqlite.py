"""Results and offsets in one SQLite transaction: every order counts exactly once, whenever the program is killed."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

from cluster.support import wait_until
from examples.stage import TIMEOUT_S, Running, Stage

COMMAND = "python examples/offsets_in_sqlite.py"
ORDERS = 60
KILLED_AFTER = (4, 15, 17)


def in_file(stage: Stage) -> tuple[dict[str, int], dict[int, int]]:
    """What was sold, and the next offsets."""
    with closing(sqlite3.connect(stage.folder / "sold.sqlite", timeout=TIMEOUT_S)) as database:
        sold = dict(database.execute("SELECT item, pieces FROM sold"))
        return sold, dict(database.execute("SELECT partition, next_offset FROM next_offsets"))


def sold_before(next_offsets: dict[int, int], orders: dict[tuple[int, int], str]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for (partition, offset), text in orders.items():
        *_, pieces, item = text.split()
        if offset < next_offsets[partition]:
            total[item] += int(pieces)
    return dict(total)


def finish(stage: Stage) -> Running:
    """Once more, to the end of the topic and until Ctrl-C."""
    orders = stage.read("orders")
    worker = stage.start(COMMAND)
    worker.wait_until(lambda: sum(in_file(stage)[1].values()) == len(orders), "all is booked")
    worker.interrupt()
    return worker


def test_totals_and_offsets_agree_at_every_moment(stage: Stage) -> None:
    stage.produce(ORDERS)
    orders = stage.read("orders")
    for count in KILLED_AFTER:
        worker = stage.start(COMMAND)
        worker.wait_orders(count)
        worker.kill()
        sold, next_offsets = in_file(stage)
        assert sold == sold_before(next_offsets, orders)
    last = finish(stage)
    sold, next_offsets = in_file(stage)
    assert sold == sold_before(next_offsets, orders)
    assert last.lines[-3:] == [f"{sold[item]} {item} sold" for item in ("apples", "pears", "plums")]


def test_two_copies_on_one_file_count_nothing_twice(stage: Stage) -> None:
    copies = [stage.start(COMMAND) for _ in range(2)]
    wait_until(lambda: all(copy.lines for copy in copies), TIMEOUT_S, "both to know where to begin")
    stage.produce(ORDERS)
    wait_until(lambda: any(copy.has_ended for copy in copies), TIMEOUT_S, "one of them to give up")
    for copy in copies:
        if copy.has_ended:
            assert copy.wait() == 1
            assert copy.errors() == "another copy of this program works on the same file\n"
        else:
            copy.interrupt()
    finish(stage)
    sold, next_offsets = in_file(stage)
    assert sold == sold_before(next_offsets, stage.read("orders"))
